"""Does the group size leave the mean trajectory of a network alone, and what does it do to the spread in a group?

Claim    arXiv:2606.30789: the mean trajectory does not contain G, so that runs at different G collapse on one curve;
         an inertial curve explains each with R² ≥ 0.91; yet the spread within groups keeps a dependence on G.
Command  python experiments/dynamics_invariance.py --out runs/dynamics_invariance     resumable, a file per run
         … --only 0 1 2       some of the runs, by number; … --report       what there is, no training
         … --quick --out FOLDER                                        a smoke test that proves nothing
Method   Three networks of the kind of `tiny`, each warmed up on the same worked sums: 2 layers of width 64, 3 of 96,
         and `tiny` itself, 4 of 160. RLOO, whose expected gradient is free of G, at a fixed number of prompts, so that
         the noise falls with G; AdamW at a constant rate. At equal seeds all G see the same prompts in the same order.
Test     Collapse: rewards in bins of ten steps, seeds as blocks. F = mean square between G ÷ mean square of G × seed,
         summed over bins; its null distribution from all permutations of G within seeds. What such a test can see is
         given by the slope of the mean reward on log2 G with its error (seeds as blocks, t).
         Spread: that of G = 4 and 8 against the largest G, and against its groups thinned at random to 4 and 8 of
         their rollouts (exact, hypergeometric): a standard deviation of few values is biased, whatever the policy is.
Verdict  collapse holds if no size has p < 0.05 after Holm's correction, and the 95 % interval of each slope lies
         within ± 0.02 of reward per doubling; does not hold for a size with such a p; cannot tell where p is large and
         the interval is wider. With three seeds no p can be below 1/36, so take eight.
Control  … --optimizer sgd --lr 5e-4 --sizes "3 × 96"     AdamW divides the step by the size of the noisy gradient, and
         clipping shortens it, so both let G into the mean; plain momentum without clipping does neither.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from scipy import stats

from grposcope.core.estimate import Estimate
from grposcope.core.files import dumps, write_json
from grposcope.instruments.dynamics import fit
from grposcope.lab import policies
from grposcope.lab.train import pretrain
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train

SIZES = {"3 × 96": (96, 3), "3 × 128": (128, 3), "4 × 160": (160, 4)}
BIN, SMALL = 10, 0.02


def network(size: str, folder: Path) -> str:
    """The model folder of a size, which is made and warmed up as `tiny` was unless it exists; `tiny` is the largest."""
    width, layers = SIZES[size]
    if (width, layers) == (160, 4):
        return "tiny"
    home = folder / "models" / f"{layers}x{width}"
    if not (home / "config.json").exists():
        pretrain._pretrain(0, width, layers).save_pretrained(home)
        pretrain._tokenizer().save_pretrained(home)
    return str(home)


def one(size: str, group: int, seed: int, given: argparse.Namespace) -> None:
    """Train unless the run's file exists, and write rewards by step and the right answers of every late group."""
    path = given.out / f"{SIZES[size][1]}x{SIZES[size][0]}-g{group}-s{seed}.json"
    if path.exists():
        return
    folder = given.out / "runs" / f"{path.stem}-{os.getpid()}"
    outcome = train(TrainConfig(
        model=network(size, given.out), recipe="rloo", prompts=given.prompts, group=group, seed=seed, out=str(folder),
        steps=given.steps, lr=given.lr, optimizer=given.optimizer, clip_grad=0.0 if given.optimizer == "sgd" else 1.0,
        schedule="constant", warmup=0, eval_every=0, eval_problems=0, checkpoint_every=0, rollouts_every=0, threads=1,
    ))  # fmt: skip
    groups = [json.loads(line) for line in (folder / "groups.jsonl").read_text().splitlines()]
    right = [sum(row["rewards"]) for row in groups if row["step"] > 2 * given.steps / 3]
    write_json(path, {"size": size, "group": group, "seed": seed, "rewards": outcome.rewards, "right": right,
                      "seconds": outcome.seconds})  # fmt: skip
    print(f"{path.stem}: {outcome.rewards[0]:.3f} to {np.mean(outcome.rewards[-20:]):.3f}, {outcome.seconds:.0f} s",
          flush=True)  # fmt: skip


def spread(right: np.ndarray, group: int, kept: int) -> np.ndarray:
    """Expected standard deviation (ddof 1) of `kept` of the rollouts of each group, given how many were right."""
    k = np.arange(kept + 1)
    values = np.sqrt(k * (kept - k) / (kept * (kept - 1)))
    table = np.array([stats.hypergeom(group, int(r), kept).pmf(k) @ values for r in range(group + 1)])
    return table[right.astype(int)]


def collapse(curves: np.ndarray) -> tuple[float, float]:
    """F of G within seeds of curves (G, seeds, bins), and its p over all permutations of G within seeds."""
    groups, seeds, _ = curves.shape
    centred = curves - curves.mean(0)  # seeds as blocks; what is left is between G plus G × seed, of a fixed sum
    total = float((centred**2).sum())
    orders = [list(order) for order in itertools.permutations(range(groups))]
    sums = centred[:, 0][None]  # the first seed stays: F is symmetric in G
    for seed in range(1, seeds):
        sums = (sums[:, None] + np.stack([centred[order, seed] for order in orders])[None]).reshape(-1, *sums.shape[1:])
    between = (sums**2).sum((1, 2)) / seeds
    ratio = between / (groups - 1) / ((total - between) / ((groups - 1) * (seeds - 1)))
    observed = float((centred.mean(1) ** 2).sum()) * seeds
    observed = observed / (groups - 1) / ((total - observed) / ((groups - 1) * (seeds - 1)))
    return observed, float(np.mean(ratio >= observed * (1 - 1e-9)))


def slope(groups: list[int], values: np.ndarray, comparisons: int) -> tuple[Estimate, float]:
    """Slope of values (G, seeds) on log2 G with seeds as blocks, and half its 95 % interval, widened by Bonferroni."""
    x = np.log2(groups)
    x = (x - x.mean())[:, None]
    y = values - values.mean(0)
    n, seeds = values.size, values.shape[1]
    weight = float((x**2).sum() * seeds)
    rate = float((x * y).sum() / weight)
    degrees = n - seeds - 1
    se = math.sqrt(float(((y - rate * x) ** 2).sum()) / degrees / weight)
    return Estimate(rate, se, n), float(stats.t.ppf(1 - 0.025 / comparisons, degrees)) * se


def rejected(p: dict[str, float], level: float = 0.05) -> list[str]:
    """Names whose p stays below the level after Holm's correction."""
    order = sorted(p, key=p.__getitem__)
    kept = itertools.takewhile(lambda i: p[order[i]] * (len(p) - i) < level, range(len(p)))
    return [order[i] for i in kept]


def judged(size: str, runs: list[dict], comparisons: int) -> dict:
    """Print and return what the runs of one size say; `comparisons` is the number of sizes."""
    groups = sorted({r["group"] for r in runs})
    seeds = sorted(
        s for s in {r["seed"] for r in runs} if all((g, s) in {(r["group"], r["seed"]) for r in runs} for g in groups)
    )
    at = {(r["group"], r["seed"]): r for r in runs}
    if len(groups) < 2 or len(seeds) < 2:
        return {"size": size, "collapse": "cannot tell: needs two seeds at each of two G"}
    rewards = np.array([[at[g, s]["rewards"] for s in seeds] for g in groups])
    bins = rewards[..., : rewards.shape[-1] // BIN * BIN].reshape(*rewards.shape[:2], -1, BIN).mean(-1)
    f, p = collapse(bins)
    (level, level_half), (late, late_half) = (slope(groups, part, comparisons) for part in (
        rewards.mean(-1), rewards[..., rewards.shape[-1] * 2 // 3 :].mean(-1)))  # fmt: skip
    print(f"{size}: F = {f:.2f}, p = {p:.3f}; per doubling of G the mean reward changes by {level.value:+.4f} ± "
          f"{level.se:.4f} (95 % ± {level_half:.4f}), the late one by {late.value:+.4f} ± {late.se:.4f}")  # fmt: skip
    most = groups[-1]
    lines = []
    for g in groups:
        fits = [fit.fit(np.arange(1, rewards.shape[-1] + 1), at[g, s]["rewards"], "inertial") for s in seeds]
        whole = [np.array(at[g, s]["right"]) for s in seeds]
        thinned = [float(spread(np.array(at[most, s]["right"]), most, g).mean()) for s in seeds]
        actual = [float(spread(right, g, g).mean()) for right in whole]
        variance = [float((right * (g - right) / (g * (g - 1))).mean()) for right in whole]
        row = {
            "group": g, "final": Estimate.mean(rewards[groups.index(g)][:, -20:].mean(-1).tolist()),
            "r2": Estimate.mean([x.r2 for x in fits]), "ceiling": Estimate.mean([x.ceiling for x in fits]),
            "identified": sum(not x.parameters["plateau"].flag for x in fits), "spread": Estimate.mean(actual),
            "variance": Estimate.mean(variance), "against_largest": Estimate.mean([
                a / float(spread(np.array(at[most, s]["right"]), most, most).mean())
                for a, s in zip(actual, seeds, strict=True)]),
            "against_thinned": Estimate.mean([a / b for a, b in zip(actual, thinned, strict=True)]),
        }  # fmt: skip
        lines.append(row)
        cells = " | ".join(f"{row[k].value:.3f} ± {row[k].se:.3f}" for k in (
            "final", "r2", "ceiling", "spread", "variance", "against_largest", "against_thinned"))  # fmt: skip
        print(f"| {size} | {g} | {cells} | {row['identified']} of {len(seeds)} |")
    return {"size": size, "groups": groups, "seeds": seeds, "f": f, "p": p, "level": level, "level_half": level_half,
            "late": late, "late_half": late_half, "rows": lines}  # fmt: skip


def report(given: argparse.Namespace) -> None:
    """Print tables and verdict from the files in the folder; the last line is JSON."""
    runs = [json.loads(path.read_text()) for path in sorted(given.out.glob("*-g*-s*.json"))]
    print("| network | G | reward at the end | R² | ceiling | spread | variance | spread ÷ that of the largest G | "
          "÷ that of its groups thinned to G | plateau identified |\n" + "|---" * 10 + "|")  # fmt: skip
    sizes = [size for size in SIZES if any(r["size"] == size for r in runs)]
    verdicts = [judged(size, [r for r in runs if r["size"] == size], len(sizes)) for size in sizes]
    tested = [x for x in verdicts if "p" in x]
    differs = rejected({x["size"]: x["p"] for x in tested})
    unclear = [
        x["size"] for x in tested if x["size"] not in differs and abs(x["level"].value) + x["level_half"] > SMALL
    ]
    if not tested:
        verdict = "cannot tell: too few runs"
    elif differs:
        verdict = f"the collapse does not hold for {', '.join(differs)}"
    elif unclear:
        verdict = f"cannot tell for {', '.join(unclear)}: a slope of {SMALL} per doubling is possible"
    else:
        verdict = "the collapse holds"
    print("verdict:", verdict)
    print(dumps({"sizes": verdicts, "verdict": verdict}))


def main() -> None:
    """Train what is missing, then report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/dynamics_invariance"), help="folder of the results")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-4, help="at 4e-4 small groups unlearn (default: 1e-4)")
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw", help="sgd: without clipping")
    parser.add_argument("--sizes", nargs="+", choices=tuple(SIZES), default=list(SIZES))
    parser.add_argument("--groups", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the runs to make")
    parser.add_argument("--models", action="store_true", help="make the models and stop")
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument("--quick", action="store_true", help="a smoke test at a scale that proves nothing")
    given = parser.parse_args()
    sizes = given.sizes
    if given.quick:
        given.prompts, given.groups, given.steps, given.seeds, sizes = 2, [4, 8], 12, 2, ["4 × 160"]
    torch.set_num_threads(1)
    policies.load("tiny")
    given.out.mkdir(parents=True, exist_ok=True)
    if given.models:
        for size in sizes:
            network(size, given.out)
        return
    grid = list(itertools.product(range(given.seeds), sizes, given.groups))
    for number, (seed, size, group) in enumerate(grid):
        if not given.report and (given.only is None or number in given.only):
            one(size, group, seed, given)
    report(given)


if __name__ == "__main__":
    main()
