"""Does it pay to train at G*?

Claim    At an equal budget of rollouts the group size with the least gradient error trains best.
Command  python experiments/ustat_training.py --out runs/ustat_training      about an hour on one core; resumable
         --only SEED runs one seed of every group size, then stops, so that a queue can take it in pieces
         --recipe grpo --groups 2 8 32 --best 8 is the same with standardized advantages
Method   `tiny` on `arithmetic`, leave-one-out advantages (RLOO, the gradient that G* is about). Every run samples
         `steps` × `batch` rollouts at the same learning rate, held constant: only how a batch is cut into prompts and
         groups differs. `--best` is G* of the starting model. Outcomes, on 200 held-out problems × 4: pass@1 at the
         end, its mean over the evaluations of the run (less noisy), and the rollouts at which the line through the
         evaluations first reaches `--level`, chosen from one run with another seed.
Test     Paired by seed, the unit: mean of G* minus each other G with its t interval, p-values by Holm.
Verdict  holds if some G ends worse than G* beyond seed noise (Holm p < 0.05) and none better; does not hold if one
         ends better; else cannot tell.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from grposcope.core.files import dumps, write_json
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train
from grposcope.maths.holm import holm

OUTCOMES = {"final": "pass@1 at the end", "mean": "mean pass@1 over the run"}


def one(group: int, seed: int, arguments: argparse.Namespace) -> dict:
    """The result of one run, trained unless an earlier call left its file; an unfinished run is made again."""
    name = f"{arguments.recipe}-group{group}-seed{seed}"
    path = arguments.out / f"{name}.json"
    if not path.exists():
        folder = arguments.out / "runs" / name
        tries = 0
        while folder.exists():
            tries += 1
            folder = folder.with_name(f"{name}-again{tries}")
        outcome = train(TrainConfig(
            model=arguments.model, task=arguments.task, recipe=arguments.recipe, out=str(folder), seed=seed,
            steps=arguments.steps, prompts=arguments.batch // group, group=group, lr=arguments.lr, schedule="constant",
            warmup=10, eval_every=arguments.every, eval_problems=arguments.problems, threads=1, checkpoint_every=0,
            rollouts_every=0,
        ))  # fmt: skip
        curve = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
        steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
        write_json(path, {
            "group": group, "seed": seed, "seconds": outcome.seconds,
            "curve": [[e["step"] * arguments.batch, e["pass@1"]["value"]] for e in curve],
            "dead": float(np.mean([s["dead_fraction"] for s in steps])),
        })  # fmt: skip
    result = json.loads(path.read_text())
    rollouts, accuracy = np.array(result["curve"]).T
    reached = crossing(rollouts, accuracy, arguments.level)
    return result | {"final": accuracy[-1], "mean": accuracy[1:].mean(), "to_level": reached}


def crossing(rollouts: NDArray, accuracy: NDArray, level: float) -> float:
    """Rollouts at which the line through the evaluations first reaches the level; infinite if it does not."""
    above = np.flatnonzero(accuracy >= level)
    if not len(above):
        return math.inf
    k = above[0]
    if k == 0:
        return float(rollouts[0])
    share = (level - accuracy[k - 1]) / (accuracy[k] - accuracy[k - 1])
    return float(rollouts[k - 1] + share * (rollouts[k] - rollouts[k - 1]))


def compared(results: list[dict], outcome: str, best: int, groups: list[int]) -> list[dict]:
    """Comparison of G* with each other group, paired by seed, with Holm's correction."""
    by_run = {(r["group"], r["seed"]): r[outcome] for r in results}
    rows = []
    for group in groups:
        if group == best:
            continue
        seeds = sorted({s for g, s in by_run if g == group} & {s for g, s in by_run if g == best})
        gains = np.array([by_run[best, s] - by_run[group, s] for s in seeds])
        test = stats.ttest_1samp(gains, 0.0)
        low, high = test.confidence_interval(0.95)
        rows.append({"group": group, "n": len(seeds), "gain": float(gains.mean()), "low": float(low),
                     "high": float(high), "p": float(test.pvalue)})  # fmt: skip
    for row, corrected in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["holm"] = corrected
    return rows


def shown(p: float) -> str:
    """A p-value to three decimals."""
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def verdict_of(rows: list[dict]) -> str:
    """The verdict on the claim from the comparisons of one outcome."""
    sure = [r for r in rows if r["holm"] < 0.05]
    better, worse = ([r["group"] for r in sure if sign * r["gain"] > 0] for sign in (-1, 1))
    if better:
        return f"does not hold: G in {better} beats G*"
    return f"holds: G in {worse} is worse, none better" if worse else "cannot tell: seed noise is larger"


def main() -> None:
    """Run what is missing, then print the table and the tests of what is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--recipe", default="rloo")
    parser.add_argument("--groups", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--best", type=int, default=4, help="G*, from `grposcope plan` on a probe of the model")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--only", type=int, help="run this seed, then stop")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=256, help="rollouts per step, a multiple of every group")
    parser.add_argument("--lr", type=float, default=4e-4)
    parser.add_argument("--every", type=int, default=15, help="steps between evaluations")
    parser.add_argument("--problems", type=int, default=200, help="held-out problems per evaluation")
    parser.add_argument("--level", type=float, default=0.45, help="held-out pass@1 to reach")
    arguments = parser.parse_args()
    groups = sorted({*arguments.groups, arguments.best})
    if any(arguments.batch % g for g in groups):
        parser.error(f"--batch {arguments.batch} must be a multiple of every group, {groups}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    seeds = arguments.seeds if arguments.only is None else [arguments.only]
    results = [one(group, seed, arguments) for seed in seeds for group in groups]
    if arguments.only is not None:
        print(dumps(results))
        return
    print(f"| G | P | runs | {' | '.join(OUTCOMES.values())} | dead groups | rollouts to {arguments.level:g}, median "
          "[least, most] |\n|---|---|---|---|---|---|---|")  # fmt: skip
    for group in groups:
        own = [r for r in results if r["group"] == group]
        means = [f"{np.mean([r[k] for r in own]):.3f} ± {stats.sem([r[k] for r in own]):.3f}" for k in OUTCOMES]
        reached = [r["to_level"] for r in own]
        print(f"| {group} | {arguments.batch // group} | {len(own)} | {' | '.join(means)} | "
              f"{np.mean([r['dead'] for r in own]):.1%} | "
              f"{np.median(reached):,.0f} [{min(reached):,.0f}, {max(reached):,.0f}] |")  # fmt: skip
    answers, comparisons = {}, {}
    for outcome, description in OUTCOMES.items():
        rows = comparisons[outcome] = compared(results, outcome, arguments.best, groups)
        print(f"\n| G = {arguments.best} less G = | {description} [95 %] | p | Holm |\n|---|---|---|---|")
        for r in rows:
            interval = f"[{r['low']:+.3f}, {r['high']:+.3f}]"
            print(f"| {r['group']} | {r['gain']:+.3f} {interval} | {shown(r['p'])} | {shown(r['holm'])} |")
        answers[outcome] = verdict_of(rows)
        print(f"verdict by {description}: {answers[outcome]}")
    print(dumps({"verdict": answers, "results": results, "comparisons": comparisons, "best": arguments.best}))


if __name__ == "__main__":
    main()
