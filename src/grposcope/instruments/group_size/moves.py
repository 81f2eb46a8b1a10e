"""Whether a run should go on with another group size, at as many rollouts a step: the rule of a size that moves.

The probes since the last move are pooled, and G* is that of the planner, for leave-one-out advantages. A size is on the
way to G* where it lies between the present one and the whole number next to G*, this one included. What a move saves is
the quotient of the rollouts that two sizes need for one error,

    f(G) / f(G′),  f(G) = G (V_p + Σ₁/G + Δ/(G(G−1)))

with a 95 % interval of its logarithm by jackknife over prompts, for as many degrees of freedom as there are informative
groups, less one. The move is to the size whose interval begins highest, where that is above SAVES. It says nothing
where the planner does not: too few informative groups, draws that are not independent, groups of fewer than four.

Standardized advantages are left out: what a size saves them is known up to the probe's G only, and was told late or
never in a training (`experiments/autopilot.md`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.instruments.gradient.probe_record import ProbeGram
from grposcope.instruments.group_size import planning
from grposcope.maths import confidence, resampling
from grposcope.maths.moments import Moments, from_grams

SAVES = 1.1
"""Quotient of rollouts that the interval of a saving must exclude from below."""


@dataclass(frozen=True)
class GroupMove:
    """The group size to go on with, that of now where nothing pays.

    saving: rollouts that `used` needs over those that `group` needs, for one error; interval: its 95 % one. best: G*,
    0 where it is not told. reason: why the group stays, empty where it moves.
    """

    used: int
    group: int
    saving: float = math.nan
    interval: tuple[float, float] = (math.nan, math.nan)
    best: int = 0
    prompts: int = 0
    reason: str = ""

    @property
    def moves(self) -> bool:
        """Whether the size changes."""
        return self.group != self.used


def sizes(rollouts: int, minibatches: int = 1, problems: float = math.inf) -> list[int]:
    """Group sizes that divide a step's rollouts into two prompts or more, which the minibatches divide.

    problems: how many different ones a batch can have.
    """
    shapes = [(group, rollouts // group) for group in range(2, rollouts // 2 + 1) if rollouts % group == 0]
    return [group for group, prompts in shapes if prompts % minibatches == 0 and prompts <= problems]


def _move(moments: Moments, used: int, among: Sequence[int]) -> GroupMove:
    """Whether to leave the size `used` for one of `among`, by the pooled moments of a run."""
    stays = GroupMove(used, used, prompts=moments.prompts)
    try:
        plan = planning.optimal_group(moments, groups=())
    except UserError as error:
        return _because(stays, str(error))
    best = plan.integer or plan.at_least
    if not best:
        return _because(stays, plan.continuous.flag or "these probes do not tell the best group size")
    stays = GroupMove(used, used, best=best, prompts=moments.prompts)
    further = [_saving(moments, stays, size) for size in _towards(used, best, among)]
    known = [move for move in further if math.isfinite(move.interval[0])]
    if further and not known:
        return _because(stays, "these probes do not tell what another size would save")
    if not known:
        return _because(stays, f"no size between {used} and {best} divides the rollouts of a step")
    most = max(known, key=lambda move: move.interval[0])
    if most.interval[0] > SAVES:
        return most
    low, high = most.interval
    return _because(most, f"G = {most.group} would save a factor of {most.saving:.3g} ({low:.3g} to {high:.3g})")


def of_pool(files: Sequence[ProbeGram], used: int, among: Sequence[int]) -> GroupMove:
    """Whether to move, by the Gram matrices of probes that are read together."""
    try:
        pooled = from_grams([(file.gram, file.rewards) for file in files], replicates=1)
    except UserError as error:
        return GroupMove(used, used, reason=str(error))
    return _move(pooled, used, among)


def _towards(used: int, best: int, among: Sequence[int]) -> list[int]:
    """The sizes among these on the way from `used` to `best`, the latter included."""
    return [size for size in among if min(used, best) <= size <= max(used, best) and size != used]


def _because(stays: GroupMove, reason: str) -> GroupMove:
    return GroupMove(stays.used, stays.used, stays.saving, stays.interval, stays.best, stays.prompts, reason)


def _saving(moments: Moments, stays: GroupMove, size: int) -> GroupMove:
    """The move to `size`, with what it saves; NaN where a noise is not above 0."""
    logs = _log_cost(moments, stays.used) - _log_cost(moments, size)
    estimate = resampling.estimate(float(logs[0]), logs[1:])
    reach = confidence.quantile(int(moments.informative.sum())) * estimate.se
    ends = math.exp(estimate.value - reach), math.exp(min(estimate.value + reach, 700.0))
    return GroupMove(stays.used, size, math.exp(estimate.value), ends, stays.best, stays.prompts)


def _log_cost(moments: Moments, size: int) -> NDArray:
    """Logarithm of the rollouts for one error, of all prompts and without each, (1 + P,); NaN for an error below 0."""
    cost = np.concatenate([planning.cost_mse(part, size, 0.0, 1.0) for part in (moments.pooled, moments.jackknife)])
    return np.log(cost, out=np.full(cost.shape, np.nan), where=cost > 0)
