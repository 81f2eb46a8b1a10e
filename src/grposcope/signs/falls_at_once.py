"""A reward that falls from the first steps on while the policy is still near its start and writes as it did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grposcope.maths.timeseries.noise import Array
from grposcope.signs.quantities import LEAST, MetricSeries, Quantities

LEFT = 0.25
"""Share of the first reward, above the least there can be, that is left where it has fallen."""

SOON = 0.4
"""Share of the run within which it has to have fallen."""

NEAR = 0.3
"""Nats of KL per token where it has fallen, at most: a policy that lost its way by too large steps is farther."""

_ROSE, _BEYOND = 1.3, 3.0
"""Smoothed reward over the first, before it fell, that is a rise, where it is so many standard errors of a mean above
the first as well."""

_ALIKE = 2.5
"""Factor by which the entropy may have changed where the reward has fallen."""

_MORE = 0.1
"""Share of completions by which more may be cut there than at first."""

AT_FIRST = 3
"""Rows from whose median something is as at first; what has fallen within them has no such rows before it."""

ENTROPY, CUT = "the entropy", "the share of cut completions"
"""What may be as at first."""

APART = 0.01
"""Mismatch of sampler and trainer there, in nats per token, at most."""


@dataclass(frozen=True)
class _FallNearStart:
    """From `first` to `low` at `step`, where the KL to the start is `kl`, None where it is not logged. beside: what was
    as at first."""

    first: float
    low: float
    step: int
    kl: float | None
    beside: tuple[str, ...]


def fall(quantities: Quantities) -> _FallNearStart | None:
    """Such a fall of the reward; None where there is none, or where too little is logged to say that the policy is near
    its start: a KL, or in its place the entropy and the share of cut completions to the end."""
    reward, kl = quantities.get("reward", LEAST), quantities.get("kl", LEAST)
    if reward is None or (kl is not None and abs(kl.values[0]) > NEAR) or quantities.run.window > 1:
        return None
    width = max(3, len(reward) // 20)
    smooth = np.convolve(reward.values, np.ones(width) / width, "valid")  # smooth[k] is of the rows k … k + width − 1
    ends = quantities.reward_range
    if ends is None:
        return None
    least = ends[0]
    first = smooth[0] - least
    low = np.flatnonzero(smooth - least <= LEFT * first)
    if first <= 0 or not len(low) or np.median(smooth[low[0] :] - least) > LEFT * first:
        return None
    row = int(low[0])
    step = float(reward.steps[row + width - 1])
    if row < AT_FIRST or row > SOON * len(smooth) or _rises(reward.values[: row + width], smooth[:row] - least, width):
        return None
    far = _around(kl, step, width)
    beside = _as_at_first(quantities, step, width)
    if beside is None or (abs(far) > NEAR if far is not None else not _stays(quantities, beside, width)):
        return None
    return _FallNearStart(float(smooth[0]), float(smooth[row]), int(step), far, beside)


def _rises(rewards: Array, smooth: Array, width: int) -> bool:
    """Whether the reward rose before it fell: the largest of its means over `width` rows (m,) is _ROSE of the first, by
    _BEYOND standard errors of one, told by the differences between rows (m + width,)."""
    noise = float(np.sqrt(np.mean(np.diff(rewards) ** 2) / 2 / width))
    return bool(smooth.max() > _ROSE * smooth[0] and smooth.max() - smooth[0] > _BEYOND * noise)


def _stays(quantities: Quantities, beside: tuple[str, ...], width: int) -> bool:
    """Whether entropy and cut completions are as at first where the reward has fallen and in the last rows too, which
    too large steps do not leave so: in place of a KL that is not logged."""
    last = _as_at_first(quantities, float(quantities.run.table["step"][-1]), width)
    return {ENTROPY, CUT} <= {*beside} and last is not None


def _around(series: MetricSeries | None, step: float, width: int) -> float | None:
    """The median of the last rows up to a step; None where there are none."""
    if series is None:
        return None
    rows = series.values[series.steps <= step][-width:]
    return float(np.median(rows)) if len(rows) else None


def _as_at_first(quantities: Quantities, step: float, width: int) -> tuple[str, ...] | None:
    """What was as at first where the reward had fallen; None where something was not."""
    entropy, cut, mismatch = (quantities.get(name, LEAST) for name in ("entropy", "truncated", "mismatch"))
    same = []
    if entropy is not None and (then := _around(entropy, step, width)) is not None:
        ratio = then / max(_start(entropy.values), 1e-9)
        if not 1 / _ALIKE < ratio < _ALIKE:
            return None
        same.append(ENTROPY)
    if cut is not None and (then := _around(cut, step, width)) is not None:
        if then - _start(cut.values) > _MORE:
            return None
        same.append(CUT)
    if mismatch is not None and abs(_around(mismatch, step, width) or 0.0) > APART:
        return None
    return tuple(same)


def _start(values: Array) -> float:
    return float(np.median(values[:AT_FIRST]))
