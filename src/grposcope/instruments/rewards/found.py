"""What the rewards of a run weigh: over all steps, by windows of steps, and which rise while another pays for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.run import Run, once
from grposcope.instruments.rewards import RewardSettings, probe_file, source
from grposcope.instruments.rewards.probe_file import RewardProbe
from grposcope.instruments.rewards.source import RewardRollouts
from grposcope.maths import component_gradients, component_weights
from grposcope.maths.aggregation import Components, Floats, combine
from grposcope.maths.component_weights import RewardWeights
from grposcope.maths.timeseries.change import EARLY, LATE, fit

WINDOWS, LEAST_GROUPS = 12, 20
"""Windows of steps at most, and groups in one at least."""

LEAST_STEPS = 20
"""Steps from which on a rise and a fall are tested."""

SURE = 0.01
"""p-value of a rise beside a fall, times the number of pairs, below which it is told."""


@dataclass(frozen=True)
class Trade:
    """One reward rises while another falls: their means early and late, and the p-value, times the number of pairs."""

    rising: str
    falling: str
    rose: tuple[float, float]
    fell: tuple[float, float]
    p: float


@dataclass(frozen=True)
class RewardsFound:
    """All that was found of the rewards of a run. windows: the effective shares (K,) from a first step to a last."""

    rollouts: RewardRollouts
    weights: RewardWeights
    windows: tuple[tuple[int, int, tuple[Estimate, ...]], ...]
    trades: tuple[Trade, ...]


def of_rollouts(rollouts: RewardRollouts) -> RewardsFound:
    """What these rewards weigh; UserError for weights that are all 0."""
    whole = component_weights.measure(rollouts.given, rollouts.weights, rollouts.how, rollouts.prompts)
    return RewardsFound(rollouts, whole, _windows(rollouts), _trades(rollouts.given))


@once
def of_run(run: Run) -> RewardsFound | None:
    """What the rewards of a run weigh, by what its log says; None where it has no rewards of single functions."""
    rollouts = source.of_run(run, RewardSettings())
    return None if rollouts is None or not rollouts.weights.any() else of_rollouts(rollouts)


def _windows(rollouts: RewardRollouts) -> tuple[tuple[int, int, tuple[Estimate, ...]], ...]:
    """The effective shares in windows of steps with about equal numbers of groups; none where there is one only."""
    given = rollouts.given
    count = min(WINDOWS, len(given.batch) // LEAST_GROUPS, len(rollouts.steps))
    if count < 2:
        return ()
    found = []
    for batches in np.array_split(np.arange(len(rollouts.steps)), count):
        some, prompts = _cut(given, rollouts.prompts, batches)
        measured = component_weights.measure(some, rollouts.weights, rollouts.how, prompts)
        steps = rollouts.steps[batches]
        found.append((int(steps[0]), int(steps[-1]), tuple(component.share for component in measured.components)))
    return tuple(found)


def _cut(components: Components, prompts: np.ndarray, batches: np.ndarray) -> tuple[Components, np.ndarray]:
    """The groups of some batches."""
    kept = np.flatnonzero(np.isin(components.batch, batches))
    rows = np.isin(components.group, kept)
    place = np.zeros(len(components.batch), np.int64)
    place[kept] = np.arange(len(kept))
    lengths = None if components.lengths is None else components.lengths[rows]
    cut = Components(
        components.names,
        components.rewards[rows],
        place[components.group[rows]],
        components.batch[kept] - batches[0],
        lengths,
    )
    return cut, prompts[kept]


def _means(components: Components) -> Floats:
    """Mean reward of every function in each batch, (S, K); NaN where it judged no rollout."""
    batch = components.batch[components.group]
    known = ~np.isnan(components.rewards)
    size = int(batch.max(initial=-1)) + 1
    columns = []
    for j in range(len(components.names)):
        count = np.bincount(batch[known[:, j]], minlength=size)
        total = np.bincount(batch[known[:, j]], components.rewards[known[:, j], j], minlength=size)
        columns.append(np.divide(total, count, out=np.full(size, math.nan), where=count > 0))
    return np.stack(columns, 1)


def _trades(components: Components) -> tuple[Trade, ...]:
    """Pairs of which one rose and the other fell over the run, with Bonferroni's factor for all ordered pairs."""
    every = _means(components)
    curves, known = {}, []
    for j in range(len(components.names)):
        values = every[:, j][np.isfinite(every[:, j])]
        if len(values) >= LEAST_STEPS and np.ptp(values):
            curves[j] = fit(values)
            known.append(j)
    found = []
    for up in known:
        for down in known:
            if up == down:
                continue
            p = max(curves[up].change().p_up, curves[down].change().p_down) * len(known) * (len(known) - 1)
            if p < SURE:
                levels = [(curves[j].level(EARLY).value, curves[j].level(LATE).value) for j in (up, down)]
                found.append(Trade(components.names[up], components.names[down], levels[0], levels[1], p))
    return tuple(sorted(found, key=lambda trade: trade.p))


@dataclass(frozen=True)
class GradientParts:
    """Shares (K,) of the gradient's squared norm by reward and constraint, and cosines of their gradients by pair.

    steps: of the probes, none where the inner products came from elsewhere. prompts: in all of them.
    """

    names: tuple[str, ...]
    shares: tuple[Estimate, ...]
    cosines: Mapping[tuple[int, int], Estimate]
    prompts: int
    steps: tuple[int, ...] = ()

    def cosine(self, j: int, k: int) -> Estimate:
        """The cosine of two rewards' gradients."""
        return self.cosines[min(j, k), max(j, k)]

    def against(self) -> list[tuple[str, str, Estimate]]:
        """Pairs whose cosine is below 0 with its whole interval."""
        found = [(self.names[j], self.names[k], value) for (j, k), value in self.cosines.items()]
        return [one for one in found if one[2].interval()[1] < 0]


def gradient(rollouts: RewardRollouts, gram: Floats) -> GradientParts:
    """What each reward moves; gram (N, N): of the rollouts' scores, in their order. UserError where it does not fit."""
    given = rollouts.given
    sizes = np.bincount(given.group)
    if gram.shape != (len(given.rewards),) * 2 or len(set(sizes.tolist())) != 1 or len(sizes) < 2:
        raise UserError(
            f"inner products of shape {gram.shape} for {len(given.rewards)} rollouts in {len(sizes)} groups; give the "
            "products of these rollouts in their order, from at least 2 groups, all of one size"
        )
    order = np.argsort(given.group, kind="stable")
    shape = len(sizes), int(sizes[0])
    parts = combine(given, rollouts.weights, rollouts.how).contributions[order].reshape(*shape, -1)
    products = gram[np.ix_(order, order)].reshape(*shape, *shape)
    shares, cosines = component_gradients.gradient_shares(products, parts)
    return GradientParts(given.names, tuple(shares), cosines, len(sizes))


@once
def probed(run: Run) -> GradientParts | None:
    """What each reward and constraint moves, over the probes of a run; None without any. UserError for damaged ones."""
    probes = [] if run.folder is None else _alike(probe_file.in_folder(run.folder))
    if not probes:
        return None
    shares, cosines = component_gradients.shares_of_products([probe.products for probe in probes])
    prompts, steps = sum(probe.products.shape[-1] for probe in probes), tuple(probe.step for probe in probes)
    return GradientParts(probes[0].names, tuple(shares), cosines, prompts, steps)


def _alike(probes: Sequence[RewardProbe]) -> list[RewardProbe]:
    """The probes with the parts of the last one; a constraint without a multiplier yet is no part."""
    if not probes:
        return []
    names = max(probes, key=lambda one: (len(one.names), one.step)).names
    return [_with(probe, names) for probe in probes if set(probe.names) <= set(names)]


def _with(probe: RewardProbe, names: tuple[str, ...]) -> RewardProbe:
    """The probe with all `names`, those that it lacks with products of 0."""
    if probe.names == names:
        return probe
    places = np.array([names.index(name) for name in probe.names])
    products = np.zeros((len(names), len(names), *probe.products.shape[2:]))
    products[np.ix_(places, places)] = probe.products
    constraints = len(names) - (len(probe.names) - probe.constraints)
    return RewardProbe(probe.step, names, constraints, products)
