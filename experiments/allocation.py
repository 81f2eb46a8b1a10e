"""Experiment: does allocating rollouts by success rates save tokens against the best fixed group size?

`tiny` on arithmetic, recipe rloo, a budget of 128 rollouts a batch, AdamW at a constant learning rate after 20
steps of warm-up, temperature 1. Two tasks: `fresh`, 20,000 training problems of which hardly one is seen twice, and
`finite`, 200 problems that are seen again and again. Held-out pass@1 of 200 problems × 2 completions every 10
steps. The cost is counted in generated tokens, those of rollouts that were not trained on included.

    fixed-4, fixed-8, fixed-16    uniform draws, G = 4, 8, 16
    optimal                       q and G by forecast, weights 1/q
    filter, resample              problems forecast to be dead skipped; dead groups replaced (DAPO)
    two-stage                     two rollouts for many, the rest where they differ
    pooled, one, unweighted       exploratory and on request: the screening trained on, one G for all, no weights

Every run goes on to BUDGET tokens, and further, up to MOST, until its smoothed curve has crossed 0.8. Areas, accuracy
by difficulty and the models that are kept are those at BUDGET, the same for all cells.

Tuning, on seed 100: the learning rate of fixed-4, fixed-8 and optimal, 2e-4 or 4e-4, by the area under the held-out
curve up to TUNED_TO tokens. (Three runs came before: at 8e-4 fixed-4 and optimal fell to 0.1 within 40 steps and were
stopped, at 4e-4 fixed-4 came to 0.77 by 320,000 tokens, which set BUDGET.) Fixed-16 has the rate of fixed-8. Filter,
resample and two-stage have the rate and the G of the fixed cell that is best there: what differs is which groups a
batch holds. Seeds 0 … 7 are the result, paired. Runs go seed by seed, first fixed-4 and optimal, then fixed-8, filter,
fixed-16, two-stage and resample, so that whenever they end the cells of a part have the same seeds. Then `finite`, with
fixed-4, fixed-8, optimal and filter, at the rates of `fresh`; the other three were added when these were there.
Fixed-16 is not extended beyond BUDGET.

The rule, written before the first run. Tokens to 0.8: the first crossing of 0.8 by the held-out curve, smoothed
over three evaluations, linear in between. The best fixed G is the one with the fewest (geometric mean over the
result's seeds): chosen after the fact, which favours it. The saving of a cell is 1 − exp(mean over seeds of the log of
the ratio of its tokens to those of the best fixed G), with a t interval over the pairs. For `optimal`, and for each of
the others with the interval's level corrected for their number (Bonferroni), on each task

    saves         the saving is ≥ 20 %, its 95 % interval is above 0, and all 8 pairs are there
    saves little  the upper end of its 95 % interval is below 10 %, and all 8 pairs are there
    cannot tell   otherwise, and where a run of the two cells does not reach 0.8 within MOST

With fewer than 8 pairs the figures are "seen". Beside it: area under the curve, live groups per 1,000 generated
tokens, the saving that the allocator predicted (mean of `allocation/saving_predicted` until 0.8) against the measured
one, held-out accuracy by the task's difficulty, what a fixed G leaves on the table, and the forecast's Brier skill and
calibration. The forecast counts as useful if the interval of its skill is above 0 over the base rate and over
difficulty alone. All other cells and comparisons are exploratory.

An earlier form of this file, with batches of 256 and ten cells tuned at three rates each, was never run; its
computing time was not to be had.

    python experiments/allocation.py --out FOLDER --hours 2          until two hours have passed; again goes on
    python experiments/allocation.py --out FOLDER --smoke            three runs of 6 steps
    python experiments/allocation.py --out FOLDER --report           the tables of what is there

Several processes may work on one folder: each takes the next run that no other has taken. The optimal draw and two
stages were options of `train` when the result was made, and are in `allocators/` now; a folder from then can be
reported, and runs that it has not finished begin anew.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from allocators import drawing, forecasts, scores
from scipy import stats

from grposcope.core.files import write_json
from grposcope.lab import policies, tasks
from grposcope.lab.sampling.rollouts import DrawSettings, draw, generator
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.train import loop
from grposcope.lab.train.allocate import NewBatchSource, RolloutAllocation
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.result import TrainResult
from grposcope.logs import read

TASKS = {"fresh": "arithmetic:size=20000", "finite": "arithmetic:size=200"}
CELLS: dict[str, tuple[NewBatchSource, int | None]] = {
    "fixed-4": (drawing.Forecasting, 4),
    "fixed-8": (drawing.Forecasting, 8),
    "fixed-16": (drawing.Forecasting, 16),
    "optimal": (drawing.optimal(), 8),
    "filter": (drawing.Filtering, None),
    "two-stage": (drawing.two_stages(), None),
    "resample": (RolloutAllocation, None),
    "pooled": (drawing.two_stages(pooled=True), None),
    "one": (drawing.optimal(sizes="one"), 8),
    "unweighted": (drawing.optimal(weighted=False), 8),
}
"""Name -> what draws its batches and G, None for that of the best fixed cell."""

FIXED, TUNED = ("fixed-4", "fixed-8", "fixed-16"), ("fixed-4", "fixed-8", "optimal")
FIRST, SECOND = ("fixed-4", "optimal"), ("fixed-8", "filter", "fixed-16", "two-stage", "resample")
ON_FINITE = ("fixed-4", "fixed-8", "optimal", "filter", "resample", "fixed-16", "two-stage")
RATES, TUNING_SEED, SEEDS, ROLLOUTS, GOAL = (2e-4, 4e-4), 100, tuple(range(8)), 128, 0.8
TUNED_TO, BUDGET, MOST, EVERY = 190_000, 320_000, 800_000, 10
"""Tokens of a tuning run, of a run, and of one that has not crossed GOAL; steps between evaluations."""

SETTINGS = TrainConfig(
    model="tiny", recipe="rloo", schedule="constant", warmup=20, eval_every=EVERY, eval_problems=200, eval_samples=2,
    checkpoint_every=100_000, keep_checkpoints=1, rollouts_every=0, threads=1,
)  # fmt: skip


@dataclass(frozen=True)
class Key:
    """One run: task, cell, group size, learning rate and seed."""

    task: str
    cell: str
    group: int
    rate: float
    seed: int

    def folder(self, out: Path) -> Path:
        """Where its record is."""
        return out / self.task / f"{self.cell}-{self.rate:g}" / str(self.seed)

    def beside(self, out: Path, ending: str) -> Path:
        """A file beside the record; the name of its folder ends with a rate, whose point begins no suffix."""
        return self.folder(out).parent / f"{self.seed}.{ending}"

    @property
    def tokens(self) -> int:
        """Tokens that the run generates at least."""
        return TUNED_TO if self.seed == TUNING_SEED else BUDGET


def train(key: Key, out: Path) -> None:
    """One run to its end. One that was stopped goes on from where it was last extended."""
    folder, draws = key.folder(out), CELLS[key.cell][0]
    if not (folder / "summary.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _unless_ended(loop.train(replace(config_of(key, out), steps=2 * EVERY), draws))
    while (spent := generated(folder))[-1] < key.tokens:
        more = math.ceil((key.tokens - spent[-1]) / (spent[-1] / (len(spent) - 1)) / EVERY) * EVERY
        _unless_ended(loop.resume(folder, {"steps": len(spent) - 1 + more}, draws))
    kept = folder / "at_budget"
    if not kept.exists():
        (folder / "at_budget.new").mkdir(exist_ok=True)
        shutil.copytree(folder / "model", folder / "at_budget.new", dirs_exist_ok=True)
        found = {"difficulty": by_difficulty(folder, key.task, key.seed), "model_tokens": int(spent[-1])}
        write_json(folder / "at_budget.new" / "difficulty.json", found)
        (folder / "at_budget.new").rename(kept)
    if key.seed != TUNING_SEED and key.cell != "fixed-16":
        while generated(folder)[-1] < MOST and not crossing(folder)[1]:
            _unless_ended(loop.resume(folder, {"steps": len(generated(folder)) - 1 + 3 * EVERY}, draws))
    difficulty = json.loads((kept / "difficulty.json").read_text())
    for other in ("model", "checkpoints"):
        shutil.rmtree(folder / other, ignore_errors=True)
    kept.rename(folder / "model")  # that at the budget
    write_json(key.beside(out, "json"), {**measured(folder), **difficulty})


def _unless_ended(done: TrainResult) -> None:
    """Leave where a signal ended the run early; it can be gone on with."""
    if done.interrupted or done.terminated:
        raise SystemExit(f"{done.folder} was ended by a signal; start again to go on")


def config_of(key: Key, out: Path) -> TrainConfig:
    """The settings of a run, but for its length."""
    return replace(
        SETTINGS, task=TASKS[key.task], allocate="resample" if key.cell == "resample" else "uniform", group=key.group,
        prompts=ROLLOUTS // key.group, lr=key.rate, seed=key.seed, out=str(key.folder(out)),
    )  # fmt: skip


def generated(folder: Path) -> np.ndarray:
    """Generated tokens after 0, 1, … steps."""
    return np.concatenate([[0.0], np.cumsum(read(folder).table["allocation/tokens"])])


def crossing(folder: Path) -> tuple[float, bool]:
    """Tokens to GOAL by the smoothed curve and True; all tokens and False where it is not reached."""
    curve, spent = read(folder).evaluations.of("pass@1"), generated(folder)
    at = spent[curve.step.astype(int)]
    smooth = np.convolve(curve.value, np.ones(3) / 3, "valid")  # of the evaluations 1 … n − 2
    above = np.flatnonzero(smooth >= GOAL)
    if not len(above) or above[0] == 0:
        return float(spent[-1]), False
    i = above[0]
    return float(np.interp(GOAL, smooth[i - 1 : i + 1], at[i : i + 2])), True


def by_difficulty(folder: Path, task_name: str, seed: int) -> dict[str, list[float]]:
    """Held-out accuracy of the final model by the task's difficulty, and how many of 400 problems have it."""
    task, policy = tasks.load(TASKS[task_name], None), policies.load(str(folder / "model"), torch.float32, "cpu")
    problems = list(task.problems("heldout"))[:400]
    settings = DrawSettings(Sampling(task.max_tokens))
    rewards = draw(policy, task, problems, 2, settings, generator(seed, "difficulty")).rollouts.rewards.mean(1).tolist()
    found: dict[str, list[float]] = {}
    for problem, reward in zip(problems, rewards, strict=True):
        found.setdefault(f"{task.difficulty(problem):g}", []).append(reward)
    return {level: [float(np.mean(values)), float(len(values))] for level, values in sorted(found.items())}


def result(key: Key, out: Path) -> dict | None:
    """What a finished run measured; None while it is not finished."""
    path = key.beside(out, "json")
    if not path.exists():
        return None
    return {name: float(v) if isinstance(v, str) else v for name, v in json.loads(path.read_text()).items()}


def tuning(cell: str, rate: float) -> Key:
    """A tuning run, on `fresh`."""
    return Key("fresh", cell, CELLS[cell][1] or 0, rate, TUNING_SEED)


def tuned(out: Path) -> dict[str, float] | None:
    """The learning rate of each cell by the tuning runs, and "G", that of the best fixed one; None while some miss."""
    areas: dict[str, dict[float, float]] = {}
    for cell in TUNED:
        for rate in RATES:
            found = result(tuning(cell, rate), out)
            if found is None:
                return None
            areas.setdefault(cell, {})[rate] = found["area"]
    best = max((cell for cell in FIXED if cell in areas), key=lambda cell: max(areas[cell].values()))
    rates: dict[str, float] = {cell: max(of, key=of.__getitem__) for cell, of in areas.items()}
    shared = {"fixed-16": "fixed-8", "one": "optimal", "unweighted": "optimal"}
    return {cell: rates[cell if cell in rates else shared.get(cell, best)] for cell in CELLS} | {
        "G": float(CELLS[best][1] or 0)
    }


def keys_of(out: Path, task: str, cells: tuple[str, ...], rates: dict[str, float]) -> list[Key]:
    """The runs of cells, seed by seed."""
    return [Key(task, c, CELLS[c][1] or int(rates["G"]), rates[c], s) for s in SEEDS for c in cells]


def plan(out: Path, extra: tuple[str, ...]) -> Iterator[Key]:
    """The runs to do, in order: those that tune, then, once these are there, the result."""
    yield from (tuning(cell, rate) for rate in RATES for cell in TUNED)
    if (rates := tuned(out)) is not None:
        for cells in (FIRST, SECOND):
            yield from keys_of(out, "fresh", cells, rates)
        yield from keys_of(out, "finite", ON_FINITE, rates)
        yield from keys_of(out, "fresh", extra, rates)


def taken(key: Key, out: Path) -> bool:
    """Whether a living process works on the run; else this one takes it."""
    path = key.beside(out, "taken")
    path.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(2):
        try:
            with path.open("x") as file:
                file.write(str(os.getpid()))
            return False
        except FileExistsError:
            try:
                os.kill(int(path.read_text() or 0), 0)
            except (ProcessLookupError, ValueError):
                path.unlink(missing_ok=True)
            else:
                return True
    return True


def measured(folder: Path) -> dict[str, float]:
    """Tokens to GOAL (all of them where it is not reached), area under the curve, live groups, predicted saving."""
    run, spent = read(folder), generated(folder)[1:]
    table, curve = run.table, run.evaluations.of("pass@1")
    tokens, reached = crossing(folder)
    until = spent <= tokens
    live = (table["allocation/live"] * table["allocation/groups"])[until].sum() / spent[until].max()
    saving = table.get("allocation/saving_predicted")
    at = np.concatenate([[0.0], spent])[curve.step.astype(int)]
    step_seconds = table["seconds_sample"] + table["seconds_grade"] + table["seconds_update"]
    return {
        "tokens": tokens,
        "reached": float(reached),
        "area": area(at, curve.value, TUNED_TO),
        "area_budget": area(at, curve.value, BUDGET),
        "final": float(np.interp(BUDGET, at, curve.value)),
        "live": float(1000 * live),
        "predicted": math.nan if saving is None else float(np.nanmean(saving[until])),
        "overhead": float(np.sum(table["allocation/seconds"]) / np.sum(step_seconds)),
        "seconds": float(np.sum(step_seconds)),
    }


def area(tokens: np.ndarray, accuracy: np.ndarray, budget: float) -> float:
    """Mean held-out accuracy over the first `budget` tokens, linear between evaluations."""
    grid = np.linspace(0, budget, 801)
    return float(np.trapezoid(np.interp(grid, tokens, accuracy), grid) / budget)


def saving(ours: list[float], theirs: list[float], comparisons: int = 1) -> tuple[float, float, float]:
    """1 − exp(mean log ratio) with its t interval over pairs, 95 % for that many comparisons together."""
    logs = np.log(ours) - np.log(theirs)
    half = stats.t.ppf(1 - 0.025 / comparisons, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    low, high = 1 - math.exp(logs.mean() + half), 1 - math.exp(logs.mean() - half)
    return 1 - math.exp(logs.mean()), low, high


def verdict(point: float, low: float, high: float, pairs: int, reached: bool) -> str:
    """The rule of this file."""
    if not reached:
        return "cannot tell: a run does not reach the goal"
    if pairs < len(SEEDS):
        return f"seen in {pairs} pairs only"
    return "saves" if point >= 0.2 and low > 0 else "saves little" if high < 0.1 else "cannot tell"


def report(out: Path) -> None:
    """Tables of what is there."""
    rates = tuned(out)
    for task in TASKS if rates else ():
        assert rates is not None
        keys = keys_of(out, task, tuple(CELLS), rates)
        done: dict[str, dict[int, dict]] = {}
        for key in keys:
            if (found := result(key, out)) is not None:
                done.setdefault(key.cell, {})[key.seed] = found
        fixed = [cell for cell in FIXED if len(done.get(cell, {})) >= 2]
        if not fixed:
            print(f"\n{task}: too few runs")
            continue
        shared = sorted(set.intersection(*(set(done[cell]) for cell in fixed)))
        best = min(fixed, key=lambda cell: np.mean([_log_tokens(done[cell][s]) for s in shared]))
        print(f"\n## {task}: the best fixed cell is {best}\n")
        _table(done, best, rates)
        _difficulty(done)
        _forecasts(out, keys)


def _log_tokens(run: dict) -> float:
    """Logarithm of the tokens to GOAL, infinite where it was not reached, however early the run was ended."""
    return math.log(run["tokens"]) if run["reached"] else math.inf


def _table(done: dict[str, dict[int, dict]], best: str, rates: dict[str, float]) -> None:
    """A row of each cell, and the verdicts."""
    names = ("cell", "lr", "n", "k tokens", "reached", "saving (95 %)", "predicted", "area", "at the budget",
             "live per 1k", "cost", "verdict")  # fmt: skip
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    others = [cell for cell in done if cell not in (best, "optimal")]
    for cell, runs in done.items():
        both = sorted(runs.keys() & done[best].keys())
        if len(both) < 2:
            continue
        values = {n: np.array([runs[s][n] for s in both], float) for n in runs[both[0]] if n != "difficulty"}
        theirs = [done[best][s] for s in both]
        point, low, high = saving(
            values["tokens"].tolist(), [t["tokens"] for t in theirs], len(others) if cell in others else 1
        )
        reached = bool(values["reached"].all() and all(t["reached"] for t in theirs))
        told = "" if cell == best else verdict(point, low, high, len(both), reached)
        more = values["area_budget"] - np.array([t["area_budget"] for t in theirs])
        shown = "" if cell == best or not reached else f"{point:.1%} ({low:.1%} to {high:.1%})"
        row = (cell, f"{rates[cell]:g}", len(both), _estimate(values["tokens"] / 1e3, 0),
               f"{values['reached'].mean():.0%}", shown, f"{values['predicted'].mean():.1%}",
               f"{values['area_budget'].mean():.3f} ({_estimate(more, 3)})", _estimate(values["final"], 3),
               _estimate(values["live"], 2), f"{values['overhead'].mean():.1%}", told)  # fmt: skip
        print(f"| {' | '.join(map(str, row))} |")


def _estimate(values: np.ndarray, digits: int) -> str:
    return f"{values.mean():.{digits}f} ± {stats.sem(values):.{digits}f}"


def _difficulty(done: dict[str, dict[int, dict]]) -> None:
    """Held-out accuracy by difficulty at the budget, mean over the seeds of each cell."""
    print("\nheld-out accuracy at the budget by the task's difficulty")
    for cell, runs in done.items():
        found = [run["difficulty"] for run in runs.values()]
        levels = sorted({level for one in found for level in one}, key=float)
        values = {level: np.array([one[level][0] for one in found if level in one]) for level in levels}
        shown = (f"{level}: {_estimate(v, 3)}" for level, v in values.items() if len(v) > 1)
        print(f"  {cell:12} {'  '.join(shown)}")


def _forecasts(out: Path, keys: list[Key]) -> None:
    """Skill and calibration of the forecasts, seeds together; problems of two seeds count as different ones."""
    for cell in (*FIXED, "optimal", "filter"):
        own = [key for key in keys if key.cell == cell and result(key, out) is not None]
        parts = [part for key in own if (part := forecasts.of_run(key.folder(out))) is not None]
        if not parts:
            continue
        names = ("forecast", "base", "difficulty", "successes", "rollouts")
        stack = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        problems = np.concatenate([part.problem + 1_000_000 * i for i, part in enumerate(parts)])
        given = stack["successes"], stack["rollouts"], problems
        for reference in ("base", "difficulty"):
            found = scores.skill(stack["forecast"], stack[reference], *given)
            each = [scores.skill(p.forecast, getattr(p, reference), p.successes, p.rollouts, p.problem).skill
                    for p in parts]  # fmt: skip
            print(f"{cell}: Brier {found.brier:.4f}, skill over {reference} {found.skill:.1%} "
                  f"({found.interval[0]:.1%} to {found.interval[1]:.1%}); "
                  f"by seed {min(each):.1%} to {max(each):.1%}")  # fmt: skip
        told = scores.calibration(stack["forecast"], *given)
        print(f"{cell}: slope of log odds {told.slope:.3f} {told.slope_interval}, intercept {told.intercept:.3f}")
        print("   " + "  ".join(f"{b.forecast:.2f}: {b.observed.value:.3f}" for b in told.bins))


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--hours", type=float, default=math.inf, help="start no run after so many hours")
    parser.add_argument("--extra", nargs="*", default=[], choices=CELLS, help="exploratory cells to run on fresh, last")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    if given.report:
        return report(given.out)
    if given.smoke:
        for cell, group in (("fixed-8", 8), ("two-stage", 4), ("optimal", 8)):
            key = Key("finite", cell, group, 4e-4, 0)
            shutil.rmtree(key.folder(given.out), ignore_errors=True)
            loop.train(replace(config_of(key, given.out), steps=6), CELLS[cell][0])
            print(f"{cell}: {generated(key.folder(given.out))[-1]:g} tokens")
        return None
    began, going = time.perf_counter(), True
    while going and time.perf_counter() - began < 3600 * given.hours:
        going = False
        for key in plan(given.out, tuple(given.extra)):
            if result(key, given.out) is None and not taken(key, given.out):
                started, going = time.perf_counter(), True
                train(key, given.out)
                key.beside(given.out, "taken").unlink(missing_ok=True)
                print(f"{time.strftime('%H:%M:%S')} {key}: {time.perf_counter() - started:.0f} s", flush=True)
                break
    return report(given.out)


if __name__ == "__main__":
    main()
