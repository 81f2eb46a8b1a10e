"""Experiment: does allocating rollouts by success rates save tokens against the best fixed group size?

`tiny` on arithmetic, recipe rloo, a budget of 256 rollouts a batch, AdamW at a constant learning rate after 10
steps of warm-up, temperature 1. Two tasks: `fresh`, 40,000 training problems of which none is needed twice, and
`finite`, 200 problems that are seen again and again. Held-out pass@1 of 200 problems × 4 completions every 10
steps. The cost is counted in generated tokens, those of rollouts that were not trained on included.

    fixed-4, fixed-8, fixed-16    uniform draws, G = 4, 8, 16
    resample                      G = 8, dead groups replaced (DAPO)
    filter                        G = 8, problems forecast to be dead skipped
    two-stage, pooled             two rollouts for many, the rest where they differ; screening trained on or not
    optimal                       q and G by forecast, weights 1/q        one     the same with one G for all
    unweighted                    the same without weights: another objective

Seeds 100, 101 tune the learning rate of each cell among 2e-4, 4e-4 and 8e-4, and the G of the fixed one, by the
mean area under the held-out curve; seeds 0 … 7 are the result, at the tuned rates, paired by seed.

The rule, written before the first run. Tokens to 0.8: the first crossing of 0.8 by the held-out curve, smoothed
over three evaluations, linear in between; a run that does not reach 0.8 counts with all its tokens, a lower limit.
The saving of a cell is 1 − exp(mean over seeds of the log of the ratio of its tokens to those of the best fixed G),
with a t interval over 8 pairs. For `optimal` on each task

    saves         the saving is ≥ 20 % and its 95 % interval is above 0
    saves little  the upper end of its 95 % interval is below 10 %
    cannot tell   otherwise, and where a seed of the best fixed G does not reach 0.8

Beside it: area under the curve, live groups per 1,000 generated tokens, the saving that the allocator predicted
(mean of `allocation/saving_predicted` until 0.8) against the measured one, held-out accuracy by the task's
difficulty at the end, and the forecast's Brier skill and calibration. The forecast counts as useful if the interval
of its skill is above 0 over the base rate and over difficulty alone. All other cells and comparisons are
exploratory.

    python experiments/allocation.py --out FOLDER --hours 2          until two hours have passed; again goes on
    python experiments/allocation.py --out FOLDER --part 1/2         every second run, for two processes
    python experiments/allocation.py --out FOLDER --smoke            three runs of 6 steps, and the time that all take
    python experiments/allocation.py --out FOLDER --report           the tables of what is there
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import shutil
import time
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from grposcope import policies, tasks
from grposcope.allocation import scores
from grposcope.runs import read
from grposcope.runs.native import forecasts
from grposcope.training import loop
from grposcope.training.config import TrainConfig
from grposcope.training.rollouts import Rules, draw, generator
from grposcope.training.sampler import Sampling

TASKS = {"fresh": "arithmetic:size=40000", "finite": "arithmetic:size=200"}
CELLS = {
    "fixed-4": ("uniform:forecast=yes", 4),
    "fixed-8": ("uniform:forecast=yes", 8),
    "fixed-16": ("uniform:forecast=yes", 16),
    "resample": ("resample", 8),
    "filter": ("filter", 8),
    "two-stage": ("two-stage", 8),
    "pooled": ("two-stage:pooled=yes", 8),
    "optimal": ("optimal", 8),
    "one": ("optimal:sizes=one", 8),
    "unweighted": ("optimal:weights=none", 8),
}
RATES, TUNING, SEEDS, BUDGET, GOAL = (2e-4, 4e-4, 8e-4), (100, 101), tuple(range(8)), 256, 0.8
STEPS, EVERY = 200, 10
AREA_TO = 700_000
"""Tokens over which the area under the curve is taken; a run of 200 steps generates about 750,000."""
SETTINGS = TrainConfig(
    model="tiny", recipe="rloo", schedule="constant", warmup=10, eval_every=EVERY, eval_problems=200, eval_samples=4,
    checkpoint_every=0, rollouts_every=0, threads=1, steps=STEPS,
)  # fmt: skip


@dataclass(frozen=True)
class Key:
    """One run: task, cell, learning rate and seed."""

    task: str
    cell: str
    rate: float
    seed: int

    def folder(self, out: Path) -> Path:
        """Where its record is."""
        return out / self.task / f"{self.cell}-{self.rate:g}" / str(self.seed)


def train(key: Key, out: Path, steps: int = STEPS) -> float:
    """One run, unless it is there already; seconds that it took. A run that was stopped is done again."""
    folder, (allocate, group) = key.folder(out), CELLS[key.cell]
    if (folder / "difficulty.json").exists():
        return 0.0
    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    config = replace(
        SETTINGS, task=TASKS[key.task], allocate=allocate, group=group, prompts=BUDGET // group, lr=key.rate,
        seed=key.seed, out=str(folder), steps=steps,
    )  # fmt: skip
    loop.train(config)
    (folder / "difficulty.json").write_text(json.dumps(by_difficulty(folder, key.task, key.seed)))
    shutil.rmtree(folder / "model")
    return time.perf_counter() - began


def by_difficulty(folder: Path, task_name: str, seed: int) -> dict[str, list[float]]:
    """Held-out accuracy of the final model by the task's difficulty, and how many of 400 problems have it."""
    task, policy = tasks.load(TASKS[task_name], None), policies.load(str(folder / "model"), torch.float32, "cpu")
    problems = list(task.problems("heldout"))[:400]
    rules = Rules(Sampling(task.max_tokens))
    rewards = draw(policy, task, problems, 2, rules, generator(seed, "difficulty")).rollouts.rewards.mean(1).tolist()
    found: dict[str, list[float]] = {}
    for problem, reward in zip(problems, rewards, strict=True):
        found.setdefault(f"{task.difficulty(problem):g}", []).append(reward)
    return {level: [float(np.mean(values)), float(len(values))] for level, values in sorted(found.items())}


def tuned(out: Path, task: str) -> dict[str, float] | None:
    """The learning rate of each cell by the tuning runs, None while some are missing."""
    best = {}
    for cell in CELLS:
        areas = {}
        for rate in RATES:
            keys = [Key(task, cell, rate, seed) for seed in TUNING]
            if not all((key.folder(out) / "difficulty.json").exists() for key in keys):
                return None
            areas[rate] = float(np.mean([measured(key, out)["area"] for key in keys]))
        best[cell] = max(areas, key=areas.__getitem__)
    return best


def best_fixed(out: Path, task: str, rates: dict[str, float]) -> str:
    """The fixed group size with the greatest area in the tuning runs."""
    fixed = [cell for cell in CELLS if cell.startswith("fixed")]
    areas = {c: np.mean([measured(Key(task, c, rates[c], s), out)["area"] for s in TUNING]) for c in fixed}
    return max(areas, key=areas.__getitem__)


def measured(key: Key, out: Path) -> dict[str, float]:
    """Tokens to GOAL (all of them where it is not reached), area under the curve, live groups, predicted saving."""
    run = read(key.folder(out))
    table = run.table
    spent = np.cumsum(table["allocation/tokens"])  # every cell has an allocator that says so
    curve = run.evaluations.of("pass@1")
    at = np.concatenate([[0.0], spent])[curve.step]
    smooth = np.convolve(np.pad(curve.value, 1, mode="edge"), np.ones(3) / 3, "valid")
    above = np.flatnonzero(smooth >= GOAL)
    reached = bool(len(above)) and above[0] > 0
    tokens = float(at[-1])
    if reached:
        i = above[0]
        tokens = float(np.interp(GOAL, smooth[i - 1 : i + 1], at[i - 1 : i + 1]))
    until = spent <= tokens
    live = (table["allocation/live"] * table["allocation/groups"])[until].sum() / max(spent[until].max(initial=1), 1)
    saving = table.get("allocation/saving_predicted")
    step_seconds = table["seconds_sample"] + table["seconds_update"]
    return {
        "tokens": tokens,
        "reached": float(reached),
        "area": area(at, curve.value),
        "live": float(1000 * live),
        "predicted": math.nan if saving is None else float(np.nanmean(saving[until])),
        "final": float(curve.value[-3:].mean()),
        "overhead": float(np.sum(table["allocation/seconds"]) / np.sum(step_seconds)),
    }  # fmt: skip


def area(tokens: np.ndarray, accuracy: np.ndarray) -> float:
    """Mean held-out accuracy over the first AREA_TO tokens, linear between evaluations; the last one is held."""
    grid = np.linspace(0, AREA_TO, 701)
    return float(np.trapezoid(np.interp(grid, tokens, accuracy), grid) / AREA_TO)


def plan(out: Path) -> list[Key]:
    """The runs to do, in order: those that tune, then, once these are there, the result."""
    keys = [Key(t, c, r, s) for s, t, c, r in itertools.product(TUNING, TASKS, CELLS, RATES)]
    for task in TASKS:
        if (rates := tuned(out, task)) is not None:
            keys += [Key(task, cell, rates[cell], seed) for seed, cell in itertools.product(SEEDS, CELLS)]
    return keys


def saving(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """1 − exp(mean log ratio) with its 95 % t interval over pairs."""
    logs = np.log(ours) - np.log(theirs)
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    low, high = 1 - math.exp(logs.mean() + half), 1 - math.exp(logs.mean() - half)
    return 1 - math.exp(logs.mean()), low, high


def verdict(point: float, low: float, high: float, told: bool) -> str:
    """The rule of this file."""
    if not told:
        return "cannot tell: a seed of the best fixed G does not reach the goal"
    return "saves" if point >= 0.2 and low > 0 else "saves little" if high < 0.1 else "cannot tell"


def report(out: Path) -> None:
    """Tables of what is there."""
    for task in TASKS:
        rates = tuned(out, task)
        if rates is None:
            print(f"{task}: the tuning runs are not complete")
            continue
        best, said = best_fixed(out, task, rates), "optimal: no runs yet"
        done = {cell: _done(out, task, cell, rates[cell]) for cell in CELLS}
        print(f"\n## {task}: best fixed is {best}\n")
        names = ("cell", "lr", "n", "k tokens", "reached", "saving (95 %)", "predicted", "area", "live per 1k", "cost")
        print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
        for cell, runs in done.items():
            both = sorted(runs.keys() & done[best].keys())
            if len(both) < 2:
                continue
            values = {name: np.array([runs[s][name] for s in both]) for name in runs[both[0]]}
            mean = {name: float(column.mean()) for name, column in values.items()}
            point, low, high = saving(values["tokens"].tolist(), [done[best][s]["tokens"] for s in both])
            error = values["area"].std(ddof=1) / math.sqrt(len(both))
            row = (cell, f"{rates[cell]:g}", len(both), f"{mean['tokens'] / 1e3:.0f}", f"{mean['reached']:.0%}",
                   f"{point:.1%} ({low:.1%} to {high:.1%})", f"{mean['predicted']:.1%}",
                   f"{mean['area']:.3f} ± {error:.3f}", f"{mean['live']:.2f}", f"{mean['overhead']:.1%}")  # fmt: skip
            print(f"| {' | '.join(map(str, row))} |")
            if cell == "optimal":
                told = len(both) == len(SEEDS) and all(done[best][s]["reached"] for s in both)
                said = f"optimal on {task}: {verdict(point, low, high, told)}"
        print(f"\n{said}")
        _difficulty(out, task, rates)
        _forecasts(out, task, rates)


def _done(out: Path, task: str, cell: str, rate: float) -> dict[int, dict[str, float]]:
    """What the finished runs of a cell measured, by seed."""
    keys = {seed: Key(task, cell, rate, seed) for seed in SEEDS}
    return {s: measured(key, out) for s, key in keys.items() if (key.folder(out) / "difficulty.json").exists()}


def _difficulty(out: Path, task: str, rates: dict[str, float]) -> None:
    """Held-out accuracy by difficulty, mean over seeds."""
    print("\nheld-out accuracy at the end by the task's difficulty")
    for cell in CELLS:
        files = [Key(task, cell, rates[cell], s).folder(out) / "difficulty.json" for s in SEEDS]
        found = [json.loads(file.read_text()) for file in files if file.exists()]
        levels = sorted({level for one in found for level in one}, key=float)
        shown = (f"{level}: {np.mean([one[level][0] for one in found if level in one]):.3f}" for level in levels)
        print(f"  {cell:12} {'  '.join(shown)}")


def _forecasts(out: Path, task: str, rates: dict[str, float]) -> None:
    """Skill and calibration of the forecasts, seeds together."""
    for cell in ("fixed-8", "optimal"):
        parts = [forecasts.of_run(Key(task, cell, rates[cell], s).folder(out)) for s in SEEDS]
        known = [(s, part) for s, part in enumerate(parts) if part is not None]
        if not known:
            continue
        stack = {n: np.concatenate([getattr(p, n) for _, p in known]) for n in ("forecast", "base", "difficulty",
                                                                                 "successes", "rollouts")}  # fmt: skip
        problems = np.concatenate([p.problem + 1_000_000 * s for s, p in known])
        given = stack["successes"], stack["rollouts"], problems
        for reference in ("base", "difficulty"):
            found = scores.skill(stack["forecast"], stack[reference], *given)
            print(f"{cell}: Brier {found.brier:.4f}, skill over {reference} {found.skill:.1%} "
                  f"({found.interval[0]:.1%} to {found.interval[1]:.1%})")  # fmt: skip
        told = scores.calibration(stack["forecast"], *given)
        print(f"{cell}: slope of log odds {told.slope:.3f} {told.slope_interval}, intercept {told.intercept:.3f}")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--hours", type=float, default=math.inf, help="start no run after so many hours")
    parser.add_argument("--part", default="1/1", help="K/N: the Kth of N parts of the runs")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    if given.report:
        return report(given.out)
    if given.smoke:
        keys = [Key("finite", cell, 4e-4, 0) for cell in ("fixed-8", "two-stage", "optimal")]
        seconds = np.mean([train(key, given.out, steps=6) for key in keys])
        total = len(TASKS) * len(CELLS) * (len(RATES) * len(TUNING) + len(SEEDS))
        print(
            f"{seconds:.0f} s for 6 steps: at most {total * seconds / 6 * STEPS / 3600:.0f} CPU hours for {total} runs"
        )
        return None
    began, (part, parts) = time.perf_counter(), map(int, given.part.split("/"))
    while True:
        todo = [k for k in plan(given.out) if zlib.crc32(repr(k).encode()) % parts == part - 1]
        todo = [k for k in todo if not (k.folder(given.out) / "difficulty.json").exists()]
        if not todo or time.perf_counter() - began > 3600 * given.hours:
            break
        train(todo[0], given.out)
    return report(given.out)


if __name__ == "__main__":
    main()
