"""Signal in the groups of rollouts: variance of rewards within and between groups, dead groups, and other group sizes.

The variance of rewards splits into that within groups, which the advantages see, and that between groups, which the
baseline removes. One-way analysis of variance, unbiased for groups of unequal size n_i, k groups, N rollouts:

    within = Σ (n_i − 1) s_i² / (N − k)        between = (MSB − within) / n₀,  n₀ = (N − Σ n_i²/N) / (k − 1)

Dead groups are compared with what the success rates explain by chance (`maths.dead_groups`): many more than that
means that rollouts of a group copy each other, or that rates lie further apart than a Beta distribution. What another
group size would buy is unbiased up to the logged size, and by a Beta distribution of success rates beyond.

Success rates change during training, so the early and late parts of a run are described separately. Standard errors are
jackknifed over groups. Groups of one have no variance within and are left out. Groups that a trainer kept because they
were not dead (dynamic sampling) are a selection; where the record says so, no share of dead groups is expected.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from grposcope.core.estimate import Estimate
from grposcope.core.finding import Sign
from grposcope.core.run import Floats, Groups, Ints, Run
from grposcope.maths import dead_groups, resampling
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.maths.timeseries.level import Span

LEAST = 10
"""Groups below which no signal is computed."""

SIZES = (2, 4, 8, 16, 32, 64)
"""Group sizes that are tried besides the logged one."""

VALUES = 64
"""Different rewards above which other sizes are not tried: such groups are hardly ever dead."""


@dataclass(frozen=True)
class _Signal:
    """The signal in the groups of steps `first` to `last`.

    groups, size: their number and the median of their rollouts. within, between: variances of the reward. dead:
    observed share of dead groups. expected: the share that the success rates explain by chance, None unless rewards
    take two values in groups of one size that are no selection. live: group size -> live groups that 100 rollouts buy.
    """

    first: int
    last: int
    groups: int
    size: int
    within: Estimate
    between: Estimate
    dead: Estimate
    expected: Estimate | None
    live: dict[int, Estimate]

    @property
    def best(self) -> int:
        """The group size that buys most live groups per rollout; ties go to the smaller."""
        sizes = {size: live.value for size, live in self.live.items() if np.isfinite(live.value)}
        return max(sizes, key=lambda size: (sizes[size], -size)) if sizes else self.size

    def evidence(self) -> tuple[Sign, ...]:
        """The numbers that bear on dead groups."""
        evidence = [
            Sign("variance of the reward within groups", self.within.value, self.within.se),
            Sign("variance of the reward between groups", self.between.value, self.between.se),
        ]
        if self.expected is not None and not self.expected.flag:
            explained = "share of dead groups expected from the success rates"
            evidence.append(Sign(explained, self.expected.value, self.expected.se))
        for size in dict.fromkeys((self.size, self.best)):
            if size in self.live and np.isfinite(self.live[size].value):
                live, limit = self.live[size], "extrapolated" if size > self.size else ""
                bought = f"live groups per 100 rollouts with group size {size}"
                evidence.append(Sign(bought, live.value, live.se, limit))
        return tuple(evidence)


def signal(run: Run, span: Span = LATE) -> _Signal | None:
    """Signal over a share of the steps that have groups; None if they hold fewer than LEAST groups of two or more."""
    groups = run.groups
    if len(groups) < LEAST:
        return None
    steps = np.unique(groups.step)
    inside = steps[int(span[0] * len(steps)) : max(int(np.ceil(span[1] * len(steps))), 1)]
    chosen = (groups.step >= inside[0]) & (groups.step <= inside[-1]) & (groups.sizes >= 2)
    finite = np.isfinite(np.add.reduceat(groups.rewards, groups.offsets[:-1])) if len(groups.rewards) else chosen
    rewards = _matrix(groups, np.flatnonzero(chosen & finite))
    if len(rewards) < LEAST:
        return None
    sizes = (~np.isnan(rewards)).sum(1)
    size, values = int(np.median(sizes)), np.unique(rewards[~np.isnan(rewards)])
    within, between = variances(rewards)
    expected = None
    if len(values) == 2 and np.ptp(sizes) == 0 and not run.resamples_dead:
        expected = dead_groups.predicted(np.bincount((rewards == values[1]).sum(1), minlength=size + 1))
    live = {}
    if len(values) <= VALUES:
        tried = sorted({*SIZES, size}) if len(values) <= 2 else sorted({s for s in SIZES if s < size} | {size})
        per_rollout = {s: dead_groups.live_per_rollout(rewards, s) for s in tried}
        live = {s: Estimate(100 * e.value, 100 * e.se, e.n, e.flag) for s, e in per_rollout.items()}
    return _Signal(
        int(inside[0]), int(inside[-1]), len(rewards), size, within, between, dead_groups.share(rewards), expected, live
    )


def document(run: Run) -> dict[str, Any] | None:
    """The early and late signal as a JSON document; None for runs without groups."""
    parts = {}
    for name, span in (("early", EARLY), ("late", LATE)):
        if (piece := signal(run, span)) is not None:
            parts[name] = {**asdict(piece), "best_size": piece.best}
    return parts or None


def variances(rewards: Floats) -> tuple[Estimate, Estimate]:
    """Variance within and between groups of rewards (k, n), where NaN stands for no rollout."""
    n = (~np.isnan(rewards)).sum(1).astype(np.float64)
    mean = np.nanmean(rewards, 1)
    squares = np.nansum((rewards - mean[:, None]) ** 2, 1)

    def split(k: Floats, sums: Floats) -> tuple[Floats, Floats]:
        """Variance within and between from k groups and (5, …) sums of squares, n, n², n mean, n mean²."""
        inner, total, second, first, square = sums
        with np.errstate(divide="ignore", invalid="ignore"):
            within = inner / (total - k)
            middle = (square - first**2 / total) / (k - 1)
            return within, (middle - within) / ((total - second / total) / (k - 1))

    parts = np.array([squares, n, n**2, n * mean, n * mean**2])
    sums = parts.sum(1)
    value = split(np.array(float(len(n))), sums)
    left_out = split(np.full(len(n), len(n) - 1.0), sums[:, None] - parts)
    return resampling.estimate(float(value[0]), left_out[0]), resampling.estimate(float(value[1]), left_out[1])


def _matrix(groups: Groups, chosen: Ints) -> Floats:
    """Rewards of the chosen groups (len(chosen), largest size), NaN beyond a group's end."""
    sizes = groups.sizes[chosen]
    matrix = np.full((len(chosen), int(sizes.max(initial=0))), np.nan)
    inside = np.arange(matrix.shape[1]) < sizes[:, None]
    rows = groups.offsets[chosen][:, None] + np.arange(matrix.shape[1])
    matrix[inside] = groups.rewards[rows[inside]]
    return matrix
