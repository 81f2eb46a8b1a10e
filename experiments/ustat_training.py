"""Does it pay to train at G*?

Claim    At an equal budget of rollouts the group size with the least gradient error trains best.
Command  python experiments/ustat_training.py --out runs/ustat_training         many hours; resumable, a file per run
         python experiments/ustat_training.py --out /tmp/smoke --seeds 2 --groups 2 8 --rollouts 2048 --batch 64
Method   `tiny` on `arithmetic` with leave-one-out advantages (RLOO). Every run samples `rollouts` rollouts in batches
         of `batch`, at G = 2, 4, 8, 16, 32 and at the planned G* of a probe of the starting model (`--best`); same
         seeds everywhere. Outcome: held-out pass@1 at the end, and the rollouts after which it first is 0.8.
Test     Paired by seed: best-G run minus each other, mean with its t interval (seeds are the units), and Wilcoxon's
         signed-rank test; six comparisons, so Holm's correction.
Verdict  holds if no other G ends better than G* beyond seed noise and some end worse.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from scipy import stats

from grposcope.runs.store import dumps, write_json
from grposcope.training.config import TrainConfig
from grposcope.training.loop import train

TARGET = 0.8


def one(group: int, seed: int, arguments: argparse.Namespace) -> dict:
    """Train once, or read what an earlier call has left; an unfinished run is made again."""
    path = arguments.out / f"group{group}-seed{seed}.json"
    if path.exists():
        return json.loads(path.read_text())
    folder = arguments.out / "runs" / f"group{group}-seed{seed}"
    tries = 0
    while folder.exists():
        tries += 1
        folder = folder.with_name(f"group{group}-seed{seed}-again{tries}")
    steps = arguments.rollouts // arguments.batch
    outcome = train(TrainConfig(
        model=arguments.model, task=arguments.task, recipe="rloo", out=str(folder), seed=seed, steps=steps,
        prompts=arguments.batch // group, group=group, eval_every=max(1, steps // arguments.evaluations),
        eval_problems=arguments.problems, threads=1,
    ))  # fmt: skip
    curve = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
    reached = [e["step"] * arguments.batch for e in curve if e["pass@1"]["value"] >= TARGET]
    result = {
        "group": group, "seed": seed, "final": outcome.heldout["last"].value, "final_se": outcome.heldout["last"].se,
        "first": outcome.heldout["first"].value, "rollouts": outcome.rollouts, "seconds": outcome.seconds,
        "rollouts_to_target": min(reached) if reached else math.nan,
    }  # fmt: skip
    write_json(path, result)
    return result


def compared(results: list[dict], best: int, groups: list[int]) -> list[dict]:
    """G* against each other group, paired by seed."""
    final = {(r["group"], r["seed"]): r["final"] for r in results}
    rows = []
    for group in groups:
        if group == best:
            continue
        seeds = sorted({s for g, s in final if g == group} & {s for g, s in final if g == best})
        gains = np.array([final[best, s] - final[group, s] for s in seeds])
        n = len(gains)
        half = stats.t.ppf(0.975, n - 1) * gains.std(ddof=1) / math.sqrt(n) if n > 1 else math.nan
        p = stats.wilcoxon(gains).pvalue if n > 1 and gains.any() else math.nan
        rows.append({"group": group, "n": n, "gain": float(gains.mean()), "half": float(half), "p": float(p)})
    order = sorted((r for r in rows if not math.isnan(r["p"])), key=lambda r: r["p"])
    running = 0.0
    for rank, row in enumerate(order):  # Holm
        running = max(running, min(1.0, (len(order) - rank) * row["p"]))
        row["p_holm"] = running
    return rows


def main() -> None:
    """Run what is missing, then print the table and the tests of what is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--groups", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--best", type=int, default=4, help="G*, from `grposcope plan` on a probe of the model")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--rollouts", type=int, default=81920)
    parser.add_argument("--batch", type=int, default=256, help="rollouts per step, a multiple of every group")
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--problems", type=int, default=200, help="held-out problems per evaluation")
    arguments = parser.parse_args()
    groups = sorted({*arguments.groups, arguments.best})
    if any(arguments.batch % g for g in groups):
        parser.error(f"--batch {arguments.batch} must be a multiple of every group, {groups}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = [one(group, seed, arguments) for seed in range(arguments.seeds) for group in groups]
    print("| G | runs | final pass@1 (mean ± s.e. over seeds) | rollouts to 0.8, median (runs that reach it) |")
    print("|---|---|---|---|")
    for group in groups:
        own = [r for r in results if r["group"] == group]
        final = np.array([r["final"] for r in own])
        reached = [float(r["rollouts_to_target"]) for r in own if r["rollouts_to_target"] != "NaN"]
        reached = [r for r in reached if not math.isnan(r)]
        median = f"{np.median(reached):,.0f}" if 2 * len(reached) > len(own) else "not reached by half"
        error = final.std(ddof=1) / math.sqrt(len(final)) if len(final) > 1 else math.nan
        print(f"| {group} | {len(own)} | {final.mean():.3f} ± {error:.3f} | {median} ({len(reached)}) |")
    rows = compared(results, arguments.best, groups)
    print("\n| against G | gain of G* (95 % t interval) | Wilcoxon p | Holm |\n|---|---|---|---|")
    for r in rows:
        low, high = r["gain"] - r["half"], r["gain"] + r["half"]
        print(
            f"| {r['group']} | {r['gain']:+.3f} [{low:+.3f}, {high:+.3f}] | {r['p']:.3f} | {r.get('p_holm', 1):.3f} |"
        )
    least = 2 / 2**arguments.seeds
    better = [r["group"] for r in rows if r["gain"] + r["half"] < 0]
    worse = [r["group"] for r in rows if r["gain"] - r["half"] > 0]
    verdict = "holds" if worse and not better else "does not hold" if better else "cannot tell: seed noise is larger"
    print(
        f"verdict: {verdict}; better than G*: {better}, worse: {worse} (least p of {arguments.seeds} seeds {least:.3f})"
    )
    print(dumps({"verdict": verdict, "results": results, "comparisons": rows, "best": arguments.best}))


if __name__ == "__main__":
    main()
