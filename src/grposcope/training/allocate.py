"""Allocation in a run: forecasts before each batch, the problems and group sizes they ask for, and what came of them.

The policies are in `allocation`; this module gives them the problems in the order of the data, draws and grades what
they pick, and lets the forecast learn from it afterwards, so that no batch's rewards choose its own problems.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from grposcope.allocation import ChosenAllocator, chosen
from grposcope.allocation.forecast import Forecaster
from grposcope.allocation.picks import Offer, Picks
from grposcope.errors import UserError
from grposcope.objectives import Objective, advantages
from grposcope.runs import read
from grposcope.tasks import Problem, Task
from grposcope.training.rollouts import (
    Batch,
    Drawn,
    Rules,
    arranged,
    draw,
    drawn_indices,
    generator,
    joined,
    shaped,
)
from grposcope.training.setup import Setup

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Allocated:
    """A batch, the metrics `allocation/…` of its steps, and what the record says of its groups beside rewards."""

    batch: Batch
    metrics: Mapping[str, float]
    notes: Sequence[Mapping[str, float]]


class RolloutAllocation:
    """Where the rollouts of a run go."""

    def __init__(self, setup: Setup, state: Mapping[str, Any] | None = None):
        """state: what `state` returned at the checkpoint that is gone on from. UserError for one of other problems."""
        self.setup, self.config, self.chosen = setup, setup.config, chosen(setup.config.allocate)
        self.forecaster: Forecaster | None = None
        if self.chosen.forecasts:
            problems = setup.train_set
            self.places = {problem.id: i for i, problem in enumerate(problems)}
            self.forecaster = forecaster(setup.task, problems)
            if state is not None:
                self.forecaster.restore(state)
            elif path := self.chosen.values.get("history"):
                _learn_from(Path(path), self.forecaster)

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps; None where nothing is learned."""
        return None if self.forecaster is None else self.forecaster.state()

    def said(self) -> str:
        """What the allocator does to the objective, for whoever starts the run; empty for uniform draws."""
        return "" if self.chosen.name == "uniform" else consequence(self.chosen, self.setup.objective)

    def draw(self, position: int) -> Allocated:
        """The batch that begins at `position` of the data."""
        began = time.perf_counter()
        if self.chosen.allocator.second is not None:
            batch, promised, saving = self._two_stages(position), math.nan, math.nan
        elif self.chosen.plain:
            batch, promised, saving = self.setup.collect(self.config.seed, position), math.nan, math.nan
        else:
            pool = self._pool(position)
            taken = self._picks(pool, position)
            batch = self._of_picks(pool, taken, position)
            promised, saving = taken.live, taken.saving
        notes = self._learned(batch, math.isnan(promised))
        if self.chosen.plain and notes:
            promised = float(np.mean([note.pop("live") for note in notes]))
        if self.chosen.text == "uniform":
            return Allocated(batch, {}, notes)
        own = time.perf_counter() - began - batch.sample_seconds - batch.grade_seconds
        return Allocated(batch, {**_metrics(batch, promised, saving), "allocation/seconds": max(own, 0.0)}, notes)

    def _pool(self, position: int) -> Ints:
        """The problems to choose from, in the order of the data, or all at random where `pool` is as many."""
        size, seed = len(self.setup.train_set), self.config.seed
        asked = self.chosen.candidates(self.config.prompts)
        if "pool" in self.chosen.values and asked >= size:
            stream = generator(seed, "pool", position)
            return np.array(torch.randperm(size, generator=stream).tolist())
        return np.array(drawn_indices(size, seed, position, asked))

    def _picks(self, pool: Ints, position: int) -> Picks:
        """The groups to draw from the pool."""
        assert self.forecaster is not None
        assert self.chosen.allocator.picks is not None
        config = self.config
        random = torch.rand(len(pool), generator=generator(config.seed, "allocate", position), dtype=torch.float64)
        offer = Offer(self.forecaster.rates(pool), config.prompts, config.group, random.numpy())
        taken = self.chosen.allocator.picks(offer, self.chosen.values)
        if len(set(taken.sizes.tolist())) > 1 and not self.chosen.ragged:
            raise ValueError(f"allocator {self.chosen.name} picks groups of several sizes; its entry must say `ragged`")
        return taken

    def _of_picks(self, pool: Ints, taken: Picks, position: int) -> Batch:
        problems = [self.setup.train_set[i] for i in pool[taken.candidates]]
        drawn, owners = self._draw(problems, taken.sizes, generator_of(self.setup, "sample", position))
        return self._batch(problems, [(drawn, owners)], taken.weights, position + taken.passed)

    def _two_stages(self, position: int) -> Batch:
        """Screening rollouts of many problems, and further ones of those whose screening was mixed."""
        assert self.chosen.allocator.second is not None
        config, values = self.config, self.chosen.values
        first, budget, pooled = values["first"], config.prompts * config.group, values["pooled"] == "yes"
        count = budget // (2 * first)
        places = drawn_indices(len(self.setup.train_set), config.seed, position, count)
        screened = [self.setup.train_set[i] for i in places]
        screening, owners = self._draw(screened, np.full(count, first), generator_of(self.setup, "sample", position))
        mixed = ~advantages.dead(screening.rollouts.rewards).numpy(force=True)
        further = self.chosen.allocator.second(mixed, budget - count * first, values)
        kept = np.flatnonzero(further) if further.any() else np.arange(1)
        rank = np.full(count, -1)
        rank[kept] = np.arange(len(kept))
        problems = [screened[i] for i in kept]
        parts = [(screening, rank[owners])]
        if further.any():
            stream = generator_of(self.setup, "second", position)
            drawn, of_kept = self._draw(problems, further[kept], stream)
            parts = [*parts, (drawn, of_kept)] if pooled else [(drawn, of_kept)]
        batch = self._batch(problems, parts, np.ones(len(kept)), position + count)
        live = len(problems) - round(batch.dead * len(problems))
        others = [] if pooled or not further.any() else [screening]
        return replace(
            batch,
            dead=1 - live / count,
            drawn=int(count * first + further.sum()),
            tokens=sum(int(part.rollouts.mask.sum()) for part in (*(one for one, _ in parts), *others)),
            errors=batch.errors + sum(part.errors for part in others),
            sample_seconds=batch.sample_seconds + sum(part.sample_seconds for part in others),
            grade_seconds=batch.grade_seconds + sum(part.grade_seconds for part in others),
        )

    def _draw(self, problems: Sequence[Problem], sizes: Ints, stream: torch.Generator) -> tuple[Drawn, Ints]:
        """So many rollouts of each problem, together, and the problem of each row."""
        setup, config = self.setup, self.config
        unit = math.gcd(*sizes.tolist())
        repeated = [problem for problem, size in zip(problems, sizes, strict=True) for _ in range(size // unit)]
        rules = Rules(
            setup.sampling,
            setup.needs_steps,
            config.reward_timeout,
            config.reward_errors,  # type: ignore[arg-type]  # one of the choices
        )
        drawn = draw(setup.policy, setup.task, repeated, unit, rules, stream)
        return drawn, np.repeat(np.arange(len(problems)), sizes)

    def _batch(
        self, problems: Sequence[Problem], parts: Sequence[tuple[Drawn, Ints]], weights: NDArray[np.float64], end: int
    ) -> Batch:
        """The groups of these problems; parts: rollouts, and the group that each belongs to, −1 for none."""
        setup = self.setup
        device, pad = setup.policy.model.device, setup.policy.pad
        rows = joined([part.rollouts.rows(slice(None)) for part, _ in parts], pad)
        owners = np.concatenate([owner for _, owner in parts])
        kept = np.flatnonzero(owners >= 0)
        owners = owners[kept]
        texts = [text for part, _ in parts for text in part.texts]
        rollouts = arranged(rows.rows(torch.tensor(kept, device=device)), torch.tensor(owners, device=device), pad)
        rollouts = replace(rollouts, weights=torch.tensor(weights, dtype=torch.float64, device=device))
        group = rollouts.groups[1]
        padded = [""] * (len(problems) * group)
        filled = np.zeros(len(problems), np.int64)
        for row, owner in zip(kept, owners, strict=True):
            padded[owner * group + filled[owner]] = texts[row]
            filled[owner] += 1
        return Batch(
            rollouts=shaped(rollouts, setup.objective, setup.sampling),
            problems=tuple(problems),
            texts=tuple(padded),
            graded=rollouts.rewards,
            drawn=len(kept),
            tokens=int(rows.mask.sum()),
            dead=float(advantages.dead(rollouts.rewards).double().mean()),
            errors=sum(part.errors for part, _ in parts),
            position=end,
            sample_seconds=sum(part.sample_seconds for part, _ in parts),
            grade_seconds=sum(part.grade_seconds for part, _ in parts),
            sizes=tuple(filled.tolist()),
        )

    def _learned(self, batch: Batch, live: bool) -> list[dict[str, float]]:
        """Let the forecast learn from a batch; returns what it had said of each group, and its weight.

        live: whether to say each group's chance of being live, too.
        """
        if self.forecaster is None:
            return []
        which = np.array([self.places[problem.id] for problem in batch.problems])
        said = self.forecaster.means(which)
        graded = batch.graded.numpy(force=True)
        present = ~np.isnan(graded)
        chances = 1 - self.forecaster.rates(which).dead(present.sum(1)) if live else np.zeros(len(which))
        weights = np.ones(len(which)) if batch.rollouts.weights is None else batch.rollouts.weights.numpy(force=True)
        notes = [
            {**{kind: float(mean[i]) for kind, mean in said.items()}, "weight": float(weights[i])}
            | ({"live": float(chances[i])} if live else {})
            for i in range(len(which))
        ]
        self.forecaster.learn_groups(which, graded)
        return notes


def consequence(chosen: ChosenAllocator, objective: Objective) -> str:
    """What an allocator does to an objective, in a sentence."""
    text = f"allocate {chosen.text}: {chosen.objective}"
    if chosen.allocator.leave_one_out and objective.advantage is not advantages.leave_one_out:
        text += (
            "; the recipe's advantages count problems by their success rates"
            + (" and group sizes" if chosen.ragged else "")
            + " on top of that, leave_one_out does not"
        )
    return text


def forecaster(task: Task, problems: Sequence[Problem]) -> Forecaster:
    """A forecaster of the task's problems that has seen nothing."""
    return Forecaster(
        [problem.id for problem in problems],
        [task.difficulty(problem) for problem in problems],
        [len(problem.prompt) for problem in problems],
    )


def generator_of(setup: Setup, stream: str, position: int) -> torch.Generator:
    """The generator of a batch's samples on the model's device."""
    return generator(setup.config.seed, stream, position, device=setup.policy.model.device)


def _learn_from(path: Path, known: Forecaster) -> None:
    """Learn from the groups in the record of another run; UserError where there are none, or none of these problems."""
    try:
        groups = read(path).groups
    except UserError as error:
        raise UserError(f"allocate: history={path} cannot be read: {error}") from error
    if not len(groups):
        raise UserError(f"allocate: history={path} has no groups of rollouts; give the folder of a run that does")
    if ((groups.rewards < 0) | (groups.rewards > 1)).any():
        raise UserError(
            f"allocate: history={path} has rewards outside of 0 … 1, which tell no success rate; leave it out"
        )
    names = [groups.problems[i] for i in groups.problem]
    successes = np.add.reduceat(np.nan_to_num(groups.rewards), groups.offsets[:-1])
    present = np.add.reduceat((~np.isnan(groups.rewards)).astype(np.float64), groups.offsets[:-1])
    known.replay(groups.step, names, successes, present)


def _metrics(batch: Batch, promised: float, saving: float) -> dict[str, float]:
    """Metrics of a batch: live share against what was promised, effective prompts, and the reward weighted back."""
    rewards = batch.graded
    weights = torch.ones(len(rewards)).double() if batch.rollouts.weights is None else batch.rollouts.weights.cpu()
    live = (~advantages.dead(rewards)).cpu()
    carried = weights[live]
    effective = float(carried.sum() ** 2 / (carried**2).sum()) if len(carried) else 0.0
    mean = rewards.nanmean(-1).cpu()
    known = ~mean.isnan()
    weighted = (weights * mean)[known].sum() / weights[known].sum() if bool(known.any()) else math.nan
    found = {
        "groups": float(len(rewards)),
        "live": float(live.double().mean()),
        "effective_prompts": effective,
        "reward": float(weighted),
        "tokens": float(batch.tokens),
    }
    given = {"live_promised": promised, "saving_predicted": saving}
    return {f"allocation/{name}": value for name, value in {**found, **given}.items() if not math.isnan(value)}
