"""Experiment: is what training at one group size teaches worth the same elsewhere, whatever the group size?

Claim    arXiv:2606.30789: transfer to tasks that were not trained on does not depend on the group size.
Command  python experiments/dynamics_transfer.py --models runs/allocation --out runs/dynamics_transfer
         resumable, an evaluation per model; --report prints what is there; --train trains what --models lacks,
         … --quick --out FOLDER   a smoke test that proves nothing
Models   `tiny` trained on `arithmetic` by RLOO at G = 4, 8 and 16, 128 rollouts a step cut into 32, 16 and 8 prompts,
         to the same number of rollouts, seeds 0 … 7: AdamW at 4e-4 after 20 steps of warm-up, gradients clipped, 50
         steps (--train). Or --models names a folder of `allocation.py`, whose cells fixed-4, fixed-8 and fixed-16
         go on to 400,000 generated tokens, each at its own tuned learning rate.
Families Eight that were not trained on and that `tiny` partly solves: larger results (limit=200, 400), larger operands
         (largest=12, 20), another operator (+-*, -*), one operator only (+, -). Two and four steps it solves in 1 to
         2 % of cases, and reasoning-gym's prompts have words that its vocabulary lacks: left out. 150 held-out problems
         × 2 completions each, the same problems and random numbers for all models; and the family trained on.
Test     Differences of pass@1 between two G, seeds and problems crossed (`instruments.evaluation.crossed_means`).
         Equivalence by two one-sided tests with a margin of 5 points; Holm over the 24 comparisons (eight families,
         three pairs of G).
Verdict  The claim holds jointly if all 24 comparisons are equivalent at 5 % each (intersection-union: no correction);
         it does not hold if a family differs (Holm p < 0.05, two-sided); else cannot tell. By family: equivalent if the
         three pairs are, by Holm. "holds" and "does not hold" need 8 seeds, else "seen".
Beside   the same for the family trained on; transfer at equal success on
         it: slope of the mean over families on log2 G beside success on the family trained on, by least squares over
         models (exploratory); mean held-out pass@1 over the course of training, paired by seed, where --models has it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from grposcope.core.files import dumps
from grposcope.instruments.evaluation import crossed_means
from grposcope.instruments.evaluation import record as evaluation
from grposcope.instruments.evaluation.evaluate_models import draw, find_task
from grposcope.instruments.evaluation.record import EvaluationPlan, EvaluationView
from grposcope.instruments.evaluation.scores import _crossed_difference
from grposcope.lab import policies, tasks
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train
from grposcope.maths.holm import holm

GROUPS, SEEDS, MARGIN, TRAINED = (4, 8, 16), range(8), 0.05, "arithmetic"
FAMILIES = tuple(f"arithmetic:{option}" for option in (
    "limit=200", "limit=400", "largest=12", "largest=20", "ops=+-*", "ops=-*", "ops=+", "ops=-"))  # fmt: skip
PLAN = EvaluationPlan(models=("model",), tasks=(TRAINED, *FAMILIES), samples=2, limit=150)


def models(root: Path | None) -> dict[tuple[int, int], Path]:
    """Folders of the trained models by G and seed."""
    found = {}
    for path in sorted(root.glob("**/fixed-*/*/model/model.safetensors")) if root else ():
        run = path.parents[1]
        group, seed = run.parent.name.split("-")[1], run.name
        if "finite" not in path.parts and seed.isdigit() and int(seed) in SEEDS:
            found[int(group), int(seed)] = run
    return found


def trained(group: int, seed: int, given: argparse.Namespace) -> Path:
    """The folder of a run, trained unless it is there."""
    folder = given.out / "trained" / f"fixed-{group}" / str(seed)
    if not (folder / "model" / "model.safetensors").exists():
        shutil.rmtree(folder, ignore_errors=True)  # left unfinished, so it is made again
        train(TrainConfig(
            model="tiny", task="arithmetic:size=20000", recipe="rloo", group=group, prompts=128 // group, seed=seed,
            steps=2 if given.quick else given.steps, lr=given.lr, schedule="constant", warmup=20, out=str(folder),
            eval_every=0 if given.quick else 10, eval_problems=100, eval_samples=2, threads=1, keep_checkpoints=0,
            checkpoint_every=0 if given.quick else given.steps // 2, rollouts_every=0,
        ))  # fmt: skip
    return folder


def scores(name: str, model: str, out: Path, plan: EvaluationPlan) -> dict[str, NDArray]:
    """pass@1 of each problem of each task, drawn unless it is there."""
    folder = out / "evaluations" / name
    if not (folder / "evaluation.json").exists() or evaluation.read(folder).missing:
        found = {task: find_task(tasks.load(task, None), plan) for task in plan.tasks}
        draw(folder, plan, found, lambda _: policies.load(model, torch.float32, "cpu"), EvaluationView())
    rows = evaluation.read(folder).rows
    return {task: np.array([row.right / len(row.completions) for row in some]) for (_, task), some in rows.items()}


def equivalence(found: crossed_means.CrossedMean) -> float:
    """p of two one-sided tests that a difference lies within the margin."""
    if not found.se > 0:
        return float(abs(found.value) >= MARGIN)
    return float(max(stats.t.sf((found.value + MARGIN) / found.se, found.df),
                     stats.t.sf((MARGIN - found.value) / found.se, found.df)))  # fmt: skip


def curves(found: dict[tuple[int, int], Path], seeds: list[int]) -> None:
    """Print the mean held-out pass@1 over the steps that all runs have, and its differences paired by seed."""
    table: dict[tuple[int, int], dict[int, float]] = {}
    for key, run in found.items():
        if key[1] in seeds and (run / "evals.jsonl").exists():
            lines = [json.loads(line) for line in (run / "evals.jsonl").read_text().splitlines()]
            table[key] = {one["step"]: one["pass@1"]["value"] for one in lines}
    common = set.intersection(*(set(curve) for curve in table.values())) if len(table) == 3 * len(seeds) else set()
    if not common:
        print("curves: not all runs have evaluations at common steps")
        return
    means = {g: np.array([np.mean([table[g, s][n] for n in common]) for s in seeds]) for g in GROUPS}
    print(f"held-out pass@1, mean over {len(common)} evaluations up to step {max(common)} (128 rollouts a step): "
          + ", ".join(f"G = {g}: {m.mean():.3f} ± {stats.sem(m):.3f}" for g, m in means.items()))  # fmt: skip
    for a, b in itertools.combinations(GROUPS, 2):
        test = stats.ttest_1samp(means[b] - means[a], 0.0)
        low, high = test.confidence_interval(0.95)
        print(f"  G = {b} less {a}: {np.mean(means[b] - means[a]):+.3f} [{low:+.3f}, {high:+.3f}]")


def report(table: dict[tuple[int, int], dict[str, NDArray]], start: dict[str, NDArray]) -> tuple[str, list[int]]:
    """Print tables and verdict; returns the verdict and the seeds that all G have."""
    seeds = [s for s in SEEDS if all((g, s) in table for g in GROUPS)]
    if len(seeds) < 2:
        return f"cannot tell: {len(seeds)} seeds have all three group sizes", seeds
    arms = {task: {g: np.stack([table[g, s][task] for s in seeds]) for g in GROUPS} for task in start}
    pairs = list(itertools.combinations(GROUPS, 2))
    rows = [(task, a, b, _crossed_difference(arms[task][a], arms[task][b]))
            for task in (TRAINED, *FAMILIES) for a, b in pairs]  # fmt: skip
    tested = rows[len(pairs) :]
    same, apart = holm([equivalence(d) for *_, d in tested]), holm([d.p for *_, d in tested])
    print(f"{len(seeds)} seeds; pass@1 in percent, differences in points with 95 % intervals, Holm p of equivalence\n\n"
          "| family | start | " + " | ".join(f"G = {g}" for g in GROUPS) + " | "
          + " | ".join(f"{b} less {a}" for a, b in pairs) + " |\n" + "|---" * 8 + "|")  # fmt: skip
    for k, task in enumerate((TRAINED, *FAMILIES)):
        cells = [f"{100 * arms[task][g].mean():.1f}" for g in GROUPS]
        for j in range(len(pairs)):
            d = rows[3 * k + j][3]
            p = f"; {same[3 * (k - 1) + j]:.3f}" if k else ""
            cells.append(f"{100 * d.value:+.1f} ({100 * d.low:+.1f} to {100 * d.high:+.1f}{p})")
        name = task.partition(":")[2] or "trained on"
        print(f"| {name} | {100 * start[task].mean():.1f} | {' | '.join(cells)} |")
    alike = [task for k, task in enumerate(FAMILIES) if max(same[3 * k : 3 * k + 3]) < 0.05]
    differs = sorted({tested[i][0] for i, p in enumerate(apart) if p < 0.05})
    joint = all(equivalence(d) < 0.05 for *_, d in tested)
    enough = len(seeds) >= 8
    verdict = ("holds" if enough else "seen") if joint else "cannot tell"
    if differs:
        verdict = f"{'does not hold' if enough else 'seen not to hold'}: {', '.join(differs)} differ"
    print(f"equivalent by Holm: {len(alike)} of {len(FAMILIES)} families; widest interval "
          f"{100 * max(max(-d.low, d.high) for *_, d in tested):.1f} points")  # fmt: skip
    keys = [(g, s) for g in GROUPS for s in seeds]
    y = np.array([np.mean([table[k][f].mean() for f in FAMILIES]) for k in keys])
    x = np.column_stack([np.ones(len(keys)), [table[k][TRAINED].mean() for k in keys], [math.log2(k[0]) for k in keys]])
    beta, *_ = np.linalg.lstsq(x, y, rcond=None)
    spread = ((y - x @ beta) ** 2).sum() / max(len(y) - 3, 1) * np.linalg.inv(x.T @ x)
    se = np.sqrt(np.diag(spread))
    print(f"mean over families: {beta[1]:.2f} ± {se[1]:.2f} per point on the family trained on; at equal success there "
          f"{100 * beta[2]:+.2f} ± {100 * se[2]:.2f} points per doubling of G")  # fmt: skip
    print("verdict:", verdict)
    print(dumps({"verdict": verdict, "seeds": seeds, "rows": [
        {"family": t, "groups": (a, b), "difference": d.value, "interval": (d.low, d.high), "se": d.se,
         "equivalence": equivalence(d), "p": d.p} for t, a, b, d in rows]}))  # fmt: skip
    return verdict, seeds


def main() -> None:
    """Evaluate what is missing, then report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=Path, help="folder of `allocation.py`")
    parser.add_argument("--out", type=Path, default=Path("runs/dynamics_transfer"), help="folder of the results")
    parser.add_argument("--train", action="store_true", help="train the models that --models lacks")
    parser.add_argument("--steps", type=int, default=50, help="steps of 128 rollouts with --train")
    parser.add_argument("--lr", type=float, default=4e-4, help="learning rate with --train")
    parser.add_argument("--report", action="store_true", help="draw nothing")
    parser.add_argument("--quick", action="store_true", help="a smoke test at a scale that proves nothing")
    given = parser.parse_args()
    torch.set_num_threads(1)
    seeds, plan = (list(SEEDS)[:2], replace(PLAN, limit=5)) if given.quick else (list(SEEDS), PLAN)
    found = models(given.models)
    if (given.train or given.quick) and not given.report:
        for seed, group in itertools.product(seeds, GROUPS):
            if (group, seed) not in found:
                found[group, seed] = trained(group, seed, given)
    found |= {key: run for key, run in models(given.out / "trained").items() if key not in found}
    table, start = {}, {}
    listed = sorted(found.items(), key=lambda item: item[0][::-1])  # seed by seed
    for key, model in [(None, "tiny"), *((key, str(run / "model")) for key, run in listed)]:
        name = "start" if key is None else "{}-{}".format(*key)
        if given.report and not (given.out / "evaluations" / name / "evaluation.json").exists():
            continue
        drawn = scores(name, model, given.out, plan)
        start, table = (drawn, table) if key is None else (start, table | {key: drawn})
    verdict, seeds = report(table, start)
    if len(seeds) < 2:
        print("verdict:", verdict)
    else:
        curves(found, seeds)


if __name__ == "__main__":
    main()
