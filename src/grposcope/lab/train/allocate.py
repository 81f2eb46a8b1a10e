"""Allocation in a run: forecasts before each batch, the problems they ask for, and what came of them.

The policies are in `allocation`; this module gives them the problems in the order of the data, draws and grades what
they pick, and lets the forecast learn from it afterwards, so that no batch's rewards choose its own problems. What is
no entry there, such as groups of several sizes, is a class of its own that fulfils `BatchSource` and goes to
`loop.train` from Python; `experiments/allocators` has some.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.lab.allocation import LOOKED_AT, chosen
from grposcope.lab.allocation.forecast import Forecaster
from grposcope.lab.allocation.picks import CandidateProblems
from grposcope.lab.objectives import advantages
from grposcope.lab.sampling.rollouts import Batch, drawn_indices, generator
from grposcope.lab.tasks import Problem, Task
from grposcope.lab.train.setup import Setup
from grposcope.logs import read

Ints = NDArray[np.int64]

_WAITS = 6
"""Batches whose mean share of dead groups says whether an allocator that waits begins."""


@dataclass(frozen=True)
class Allocated:
    """A batch, the metrics `allocation/…` of its steps, and what the record says of each of its groups beside rewards.

    notes: one for each group, or none at all.
    """

    batch: Batch
    metrics: Mapping[str, float]
    notes: Sequence[Mapping[str, float]] = ()


class BatchSource(Protocol):
    """What draws the batches of a run: `RolloutAllocation`, or an experiment's own."""

    def draw(self, position: int) -> Allocated:
        """The batch that begins at `position` of the data."""

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps, as JSON; None where nothing is learned."""

    def said(self) -> str:
        """What it does to the objective, for whoever starts the run; empty for uniform draws."""


NewBatchSource = Callable[[Setup, Mapping[str, Any] | None], BatchSource]
"""Makes the allocation of a run from its setup and what `state` returned at the checkpoint gone on from, else None."""


class RolloutAllocation:
    """The allocation that the run's settings name."""

    def __init__(self, setup: Setup, state: Mapping[str, Any] | None = None):
        """state: what `state` returned at the checkpoint that is gone on from. UserError for one that does not fit."""
        self.setup, self.config, self.chosen = setup, setup.config, chosen(setup.config.allocate)
        self.forecaster: Forecaster | None = None
        self.above = float(self.chosen.values.get("above", 0.0))
        self.latest_dead = [math.nan] * _WAITS  # of the batches before it began
        if not self.chosen.plain:
            self.forecaster = _forecaster(setup.task, setup.train_set)
            if state is not None:
                self.forecaster.restore(state)
            elif path := self.chosen.values.get("history"):
                _learn_from(Path(path), self.forecaster)
        elif self.above and state is not None:
            self.latest_dead = [float(share) for share in state["latest_dead"]]
        elif state is not None:
            raise UserError("the allocation of this run was given from Python; resume the run from Python")

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps; None where nothing is learned."""
        if self.above:
            return {"latest_dead": self.latest_dead}
        return None if self.forecaster is None else self.forecaster.state()

    def said(self) -> str:
        """What the allocator does to the objective, for whoever starts the run; empty for uniform draws."""
        return "" if self.chosen.name == "uniform" else self.chosen.consequence

    def draw(self, position: int) -> Allocated:
        """The batch that begins at `position` of the data."""
        began, promised = time.perf_counter(), math.nan
        if self._waits():
            in_turn = replace(self.setup.objective, resample_dead=False)
            batch = replace(self.setup, objective=in_turn).collect(self.config.seed, position)
            self.latest_dead = [*self.latest_dead[1:], batch.dead]
        elif self.forecaster is None:
            batch = self.setup.collect(self.config.seed, position)
        else:
            batch, promised = self._picked(self.forecaster, position)
        return Allocated(batch, {} if self.chosen.name == "uniform" else _metrics(batch, promised, began))

    def _waits(self) -> bool:
        """Whether problems are still taken in turn, since most groups were not dead in any _WAITS batches until now."""
        return bool(self.above) and not sum(self.latest_dead) > self.above * _WAITS

    def _picked(self, forecaster: Forecaster, position: int) -> tuple[Batch, float]:
        """The batch that the policy picks, from which the forecast learns, and the live share that was promised."""
        config, problems = self.config, self.setup.train_set
        assert self.chosen.allocator.picks is not None
        pool = np.array(drawn_indices(len(problems), config.seed, position, LOOKED_AT * config.prompts))
        random = torch.rand(len(pool), generator=generator(config.seed, "allocate", position), dtype=torch.float64)
        candidates = CandidateProblems(forecaster.rates(pool), config.prompts, config.group, random.numpy())
        taken = self.chosen.allocator.picks(candidates, self.chosen.values)
        which = pool[taken.chosen]
        if len(which) != config.prompts:
            raise ValueError(
                f"allocator {self.chosen.name} picks {len(which)} problems, and a batch has {config.prompts}"
            )
        drawn = self.setup.collect(config.seed, position, [problems[i] for i in which])
        forecaster.learn_groups(which, drawn.graded.numpy(force=True))
        return _as_picked(drawn, position + taken.passed), taken.live


def _as_picked(batch: Batch, position: int) -> Batch:
    """A batch whose problems did not come in turn: its groups count alike, and the next begins at `position`."""
    prompts, group = batch.graded.shape
    weights = torch.ones(prompts, dtype=torch.float64, device=batch.graded.device)
    return replace(
        batch, rollouts=replace(batch.rollouts, weights=weights), position=position, sizes=(group,) * prompts
    )


def _forecaster(task: Task, problems: Sequence[Problem]) -> Forecaster:
    """A forecaster of the task's problems that has seen nothing."""
    return Forecaster(
        [problem.id for problem in problems],
        [task.difficulty(problem) for problem in problems],
        [len(problem.prompt) for problem in problems],
    )


def _learn_from(path: Path, forecaster: Forecaster) -> None:
    """Learn from the groups in the record of another run; UserError where there are none, or none of these problems."""
    try:
        groups = read(path).groups
    except UserError as error:
        raise UserError(f"allocate: history={path} cannot be read: {error}") from error
    if not len(groups):
        raise UserError(f"allocate: history={path} has no groups of rollouts; give the folder of a run that does")
    if ((groups.rewards < 0) | (groups.rewards > 1)).any():
        raise UserError(
            f"allocate: history={path} has rewards outside 0 … 1, which are not success rates; leave it out"
        )
    names = [groups.problems[i] for i in groups.problem]
    successes = np.add.reduceat(np.nan_to_num(groups.rewards), groups.offsets[:-1])
    present = np.add.reduceat((~np.isnan(groups.rewards)).astype(np.float64), groups.offsets[:-1])
    forecaster.replay(groups.step, names, successes, present)


def _metrics(batch: Batch, promised: float, began: float) -> dict[str, float]:
    """Metrics of a batch: live groups against the share that was promised, effective prompts, the reward weighted back.

    promised: NaN where nothing was. began: when its draw did, by `time.perf_counter`, for the seconds of allocation
    itself, without sampling and grading.
    """
    own = time.perf_counter() - began - batch.sample_seconds - batch.grade_seconds
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
        "live_promised": promised,
        "seconds": max(own, 0.0),
    }
    return {f"allocation/{name}": value for name, value in found.items() if not math.isnan(value)}
