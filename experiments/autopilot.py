"""Does an autopilot save runs, and does it leave sound ones alone? Trainings of `tiny`, with rules written beforehand.

python experiments/autopilot.py base --out FOLDER                 the model that the faults begin with, 80 steps
python experiments/autopilot.py faults --model FOLDER --out FILE  a fault from a step on, paired seeds
python experiments/autopilot.py nulls --model FOLDER --out FILE   sound trainings of many settings
python experiments/autopilot.py settings --out FILE               bad settings from the start
python experiments/autopilot.py more --model FOLDER --out FILE    further faults
python experiments/autopilot.py raise --model FOLDER --out FILE   whether a rate that was cut is raised again
python experiments/autopilot.py begins --model FOLDER --out FILE  a rate x 30 from five different steps on
python experiments/autopilot.py begun --out FILE                  a rate that is bad from the start, changes of two
python experiments/autopilot.py again --out FILE                  the same, a second round
python experiments/autopilot.py smollm2 --out FILE                one fault of SmolLM2, two seeds
python experiments/autopilot.py simulated --out FILE              levels without any training
python experiments/autopilot.py report FILE …                     the tables, with the verdicts
python experiments/autopilot.py page --model FOLDER --out FOLDER  the picture of the page of a run that was saved

A file has a line for each run; what is there is not run again. experiments/autopilot.md has rules, budget and results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy import stats

from grposcope.core.estimate import Estimate
from grposcope.core.files import dumps
from grposcope.instruments.autopilot import events
from grposcope.instruments.autopilot.pilot import Pilot, Situation, decision_document
from grposcope.instruments.autopilot.policy import AutopilotPolicy
from grposcope.lab.policies.load import load
from grposcope.lab.sampling.evaluate import evaluate
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.train import loop
from grposcope.lab.train.allocate import Allocated, RolloutAllocation
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.stale_weights import Staleness
from grposcope.maths.holm import holm

STEPS, BEGINS, EVERY = 100, 41, 10
"""Optimiser steps of a run, the first with the fault, and steps between evaluations and checkpoints."""

LONGER = 240
"""Steps of the runs that show whether a rate is raised again."""

BASE: dict[str, Any] = {
    "steps": STEPS, "prompts": 16, "group": 8, "warmup": 5, "schedule": "constant", "lr": 4e-4, "eval_every": EVERY,
    "eval_problems": 128, "eval_samples": 1, "checkpoint_every": EVERY, "keep_checkpoints": 0, "rollouts_every": 0,
    "threads": 1,
}  # fmt: skip

SEEDS = tuple(range(10, 18))
"""Seeds of the comparisons; faults and defaults were chosen on seed 900."""


BEGUN = (13, 25, 37, 61, 85)
"""First steps with the rate x 30 of experiment 6, each just after an evaluation."""

RESCUED = tuple(range(30, 38))
"""Seeds of experiment 6."""

FROM_THE_START = {"begun": tuple(range(40, 48)), "again": tuple(range(50, 58))}
"""Seeds of experiment 7, of its two rounds."""

LATER = tuple(range(20, 28))
"""Seeds of experiment 5, of which no run had been looked at when its code was final."""


# Faults: what is done to a batch, or to the settings, from step BEGINS on


@dataclass(frozen=True)
class Fault:
    """batch: changes the rewards (P, G) of a batch, given the batch and the step. lr: factor on the learning rate.
    first, last: the steps with it. curable: whether a setting or a rollback can cure it. lag: of a sampler in steps,
    given the step. entropy: added to the weight of the entropy bonus. hard: whether only the hardest tenth of the
    problems is drawn. settings: what the run needs to have it.
    """

    batch: Callable[[Any, int], Any] | None = None
    lr: float = 1.0
    first: int = BEGINS
    last: int = STEPS
    curable: bool = False
    lag: Callable[[int], int] | None = None
    entropy: float = 0.0
    hard: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


def regraded(batch: Any, rewards: torch.Tensor) -> Any:
    """The batch with these rewards (P, G)."""
    rollouts = replace(batch.rollouts, rewards=rewards.to(batch.rollouts.rewards).reshape(batch.rollouts.rewards.shape))
    return replace(batch, rollouts=rollouts, graded=rewards.to(batch.graded))


def inverted(batch: Any, step: int) -> Any:
    """A reward function that calls right what is wrong."""
    return regraded(batch, 1 - batch.graded)


def gamed(batch: Any, step: int) -> Any:
    """A component that pays for length, three times what a right answer pays, beside it."""
    lengths = batch.rollouts.lengths.reshape(batch.graded.shape).to(batch.graded)
    return regraded(batch, batch.graded / 4 + 0.75 * (lengths / 24).clamp(max=1))


def random_rewards(batch: Any, step: int) -> Any:
    """A reward function whose answers have nothing to do with the completions."""
    stream = torch.Generator().manual_seed(step)
    return regraded(batch, torch.rand(batch.graded.shape, generator=stream).round())


FAULTS = {
    "rate x30": Fault(lr=30.0, curable=True),
    "rate x100, 5 steps": Fault(lr=100.0, last=BEGINS + 4, curable=True),
    "reward inverted": Fault(batch=inverted),
    "reward random": Fault(batch=random_rewards),
    "length pays": Fault(batch=gamed),
}


MORE = {
    "staleness grows": Fault(lag=lambda step: min(step - BEGINS + 1, 32), settings={"staleness": "0-32"}),
    "sampler frozen": Fault(lag=lambda step: step - BEGINS + 1, settings={"staleness": "0-64"}),
    "entropy bonus -0.1": Fault(entropy=-0.1, curable=True),
    "problems hard": Fault(hard=True),
    "3 batches inverted": Fault(batch=inverted, last=BEGINS + 2, curable=True),
}
"""Faults of the second round."""

LONG = {
    "rate x30": Fault(lr=30.0, last=LONGER, curable=True),
    "rate x100, 5 steps": Fault(lr=100.0, last=BEGINS + 4, curable=True),
}
"""Faults of the runs with LONGER steps."""

RESCUES = {f"rate x30 from {first}": Fault(lr=30.0, first=first, last=LONGER) for first in BEGUN}
"""The faults of experiment 6."""

PRETRAINED = {"smollm2: rate x30": Fault(lr=30.0, first=17)}
"""The fault of experiment 4."""

CORRECTED = "staleness grows, corrected"
"""The fault with a correction from the start, which is the best setting in hindsight."""

EVERY_FAULT = {
    **FAULTS,
    **MORE,
    CORRECTED: MORE["staleness grows"],
    **{f"long: {name}": fault for name, fault in LONG.items()},
    **PRETRAINED,
    **RESCUES,
}


class Faulty(RolloutAllocation):
    """Batches of a run to which a fault is done from a step on. A batch is one step, so that positions tell it."""

    fault = Fault()

    def draw(self, position: int) -> Allocated:
        """The batch that begins at `position` of the data."""
        step = position // self.config.prompts + 1
        on = self.fault.first <= step <= self.fault.last
        if on and self.fault.hard:
            batch = self.setup.collect(self.config.seed, position, self._hard(step))
            return Allocated(replace(batch, position=position + self.config.prompts), {})
        found = super().draw(position)
        return replace(found, batch=self.fault.batch(found.batch, step)) if on and self.fault.batch else found

    def _hard(self, step: int) -> list[Any]:
        """Problems of the hardest tenth, drawn with replacement."""
        task, problems = self.setup.task, self.setup.train_set
        ranks = np.argsort([task.difficulty(one) for one in problems], kind="stable")[-len(problems) // 10 :]
        draw = np.random.default_rng((self.config.seed, step))
        return [problems[i] for i in draw.choice(ranks, self.config.prompts)]


@contextlib.contextmanager
def done(fault: Fault) -> Iterator[type[Faulty]]:
    """Inside the block the fault is done to the run."""
    own, update, lags, now = loop.learning_rate, loop.update, Staleness.lags, [0]

    def on() -> bool:
        return fault.first <= now[0] <= fault.last

    def rate(step: int, *rest: Any) -> float:
        now[0] = step + 1
        return own(step, *rest) * (fault.lr if on() else 1.0)

    def updated(model: Any, optimizer: Any, objective: Any, *rest: Any) -> Any:
        entropy = objective.entropy + (fault.entropy if on() else 0.0)
        return update(model, optimizer, replace(objective, entropy=entropy), *rest)

    def lagging(self: Staleness, count: int, seed: int, position: int) -> list[int]:
        now[0] = position // BASE["prompts"] + 1
        return [fault.lag(now[0]) if on() and fault.lag is not None else 0] * count

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(loop, "learning_rate", rate))
        stack.enter_context(mock.patch.object(loop, "update", updated) if fault.entropy else contextlib.nullcontext())
        stack.enter_context(mock.patch.object(Staleness, "lags", lagging if fault.lag is not None else lags))
        yield type("FaultyHere", (Faulty,), {"fault": fault})


def run(name: str, settings: Mapping[str, Any], seed: int, autopilot: str, place: Path | None = None) -> dict[str, Any]:
    """A row: what came of one training."""
    fault = EVERY_FAULT.get(name, Fault())
    folder = Path(tempfile.mkdtemp(prefix="autopilot-", dir=place)) / "run"
    given = {**BASE, **fault.settings, **settings}
    config = TrainConfig(**{**given, "seed": seed, "autopilot": autopilot.split(",")[0], "out": str(folder)})
    changed = Pilot._changed
    of_one = mock.patch.object(Pilot, "_changed", lambda pilot, now, times=1: changed(pilot, now))
    try:
        with done(fault) as source, of_one if autopilot == BEFORE else contextlib.nullcontext():
            result = loop.train(config, source)
        story = events.read(folder) or events.Story()
        rows = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
        accuracy = {row["step"]: float(row["pass@1"]["value"]) for row in rows}
        tokens = [json.loads(line)["tokens_generated"] for line in (folder / "steps.jsonl").read_text().splitlines()]
        decisions = [json.loads(dumps(decision_document(one))) for one in story.decisions]
        before = [f"checkpoints/step-{fault.first - 1:06d}", "."] if name in RESCUES else []
        solved = [share_solved(folder / which / "model") for which in before]
    finally:
        shutil.rmtree(folder.parent, ignore_errors=True)
    return {
        "cell": name, "settings": dict(settings), "seed": seed, "autopilot": autopilot, "steps": result.steps,
        "accuracy": {str(step): value for step, value in accuracy.items()}, "tokens": sum(tokens),
        "decisions": decisions, "solved": solved,
    }  # fmt: skip


def share_solved(model: Path) -> float:
    """Share of 1,000 held-out problems that the weights in a folder solve."""
    task = Arithmetic()
    sampling, stream = Sampling(task.max_tokens), torch.Generator().manual_seed(0)
    return evaluate(load(str(model)), task, task.problems("heldout")[:1000], 1, sampling, stream)["pass@1"].value


def area(row: Mapping[str, Any], until: int | None = None) -> float:
    """Mean held-out accuracy over the steps of a run, by the evaluations and straight lines between them.

    From a step whose weights were put back on, accuracy is that of the weights that were put back; after a stop it
    stays so. until: the run is stopped there by an oracle, and keeps the accuracy it had.
    """
    total = int(row["settings"].get("steps", STEPS))
    points = {int(step): value for step, value in row["accuracy"].items()}
    jumps: list[tuple[float, float]] = []
    for one in row["decisions"]:
        back = points.get(one["to"])
        if one["done"] and one["action"] in ("stop", "rollback") and back is not None:
            jumps.append((one["step"] + 1e-6, back))
    if until is not None:
        points = {step: value for step, value in points.items() if step <= until}
    both = sorted([*((float(step), value) for step, value in points.items()), *jumps])
    where, values = map(np.array, zip(*both, strict=True))
    return float(np.interp(np.arange(total + 1), where, values).mean())


# Trainings


def kept(path: Path) -> list[dict[str, Any]]:
    """The rows that are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add(path: Path, wanted: Sequence[Wanted]) -> None:
    """Run what is wanted and not there, a row each.

    A run that an autopilot watched and did nothing to is the run left alone, number by number, and stands for it.
    """
    for name, settings, seed, autopilot in wanted:
        rows = [row for row in kept(path) if (row["cell"], row["settings"], row["seed"]) == (name, settings, seed)]
        if any(row["autopilot"] == autopilot for row in rows):
            continue
        same = [row for row in rows if row["autopilot"] == "act" and not row["decisions"]]
        copied = bool(same) and autopilot == "off"
        row = {**same[0], "autopilot": "off"} if copied else run(name, settings, seed, autopilot)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


Wanted = tuple[str, Mapping[str, Any], int, str]
"""Cell, settings, seed, arm of a run."""

RAISING = "act:raise_after=32"
"""Policy of the arm that raises a rate that was cut."""

BEFORE = "act, changes of one"
"""Arm with the autopilot of before experiment 7, in which a change is never as large as two."""


def faults(model: str) -> list[Wanted]:
    """Every cell, arm and seed of experiment 2, seed by seed."""
    return [
        (name, {"model": model}, seed, arm) for seed in SEEDS for name in ("none", *FAULTS) for arm in ("off", "act")
    ]


def more(model: str) -> list[Wanted]:
    """The second round of experiment 2."""
    given = {"model": model}
    found: list[Wanted] = []
    for seed in SEEDS:
        found += [(name, given, seed, "act") for name in MORE]
        found += [(name, given, seed, "off") for name in MORE]
        found += [("none", given, seed, arm) for arm in ("act", "off")]
        found.append((CORRECTED, {**given, "correction": "sequence_cap:2"}, seed, "off"))
    return found


def raised(model: str) -> list[Wanted]:
    """Experiment 5: longer runs, with and without raising a rate that was cut."""
    given = {"model": model, "steps": LONGER, "eval_every": 20, "checkpoint_every": 20}
    arms = (RAISING, "act")
    return [(f"long: {name}", given, seed, arm) for seed in LATER for name in LONG for arm in arms]


def begins(model: str) -> list[Wanted]:
    """Experiment 6: the autopilot where the rate is too high from different steps on."""
    given = {"model": model, "steps": 120, "eval_every": 12, "checkpoint_every": 12}
    return [(name, given, seed, "act") for seed in RESCUED for name in RESCUES]


def pretrained(model: str) -> list[Wanted]:
    """Experiment 4: SmolLM2 on one-step sums."""
    given = {
        "model": "smollm2", "task": "arithmetic:steps=1,limit=20", "max_tokens": 16, "prompts": 4, "steps": 48,
        "lr": None, "eval_every": 8, "eval_problems": 32, "checkpoint_every": 8,
    }  # fmt: skip
    return [(name, given, seed, arm) for seed in SEEDS[:2] for name in PRETRAINED for arm in ("act", "off")]


def nulls(model: str) -> list[Wanted]:
    """200 sound trainings: two models, three recipes, two group sizes, batches, rates and refresh intervals."""
    found: list[Wanted] = []
    draw = np.random.default_rng(7)
    for seed in range(5000, 5200):
        settings = {
            "model": str(draw.choice(["tiny", model])),
            "recipe": str(draw.choice(["grpo", "dr_grpo", "rloo"])),
            "group": int(draw.choice([4, 8])),
            "prompts": int(draw.choice([8, 16])),
            "lr": float(draw.choice([1e-4, 2e-4])),
            "interval": int(draw.choice([1, 2])),
            "steps": 60,
            "eval_problems": 64,
            "checkpoint_every": 0,
        }
        found.append(("none", settings, seed, "advise"))
    return found


BAD = {
    "rate x8": {"lr": 3.2e-3},
    "token limit 8": {"max_tokens": 8},
    "G = 2": {"prompts": 64, "group": 2},
    "G = 64": {"prompts": 2, "group": 64},
    "interval x16": {"interval": 16, "steps": 16 * STEPS, "eval_every": 16 * EVERY, "checkpoint_every": 16 * EVERY},
}
"""Bad settings of experiment 3, from the start; all draw 12,800 rollouts. The autopilot has no action on G."""


def bad_settings(model: str) -> list[Wanted]:
    """From the shipped model: bad settings with the autopilot and left alone, and the settings of experiment 2."""
    found: list[Wanted] = []
    for seed in SEEDS:
        found += [(f"start: {name}", settings, seed, arm) for name, settings in BAD.items() for arm in ("act", "off")]
        found.append(("start: best fixed", {}, seed, "off"))
    return found


# Simulated levels


SIMULATED = ("constant", "rising", "wandering 0.02", "wandering 0.05")
"""Kinds of simulated levels."""


def begun(model: str) -> list[Wanted]:
    """From the shipped model: a rate that is bad from the start, with the autopilot of now and of before."""
    high, twice = {"lr": 8 * BASE["lr"]}, {"lr": 2 * BASE["lr"]}
    cells = [("rate x8", high, "off"), ("rate x8", high, "act"), ("rate x8", high, BEFORE), ("rate x2", twice, "act"),
             ("rate x2", twice, "off"), ("best fixed", {}, "off")]  # fmt: skip
    return [
        (f"start: {name}", settings, seed, arm) for seed in FROM_THE_START["begun"] for name, settings, arm in cells
    ]


def begun_again(model: str) -> list[Wanted]:
    """The seventh round: the rate that is bad from the start alone."""
    high = {"lr": 8 * BASE["lr"]}
    cells = [("rate x8", high, "off"), ("rate x8", high, "act"), ("best fixed", {}, "off")]
    return [
        (f"start: {name}", settings, seed, arm) for seed in FROM_THE_START["again"] for name, settings, arm in cells
    ]


def simulated(
    runs: int = 1000, steps: int = 300, prompts: int = 16, kinds: Sequence[str] = SIMULATED
) -> list[dict[str, Any]]:
    """Whether anything is decided in runs whose level rises, stays, or wanders: 250 of each of four kinds."""
    rows = []
    for number in range(runs):
        draw = np.random.default_rng(90_000 + number)
        kind = SIMULATED[number % 4]
        if kind not in kinds:
            continue
        level = draw.uniform(0.1, 0.9)
        levels = np.full(steps, level)
        if kind == "rising":
            levels = level + (0.95 - level) * (1 - np.exp(-np.arange(steps) / 80))
        elif kind.startswith("wandering"):
            noise = np.zeros(steps)
            for step in range(1, steps):
                noise[step] = 0.9 * noise[step - 1] + float(kind.split()[1]) * math.sqrt(1 - 0.81) * draw.normal()
            levels = np.clip(level + noise, 0.02, 0.98)
        pilot = Pilot(AutopilotPolicy(mode="advise"))
        decided = []
        for step, own in enumerate(levels, 1):
            of_prompts = np.clip(draw.beta(4 * own, 4 * (1 - own), prompts), 0, 1)
            rewards = draw.random((prompts, 8)) < of_prompts[:, None]
            pilot.batch(step, rewards.astype(float), np.zeros((prompts, 8)))
            if step % 20 == 0:
                right = draw.random(128) < own
                pilot.evaluation(step, Estimate.mean(right.astype(float).tolist()))
            if (alarm := pilot.alarm(step)) is not None:
                decided.append(pilot.decide(alarm, Situation(step)).fault)
        rows.append({"kind": kind, "decided": decided})
    return rows


# The tables


def interval(hits: int, total: int) -> str:
    """A share with its exact 95 % interval."""
    found = stats.binomtest(hits, total).proportion_ci(0.95)
    return f"{hits} of {total} ({100 * hits / total:.1f} %; {100 * found.low:.1f} to {100 * found.high:.1f})"


def spread(values: Sequence[float]) -> str:
    """Mean ± standard error."""
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / math.sqrt(len(values)):.3f}"


def report(paths: Sequence[Path]) -> Iterator[str]:
    """The tables of what is there."""
    rows = [row for path in paths for row in kept(path)]
    levels = [row for row in rows if "kind" in row]
    trained = [row for row in rows if "cell" in row]
    if levels:
        for kind in dict.fromkeys(row["kind"] for row in levels):
            some = [row for row in levels if row["kind"] == kind]
            yield f"simulated, {kind}: decided in {interval(sum(bool(r['decided']) for r in some), len(some))}"
    sound = [row for row in trained if row["autopilot"] == "advise"]
    if sound:
        yield f"sound trainings: something decided in {interval(sum(bool(r['decisions']) for r in sound), len(sound))}"
    yield from _arms(trained)
    yield from _against(trained, RAISING, "a rate that was cut is raised again")
    yield from _against(trained, BEFORE, "changes of one")
    yield from _rescued([row for row in trained if row.get("solved")])


def _rescued(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What each run ends with, of 1,000 held-out problems, as a share of what it had before the fault."""
    for cell in dict.fromkeys(row["cell"] for row in rows):
        pairs = np.array([row["solved"] for row in rows if row["cell"] == cell])
        shares = pairs[:, 1] / pairs[:, 0]
        yield (
            f"{cell}, {len(pairs)} seeds: before {spread(pairs[:, 0])}, at the end {spread(pairs[:, 1])}, least share "
            f"{shares.min():.2f}, below 0.7: {sum(shares < 0.7)}"
        )


def _against(trained: Sequence[Mapping[str, Any]], arm: str, words: str) -> Iterator[str]:
    """The autopilot less another arm, by cell."""
    by = {(row["cell"], row["seed"], row["autopilot"]): row for row in trained}
    for cell in dict.fromkeys(name for name, _, own in by if own == arm):
        pairs = [(by[cell, seed, "act"], row) for (name, seed, own), row in by.items()
                 if (name, own) == (cell, arm) and (cell, seed, "act") in by]  # fmt: skip
        own, other = ([area(pair[k]) for pair in pairs] for k in (0, 1))
        gain = np.array(own) - np.array(other)
        low, high = stats.t.interval(0.95, len(gain) - 1, gain.mean(), max(stats.sem(gain), 1e-9))
        yield (
            f"{cell}, {len(gain)} seeds: autopilot {spread(own)}, {words} {spread(other)}, "
            f"difference {gain.mean():+.3f} ({low:+.3f} to {high:+.3f})"
        )


def _arms(trained: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    by = {(row["cell"], row["seed"], row["autopilot"]): row for row in trained}
    cells = list(dict.fromkeys(cell for cell, seed, arm in by if arm == "act" and (cell, seed, "off") in by))
    lowest, table = [], []
    for cell in cells:
        seeds = [seed for name, seed, arm in by if name == cell and arm == "act" and (cell, seed, "off") in by]
        left = [area(by[cell, seed, "off"]) for seed in seeds]
        flown = [area(by[cell, seed, "act"]) for seed in seeds]
        best = [_oracle(by, cell, seed, own) for seed, own in zip(seeds, left, strict=True)]
        gain = np.array(flown) - np.array(left)
        error = float(np.std(gain, ddof=1) / math.sqrt(len(gain))) if len(gain) > 1 else math.nan
        test = stats.t.sf((gain.mean() + 0.03) / max(error, 1e-9), len(gain) - 1) if len(gain) > 1 else math.nan
        lowest.append(float(test))
        actions = [
            " ".join(filter(None, (one["action"], one.get("setting", ""))))
            for seed in seeds
            for one in by[cell, seed, "act"]["decisions"]
        ]
        counts = ", ".join(f"{actions.count(name)} {name}" for name in dict.fromkeys(actions)) or "none"
        table.append((cell, len(seeds), left, flown, best, gain, error, counts))
    for (cell, count, left, flown, best, gain, error, counts), p in zip(table, holm(lowest), strict=True):
        yield (
            f"| {cell} | {count} | {spread(left)} | {spread(flown)} | {spread(best)} | "
            f"{np.mean(flown) / np.mean(best):.2f} | {gain.mean():+.3f} ± {error:.3f} | {p:.2g} | {counts} |"
        )


def _oracle(by: Mapping[Any, Any], cell: str, seed: int, left: float) -> float:
    """The best of: the run without the fault, where a setting or a rollback can cure it; one stopped when it began."""
    if cell.startswith("start: "):
        return area(by["start: best fixed", seed, "off"])
    if cell == "none":
        return left
    stopped = area(by[cell, seed, "off"], until=BEGINS - 1)
    if (CORRECTED, seed, "off") in by and cell == "staleness grows":
        return max(stopped, area(by[CORRECTED, seed, "off"]))
    return max(stopped, area(by["none", seed, "off"])) if EVERY_FAULT[cell].curable else stopped


def page(model: str, out: Path) -> None:
    """Train the fault of a rate × 30, and photograph what its page says of the autopilot."""
    from rewards_page import shot

    from grposcope.cli import main as command

    folder = out / "run"
    if not (folder / "summary.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        with done(FAULTS["rate x30"]) as source:
            loop.train(TrainConfig(**{**BASE, "model": model, "seed": SEEDS[0], "autopilot": "act",
                                      "out": str(folder)}), source)  # fmt: skip
    command(["report", str(folder), "--out", str(out / "page.html")])
    shot(out / "page.html", out / "autopilot-page.png", ("verdict", "autopilot"))


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what",
        choices=("base", "faults", "nulls", "settings", "more", "raise", "begins", "begun", "again", "smollm2",
                 "simulated", "page", "report"),
    )  # fmt: skip
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--model", default="")
    given = parser.parse_args()
    if given.what == "report":
        print("\n".join(report(given.files)))
    elif given.what == "page":
        page(given.model, given.out.resolve())
    elif given.what == "base":
        settings = {
            "steps": 80,
            "seed": 999,
            "checkpoint_every": 0,
            "rollouts_every": 0,
            "eval_every": 80,
            "threads": 1,
        }
        loop.train(TrainConfig(**settings, out=str(given.out)))
    elif given.what == "simulated":
        given.out.write_text("".join(json.dumps(row) + "\n" for row in simulated()))
    else:
        wanted = {"faults": faults, "nulls": nulls, "more": more, "raise": raised, "settings": bad_settings,
                  "smollm2": pretrained, "begins": begins, "begun": begun, "again": begun_again}  # fmt: skip
        add(given.out, wanted[given.what](given.model))


if __name__ == "__main__":
    main()
