"""The ways of `policies` in a run: what `loop.train(config, allocation)` drives in the place of its own allocation.

Groups may differ in size; they are padded to the largest with rollouts that have the reward NaN and no tokens, and
carry weights. That takes outcome credit, one minibatch, and no probes during the run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from allocators.forecasts import ComparedForecaster
from allocators.policies import Optimal, live, second_stage
from grposcope.lab.allocation import LOOKED_AT, chosen
from grposcope.lab.allocation.picks import CandidateProblems, Ints
from grposcope.lab.objectives import advantages
from grposcope.lab.rollout_batch import LEFT_PADDED, PER_PROMPT, RolloutBatch, blank
from grposcope.lab.sampling.rollouts import Batch, DrawSettings, _Drawn, _shaped, draw, drawn_indices, generator, joined
from grposcope.lab.tasks import Problem
from grposcope.lab.train.allocate import Allocated, NewBatchSource, _as_picked, _metrics
from grposcope.lab.train.setup import Setup


class Forecasting:
    """Uniform draws whose success rates are forecast all the same, to see how well; the others build on it.

    The record has, of each group, the three forecasts of `ComparedForecaster` and the weight.
    """

    def __init__(self, setup: Setup, state: Mapping[str, Any] | None = None):
        """state: what `state` returned at the checkpoint that is gone on from."""
        self.setup, self.config = setup, setup.config
        problems = setup.train_set
        self.places = {problem.id: i for i, problem in enumerate(problems)}
        self.forecaster = ComparedForecaster(
            [problem.id for problem in problems],
            [setup.task.difficulty(problem) for problem in problems],
            [len(problem.prompt) for problem in problems],
        )
        if state is not None:
            self.forecaster.restore(state)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return self.forecaster.state()

    def said(self) -> str:
        """Nothing: the experiment says what each of its cells is."""
        return ""

    def draw(self, position: int) -> Allocated:
        """The batch that begins at `position` of the data."""
        began = time.perf_counter()
        batch, promised, saving = self.drawn(position)
        which = np.array([self.places[problem.id] for problem in batch.problems])
        if math.isnan(promised):
            promised = live(self.forecaster.rates(which), _present(batch).sum(1))
        notes = self._learned(batch, which)
        predicted = {} if math.isnan(saving) else {"allocation/saving_predicted": saving}
        return Allocated(batch, {**_metrics(batch, promised, began), **predicted}, notes)

    def drawn(self, position: int) -> tuple[Batch, float, float]:
        """The batch, the share of live groups that was promised, and the saving, NaN each where nothing was."""
        return self.setup.collect(self.config.seed, position), math.nan, math.nan

    def _learned(self, batch: Batch, which: Ints) -> list[dict[str, float]]:
        """Let the forecast learn from a batch; returns what it had said of each group, and its weight."""
        said = self.forecaster.means(which)
        weights = np.ones(len(which)) if batch.rollouts.weights is None else batch.rollouts.weights.numpy(force=True)
        self.forecaster.learn_groups(which, batch.graded.numpy(force=True))
        return [
            {**{kind: float(mean[i]) for kind, mean in said.items()}, "weight": float(weights[i])}
            for i in range(len(which))
        ]

    def _random(self, count: int, position: int) -> NDArray[np.float64]:
        """Numbers uniform in [0, 1) for the candidates of a batch."""
        stream = generator(self.config.seed, "allocate", position)
        return torch.rand(count, generator=stream, dtype=torch.float64).numpy()


class Filtering(Forecasting):
    """The filter as `train --allocate filter` has it, with the forecasts in the record."""

    def drawn(self, position: int) -> tuple[Batch, float, float]:
        """The batch of problems that are forecast to be live, and the share promised."""
        config, problems, one = self.config, self.setup.train_set, chosen("filter")
        assert one.allocator.picks is not None
        pool = np.array(drawn_indices(len(problems), config.seed, position, LOOKED_AT * config.prompts))
        candidates = CandidateProblems(
            self.forecaster.rates(pool), config.prompts, config.group, self._random(len(pool), position)
        )
        taken = one.allocator.picks(candidates, one.values)
        batch = self.setup.collect(config.seed, position, [problems[i] for i in pool[taken.chosen]])
        return _as_picked(batch, position + taken.passed), taken.live, math.nan


class OptimalDraws(Forecasting):
    """Draws and group sizes of least error."""

    def __init__(self, way: Optimal, setup: Setup, state: Mapping[str, Any] | None = None):
        """way: the settings of the draw."""
        super().__init__(setup, state)
        self.way = way

    def drawn(self, position: int) -> tuple[Batch, float, float]:
        """The batch that is drawn, the share of live groups promised, and the saving that is predicted."""
        config, problems = self.config, self.setup.train_set
        asked = max(self.way.pool, config.prompts)
        if asked >= len(problems):
            stream = generator(config.seed, "pool", position)
            pool = np.array(torch.randperm(len(problems), generator=stream).tolist())
        else:
            pool = np.array(drawn_indices(len(problems), config.seed, position, asked))
        start = float(self._random(len(pool), position)[0])
        taken = self.way.groups(self.forecaster.rates(pool), config.prompts * config.group, config.group, start)
        own = [problems[i] for i in pool[taken.candidates]]
        part = rollouts_of(self.setup, own, taken.sizes, "sample", position)
        batch = batch_of(self.setup, own, [part], taken.weights, position + taken.passed)
        return batch, taken.live, taken.saving


class TwoStages:
    """Screening rollouts of many problems, and further ones of those whose screening was mixed (as in SPEED)."""

    def __init__(
        self, pooled: bool, setup: Setup, state: Mapping[str, Any] | None = None, first: int = 2, largest: int = 32
    ):
        """pooled: whether the screening is trained on too; first, largest: rollouts of it, and most further ones."""
        self.pooled, self.setup, self.first, self.largest = pooled, setup, first, largest

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: that it is none of the run's own."""
        return {"way": "two stages"}

    def said(self) -> str:
        """Nothing: the experiment says what each of its cells is."""
        return ""

    def draw(self, position: int) -> Allocated:
        """The batch that begins at `position` of the data."""
        began = time.perf_counter()
        batch = self._drawn(position)
        return Allocated(batch, _metrics(batch, math.nan, began))

    def _drawn(self, position: int) -> Batch:
        setup, config, first = self.setup, self.setup.config, self.first
        budget = config.prompts * config.group
        count = budget // (2 * first)
        screened = [setup.train_set[i] for i in drawn_indices(len(setup.train_set), config.seed, position, count)]
        screening, owners = rollouts_of(setup, screened, np.full(count, first), "sample", position)
        mixed = ~advantages.dead(screening.rollouts.rewards).numpy(force=True)
        further = second_stage(mixed, budget - count * first, self.largest)
        kept = np.flatnonzero(further) if further.any() else np.arange(1)
        rank = np.full(count, -1)
        rank[kept] = np.arange(len(kept))
        problems = [screened[i] for i in kept]
        parts = [(screening, rank[owners])]
        if further.any():
            part = rollouts_of(setup, problems, further[kept], "second", position)
            parts = [*parts, part] if self.pooled else [part]
        batch = batch_of(setup, problems, parts, np.ones(len(kept)), position + count)
        alive = len(problems) - round(batch.dead * len(problems))
        others = [] if self.pooled or not further.any() else [screening]
        return replace(
            batch,
            dead=1 - alive / count,
            drawn=int(count * first + further.sum()),
            tokens=sum(int(part.rollouts.mask.sum()) for part in (*(one for one, _ in parts), *others)),
            errors=batch.errors + sum(part.errors for part in others),
            sample_seconds=batch.sample_seconds + sum(part.sample_seconds for part in others),
            grade_seconds=batch.grade_seconds + sum(part.grade_seconds for part in others),
        )


def optimal(**settings: Any) -> NewBatchSource:
    """`OptimalDraws` with settings of `Optimal`, as `loop.train` takes it."""
    return partial(OptimalDraws, Optimal(**settings))


def two_stages(pooled: bool = False) -> NewBatchSource:
    """`TwoStages` as `loop.train` takes it."""
    return partial(TwoStages, pooled)


def _present(batch: Batch) -> NDArray[np.bool_]:
    return ~np.isnan(batch.graded.numpy(force=True))


def rollouts_of(
    setup: Setup, problems: Sequence[Problem], sizes: Ints, stream: str, position: int
) -> tuple[_Drawn, Ints]:
    """So many rollouts of each problem, together, and the problem of each row."""
    config = setup.config
    unit = math.gcd(*sizes.tolist())
    repeated = [problem for problem, size in zip(problems, sizes, strict=True) for _ in range(size // unit)]
    settings = DrawSettings(
        setup.sampling,
        setup.needs_steps,
        config.reward_timeout,
        config.reward_errors,  # type: ignore[arg-type]  # one of the choices
    )
    random = generator(config.seed, stream, position, device=setup.policy.model.device)
    drawn = draw(setup.policy, setup.task, repeated, unit, settings, random)
    return drawn, np.repeat(np.arange(len(problems)), sizes)


def batch_of(
    setup: Setup,
    problems: Sequence[Problem],
    parts: Sequence[tuple[_Drawn, Ints]],
    weights: NDArray[np.float64],
    end: int,
) -> Batch:
    """The groups of these problems; parts: rollouts, and the group that each belongs to, −1 for none."""
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
        rollouts=_shaped(rollouts, setup.objective, setup.sampling),
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


def arranged(rows: RolloutBatch, owners: Tensor, pad: int) -> RolloutBatch:
    """Rollouts that each are a group of their own, put together as groups of different sizes, padded to the largest.

    owners (n,): the group of each row, 0 … P − 1, each of which has one at least; rows of a group keep their order.
    A row that is padding has the reward NaN and an empty mask. Weights are 1.
    """
    order = owners.argsort(stable=True)
    sizes = torch.bincount(owners)
    group = int(sizes.max())
    inside = torch.arange(group, device=owners.device) < sizes[:, None]  # (P, G)
    place = torch.zeros(inside.shape, dtype=torch.long, device=owners.device)
    place[inside] = order
    place[~inside] = order[(sizes.cumsum(0) - sizes)].repeat_interleave(group - sizes)  # of its group, for the prompt
    whole = rows.rows(place.reshape(-1))
    absent = ~inside.reshape(-1)

    def blanked(name: str, array: Tensor) -> Tensor:
        if name in (*PER_PROMPT, *LEFT_PADDED):
            return array
        return array.masked_fill(absent[:, None] if array.ndim == 2 else absent, blank(name, pad))

    return replace(
        whole.each(blanked),
        rewards=whole.rewards.reshape(-1, group).masked_fill(~inside, math.nan),
        weights=torch.ones(len(sizes), dtype=torch.float64, device=owners.device),
    )
