"""Do two further actions of an autopilot pay: other draws where most groups are dead, and a rate or an interval that is
cut before a collapse, by the measured stability? Trainings of `tiny`; experiments/autopilot.md has rules and results.

python experiments/autopilot_actions.py base --out FOLDER               the model that some cells begin with, 80 steps
python experiments/autopilot_actions.py run --model FOLDER --out FILE   all questions, seed by seed
python experiments/autopilot_actions.py report FILE                     the tables

A file has a line for each run; what is there is not run again. All runs of a cell end with the batch with which they
have drawn its budget of tokens, or where the autopilot stops them; the weights that they end with answer held-out
problems. This script carries the actions out itself; the package has one, as `--allocate resample:above=0.5`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from scipy import stats

from grposcope.core.estimate import Estimate
from grposcope.core.finding import Finding
from grposcope.instruments.autopilot import events
from grposcope.instruments.autopilot.pilot import Decision
from grposcope.instruments.dynamics import stability
from grposcope.lab.objectives import ratios, recipes
from grposcope.lab.policies.load import load
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.evaluate import evaluate
from grposcope.lab.sampling.rollouts import Batch, drawn_indices
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks import Problem
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.train import autopilot, loop, run_curvature
from grposcope.lab.train.allocate import Allocated, RolloutAllocation
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.setup import Setup

NO_RATIO = "rloo_no_ratio"
"""Leave-one-out advantages without importance ratio, the recipe that the closed forms are exact for."""

BASE: dict[str, Any] = {
    "steps": 4000, "prompts": 16, "group": 8, "warmup": 5, "schedule": "constant", "lr": 4e-4, "eval_every": 0,
    "eval_problems": 0, "checkpoint_every": 0, "rollouts_every": 0, "threads": 1,
}  # fmt: skip

LATEST, MOST_DEAD = 6, 0.5
"""Batches whose mean share of dead groups is looked at, and the share above which the draws change."""

MEASURED, LANCZOS = 4, 6
"""Batch with which the stability is measured, by it and those before it, and the products with the Fisher matrix that
find the stiffest direction."""

RULES = ("excluded", "likely")
"""When the rate or the interval is cut: where the 95 % interval of κ excludes safety, or where its value does."""


@dataclass(frozen=True)
class Cell:
    """A setting. settings: of the run. tokens: drawn by every run. other: options of the task that `share` of the
    problems come from, in training and held out. trained: whether it begins with the model of `base`.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    tokens: int = 100_000
    other: Mapping[str, Any] = field(default_factory=dict)
    share: float = 0.0
    trained: bool = False


CELLS = {
    "dead": {
        "mostly too hard": Cell({}, 45_000, other={"largest": 40}, share=0.75),
        "mostly too easy": Cell({"prompts": 32, "group": 4}, 45_000, {"largest": 3}, share=0.85, trained=True),
        "sound, G = 2": Cell({"prompts": 64, "group": 2}, 30_000),
    },
    "stability": {
        "rate x8": Cell({"recipe": "rloo", "lr": 3.2e-3}, 40_000),
        "interval x8": Cell({"recipe": NO_RATIO, "interval": 8, "lr": 2e-4}, 16_000),
        "sound": Cell({"recipe": "rloo"}, 16_000),
    },
    "longer": {"mostly too hard, longer": Cell({}, 90_000, other={"largest": 40}, share=0.75)},
}
ARMS = {"dead": ("alone", "resample", "filter"), "stability": ("act", *RULES), "longer": ("alone", "resample")}
SEEDS = {"dead": tuple(range(60, 68)), "stability": tuple(range(70, 78)), "longer": tuple(range(80, 88))}
"""Cells, arms (the one compared with first) and seeds; settings were chosen on seed 900."""


def problems(cell: Cell, split: str) -> list[Problem]:
    """The problems of a cell: those of two tasks, `share` of them from the second, in a random order."""
    plain = list(Arithmetic().problems(split))  # type: ignore[arg-type]
    if not cell.share:
        return plain
    others = list(Arithmetic(**cell.other).problems(split))  # type: ignore[arg-type]
    count = min(len(others), round(len(plain) * cell.share))
    mixed = plain[: round(count * (1 - cell.share) / cell.share)] + others[:count]
    return [mixed[i] for i in np.random.default_rng(7).permutation(len(mixed))]


class Budgeted(RolloutAllocation):
    """Draws until the budget of tokens is spent; where most groups are dead, from then on as `arm` says.

    switched: first step drawn otherwise, 0 for none.
    """

    cell, arm = Cell(), "alone"
    spent, switched = 0, 0

    def __init__(self, setup: Setup, state: Mapping[str, Any] | None = None):
        super().__init__(replace(setup, train_set=problems(self.cell, "train")), None)
        self.dead: deque[float] = deque(maxlen=LATEST)
        self.batches = 0
        inner = self.setup
        if self.arm == "resample":
            inner = replace(inner, objective=replace(inner.objective, resample_dead=True))
        elif self.arm == "filter":
            inner = replace(inner, config=replace(inner.config, allocate="filter"))
        self.other = RolloutAllocation(inner)

    def draw(self, position: int) -> Allocated:
        """The batch that begins at `position` of the data; KeyboardInterrupt where the budget is spent."""
        kind = type(self)
        if kind.spent >= self.cell.tokens:
            raise KeyboardInterrupt
        self.batches += 1
        most = len(self.dead) == LATEST and float(np.mean(self.dead)) > MOST_DEAD
        if most and not kind.switched and self.arm in ("resample", "filter"):
            kind.switched = self.batches
        drawn = (self.other if kind.switched else super()).draw(position)
        self.dead.append(drawn.batch.dead)
        kind.spent += drawn.batch.tokens
        if self.other.forecaster is not None and not kind.switched:
            which = drawn_indices(len(self.setup.train_set), self.config.seed, position, self.config.prompts)
            self.other.forecaster.learn_groups(np.array(which), drawn.batch.graded.numpy(force=True))
        return Allocated(drawn.batch, {})


# The stability: measured where a batch begins, on rollouts that the run has drawn anyway


def effective_step(setup: Setup, lr: float) -> float:
    """The step η of the theory at this learning rate, with √v̂ of the moments that Adam keeps; NaN without any."""
    moments = [entry for entry in setup.optimizer.state.values() if "exp_avg_sq" in entry]
    if not moments:
        return math.nan
    passed = float(moments[0]["step"])
    total = sum(float(entry["exp_avg_sq"].sum()) for entry in moments)
    count = sum(entry["exp_avg_sq"].numel() for entry in moments)
    mean = total / count / (1 - setup.config.beta2**passed)
    return stability.effective_step("adamw", lr, setup.config.momentum, math.sqrt(mean))


def curvature(setup: Setup, batches: Sequence[RolloutBatch]) -> tuple[Estimate, Estimate]:
    """κ along the stiffest direction: all of it, and the part that waits for a refresh, from the latest batches.

    The last but one finds the direction, the others measure along it.
    """
    model = setup.policy.model
    product = run_curvature._fisher_product(model, batches[-2])
    start = torch.randn(setup.policy.parameters, generator=torch.Generator().manual_seed(0))
    (top,) = run_curvature._largest_eigenpairs(product, start, LANCZOS)
    logprobs = run_curvature._model_logprobs(model, 1.0, setup.micro_batch)
    own = []
    for rollouts in (*batches[:-2], batches[-1]):
        along = run_curvature._directional_logprobs(model, rollouts, top.vector, logprobs)
        weigh = run_curvature._objective_weights(setup, rollouts)
        own.append(run_curvature._directional_curvature(along, rollouts, weigh))
    return pooled([one.curvature for one in own]), pooled([one.stale for one in own])


def pooled(values: Sequence[Estimate]) -> Estimate:
    """The mean of estimates of batches of one size."""
    error = math.sqrt(sum(one.se**2 for one in values)) / len(values)
    return Estimate(float(np.mean([one.value for one in values])), error, sum(one.n for one in values))


def cut(check: stability.Stability, interval: int, factor: float, when: str) -> dict[str, Any]:
    """The change that a measured stability asks for by one of the RULES, as fields of a decision; empty for none."""
    rule = check.rule
    if check.margin is None or not (check.between[1] if when == "excluded" else check.margin.threshold) < interval:
        return {}
    if interval > 1:
        shorter = [n for n in range(1, interval) if interval % n == 0 and n <= stability.NEAR * check.margin.threshold]
        return {"setting": "interval", "interval": max(shorter, default=1), "factor": factor}
    highest = 2 * (1 + rule.momentum) / (rule.step * rule.curvature.value)  # as a factor on η
    return {"setting": "rate", "interval": 1, "factor": max(factor * stability.NEAR * highest, 0.01)}


@contextlib.contextmanager
def watched(when: str, told: list[dict[str, Any]]) -> Iterator[None]:
    """Inside the block an autopilot that acts also measures the stability, and cuts by one of the RULES.

    told: gets a row for each measurement, with what each of the rules would have changed.
    """
    kind = autopilot._RunAutopilot
    take, decide = kind.batch, kind.decide

    def taken(self: Any, step: int, batch: Batch) -> None:
        take(self, step, batch)
        recent = self.__dict__.setdefault("recent", deque(maxlen=MEASURED))
        recent.append(batch.rollouts)
        self.seen = getattr(self, "seen", 0) + 1
        self.change: dict[str, Any] = {}
        if self.seen != MEASURED:
            return
        setup, config = self.steered(), self.setup.config
        lr = loop.learning_rate(step - 1, setup.lr, config.schedule, config.warmup, config.steps) * self.factor
        every, stale = curvature(setup, list(recent))
        own = every if self.interval == 1 else stale
        eta = effective_step(setup, lr)
        known = own.value > 0 and own.se > 0 and math.isfinite(eta)
        rule = stability.UpdateRule(lr, config.momentum, self.interval, "adamw", step=eta, source="measured")
        check = stability.check(replace(rule, curvature=own) if known else rule)
        changes = {rule: cut(check, self.interval, self.factor, rule) for rule in RULES}
        self.change = changes[when]
        told.append({"step": step, "curvature": [own.value, own.se], "pull": eta * own.value, "verdict": check.verdict,
                     "longest": None if check.margin is None else [check.margin.threshold, *check.between],
                     "changes": changes})  # fmt: skip

    def decided(self: Any, step: int, evaluate: Any, say: Any) -> Decision | None:
        found = decide(self, step, evaluate, say)
        change, self.change = self.change, {}
        if found is not None or not change:
            return found
        self.interval, self.factor = change["interval"], change["factor"]
        why = Finding("", because="the measured stability excludes safety", seen=step)
        return Decision(step, "change", why, done=True, **change)

    with mock.patch.object(kind, "batch", taken), mock.patch.object(kind, "decide", decided):
        yield


def run(what: str, name: str, seed: int, arm: str, model: str) -> dict[str, Any]:
    """A row: what came of one training."""
    cell = CELLS[what][name]
    folder = Path(tempfile.mkdtemp(prefix="actions-")) / "run"
    given = {**BASE, **cell.settings, "seed": seed, "out": str(folder), "model": model if cell.trained else "tiny"}
    if what == "stability":
        pause = 5 * given.get("interval", 1)
        checks = {"eval_every": pause, "checkpoint_every": pause}
        given |= {"autopilot": "act", "eval_problems": 128, "eval_samples": 1, "keep_checkpoints": 0, **checks}
    source = type("BudgetedHere", (Budgeted,), {"cell": cell, "arm": arm, "spent": 0, "switched": 0})
    told: list[dict[str, Any]] = []
    began = time.process_time()
    try:
        with watched(arm, told) if arm in RULES else contextlib.nullcontext():
            loop.train(TrainConfig(**given), source)
        story = events.read(folder) or events.Story()
        lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
        solved = shares_solved(cell, folder / "model")
    finally:
        shutil.rmtree(folder.parent, ignore_errors=True)
    return {
        "what": what, "cell": name, "seed": seed, "arm": arm, "solved": solved, "steps": len(lines),
        "tokens": source.spent, "dead": float(np.mean([line["dead_fraction"] for line in lines])),
        "switched": source.switched, "measured": told, "cpu": time.process_time() - began,
        "decisions": [{"step": one.step, "action": one.action, "setting": one.setting} for one in story.decisions],
    }  # fmt: skip


def shares_solved(cell: Cell, model: Path) -> list[float]:
    """Share of the held-out problems that the weights in a folder solve: of all of a cell, and of the plain task."""
    task, policy = Arithmetic(), load(str(model))
    sampling = Sampling(task.max_tokens)
    shares = []
    for own in ([], Arithmetic(**cell.other).problems("heldout")) if cell.share else ([],):
        asked = (own or task.problems("heldout"))[: 500 if own else 1000]
        stream = torch.Generator().manual_seed(0)
        shares.append(evaluate(policy, task, asked, 1, sampling, stream)["pass@1"].value)
    mean = shares[0] if len(shares) == 1 else (1 - cell.share) * shares[0] + cell.share * shares[1]
    return [mean, shares[0]]


def kept(path: Path) -> list[dict[str, Any]]:
    """The rows that are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def idle(row: Mapping[str, Any], arm: str) -> bool:
    """Whether the action of its arm was never taken in a run, nor would have been that of another one."""
    rules = {row["arm"], arm} & set(RULES)
    return not row["switched"] and not any(one["changes"][rule] for one in row["measured"] for rule in rules)


def add(path: Path, what: str, seed: int, model: str) -> None:
    """Run what is not there yet; a run in which no action was taken stands for the others, number by number."""
    first, *others = ARMS[what]
    for name in CELLS[what]:
        for arm in (*others, first):
            rows = {row["arm"]: row for row in kept(path) if (row["cell"], row["seed"]) == (name, seed)}
            if arm in rows:
                continue
            same = [row for row in rows.values() if row["arm"] != first and idle(row, arm)]
            row = {**same[0], "arm": arm, "cpu": 0.0} if same else run(what, name, seed, arm, model)
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the ends of its 95 % interval by t."""
    reach = float(stats.t.ppf(0.975, len(values) - 1)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(np.mean(values)), float(np.mean(values)) - reach, float(np.mean(values)) + reach


def report(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The tables of what is there, a row for each cell and action."""
    by = {(row["what"], row["cell"], row["seed"], row["arm"]): row for row in rows}
    for what, cells in CELLS.items():
        first, *others = ARMS[what]
        for name, arm in [(name, arm) for name in cells for arm in others]:
            seeds = [seed for seed in SEEDS[what] if all((what, name, seed, one) in by for one in (first, arm))]
            if len(seeds) < 2:
                continue
            left, own = ([by[what, name, seed, one] for seed in seeds] for one in (first, arm))
            acted = sum(not idle(row, arm) for row in own)
            steps = ", ".join(f"{np.mean([row['steps'] for row in some]):.0f}" for some in (left, own))
            text = (
                f"| {name} | {arm} | {len(seeds)} | {acted} | {np.mean([row['dead'] for row in left]):.2f} | {steps} |"
            )
            for which in (0, 1):
                pairs = [(a["solved"][which], b["solved"][which]) for a, b in zip(left, own, strict=True)]
                mean, low, high = interval([b - a for a, b in pairs])
                levels = ", ".join(f"{level:.3f}" for level in np.mean(pairs, 0))
                text += f" {levels} | {mean:+.3f} ({low:+.3f} to {high:+.3f}) |"
            yield text
    for name in CELLS["stability"]:
        some = [row for row in rows if row["cell"] == name and row["arm"] == RULES[0]]
        told = [one for row in some for one in row["measured"]]
        signs = sum(one["curvature"][0] > 2 * one["curvature"][1] for one in told)
        pulls = ", ".join(f"{one['pull']:.2g}" for one in told)
        asked = [sum(bool(one["changes"][rule]) for one in told) for rule in RULES]
        yield f"{name}: pull {pulls}; above 0 in {signs} of {len(told)}; cuts {asked}"
    yield f"{sum(row['cpu'] for row in rows) / 60:.1f} minutes of CPU time"


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("base", "run", "report"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--model", default="")
    given = parser.parse_args()
    recipes.ALL[NO_RATIO] = replace(recipes.RLOO, name=NO_RATIO, ratio=ratios.none)
    if given.what == "report":
        print("\n".join(report([row for path in given.files for row in kept(path)])))
    elif given.what == "base":
        settings = {"steps": 80, "seed": 999, "checkpoint_every": 0, "rollouts_every": 0, "eval_every": 80}
        loop.train(TrainConfig(**settings, threads=1, out=str(given.out)))
    else:
        for seeds in zip(*SEEDS.values(), strict=True):
            for what, seed in zip(SEEDS, seeds, strict=True):
                add(given.out, what, seed, given.model)


if __name__ == "__main__":
    main()
