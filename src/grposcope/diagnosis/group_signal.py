"""How much signal the groups of rollouts carry: variance within and between, dead groups, and other group sizes. Ours.

The variance of rewards splits into that within groups, which the advantages see, and that between, which the baseline
takes away. One-way analysis of variance, unbiased for groups of unequal size n_i, k groups, N rollouts:

    within = Σ (n_i − 1) s_i² / (N − k)        between = (MSB − within) / n₀,  n₀ = (N − Σ n_i²/N) / (k − 1)

Dead groups are compared with what the success rates explain by chance (`ustat.dead_groups`): many more than that
means that rollouts of a group copy each other, or that rates lie further apart than a Beta distribution. What another
group size would buy is unbiased up to the logged size, and by a Beta distribution of success rates beyond.

Conventions: rates change, so everything is said of the early and late parts of a run by themselves. Standard errors
are jackknifed over groups. Degenerate: groups of one have no variance within and are left out. Groups that a
trainer kept because they were not dead (dynamic sampling) are a selection; where the record says so there is nothing
to expect.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from grposcope.diagnosis.findings import Evidence
from grposcope.records import Estimate
from grposcope.runs.run import Floats, Groups, Ints, Run
from grposcope.timeseries.change import EARLY, LATE
from grposcope.timeseries.level import Span
from grposcope.ustat import dead_groups, resampling

LEAST = 10
"""Groups below which nothing is said of them."""

SIZES = (2, 4, 8, 16, 32, 64)
"""Group sizes that are tried besides the logged one."""

VALUES = 64
"""Different rewards above which other sizes are not tried: such groups are hardly ever dead."""


@dataclass(frozen=True)
class Signal:
    """What the groups of some steps carry.

    first, last: steps. groups, size: how many, and the median of their rollouts. within, between: variances of the
    reward. dead: observed share; expected: by chance from the success rates, None unless rewards take two values in
    groups of one size that are no selection. live: size -> live groups that 100 rollouts buy.
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
        """The size that buys most live groups per rollout; ties go to the smaller."""
        known = {size: live.value for size, live in self.live.items() if np.isfinite(live.value)}
        return max(known, key=lambda size: (known[size], -size)) if known else self.size

    def evidence(self) -> tuple[Evidence, ...]:
        """The numbers that bear on dead groups."""
        said = [
            Evidence("variance of the reward within groups", self.within.value, self.within.se),
            Evidence("and between groups", self.between.value, self.between.se),
        ]
        if self.expected is not None and not self.expected.flag:
            said.append(Evidence("dead groups that the success rates explain", self.expected.value, self.expected.se))
        for size in dict.fromkeys((self.size, self.best)):
            if size in self.live and np.isfinite(self.live[size].value):
                live = self.live[size]
                said.append(Evidence(f"live groups that 100 rollouts buy in groups of {size}", live.value, live.se,
                                     "extrapolated" if size > self.size else ""))  # fmt: skip
        return tuple(said)


def signal(run: Run, span: Span = LATE) -> Signal | None:
    """The signal over a share of the steps that have groups; None if they hold fewer than LEAST groups of two."""
    groups = run.groups
    if len(groups) < LEAST:
        return None
    steps = np.unique(groups.step)
    inside = steps[int(span[0] * len(steps)) : max(int(np.ceil(span[1] * len(steps))), 1)]
    chosen = (groups.step >= inside[0]) & (groups.step <= inside[-1]) & (groups.sizes >= 2)
    finite = np.isfinite(np.add.reduceat(groups.rewards, groups.offsets[:-1])) if len(groups.rewards) else chosen
    table = _matrix(groups, np.flatnonzero(chosen & finite))
    if len(table) < LEAST:
        return None
    sizes = (~np.isnan(table)).sum(1)
    size, values = int(np.median(sizes)), np.unique(table[~np.isnan(table)])
    within, between = variances(table)
    expected = None
    if len(values) == 2 and np.ptp(sizes) == 0 and not run.config.get("objective", {}).get("resample_dead"):
        expected = dead_groups.predicted(np.bincount((table == values[1]).sum(1), minlength=size + 1))
    live = {}
    if len(values) <= VALUES:
        tried = sorted({*SIZES, size}) if len(values) <= 2 else sorted({s for s in SIZES if s < size} | {size})
        found = {s: dead_groups.live_per_rollout(table, s) for s in tried}
        live = {s: Estimate(100 * e.value, 100 * e.se, e.n, e.flag) for s, e in found.items()}
    return Signal(
        int(inside[0]), int(inside[-1]), len(table), size, within, between,
        dead_groups.share(table), expected, live,
    )  # fmt: skip


def block(run: Run) -> dict[str, Any] | None:
    """The early and late signal as a document; None for runs without groups."""
    parts = {name: signal(run, span) for name, span in (("early", EARLY), ("late", LATE))}
    found = {name: {**asdict(part), "best_size": part.best} for name, part in parts.items() if part is not None}
    return found or None


def successes(groups: Groups) -> tuple[Ints, int] | None:
    """Successes of every group (N,) and the group size; None unless rewards take two values and sizes are equal.

    The larger of the two values is a success.
    """
    sizes = groups.sizes
    if not len(groups) or sizes[0] < 2 or (sizes != sizes[0]).any():
        return None
    least, most = groups.rewards.min(), groups.rewards.max()
    if not np.isfinite([least, most]).all() or not ((groups.rewards == least) | (groups.rewards == most)).all():
        return None
    threshold = (least + most) / 2 if least < most else 0.5
    return (groups.rewards > threshold).reshape(len(groups), -1).sum(1), int(sizes[0])


def variances(table: Floats) -> tuple[Estimate, Estimate]:
    """Variance within and between groups of rewards (k, n), NaN for no rollout."""
    n = (~np.isnan(table)).sum(1).astype(np.float64)
    mean = np.nanmean(table, 1)
    squares = np.nansum((table - mean[:, None]) ** 2, 1)

    def split(k: Floats, sums: Floats) -> tuple[Floats, Floats]:
        """From k groups and (5, …) sums of squares, n, n², n mean, n mean²."""
        inner, total, second, first, square = sums
        with np.errstate(divide="ignore", invalid="ignore"):
            within = inner / (total - k)
            middle = (square - first**2 / total) / (k - 1)
            return within, (middle - within) / ((total - second / total) / (k - 1))

    parts = np.array([squares, n, n**2, n * mean, n * mean**2])
    whole = parts.sum(1)
    value = split(np.array(float(len(n))), whole)
    left = split(np.full(len(n), len(n) - 1.0), whole[:, None] - parts)
    return resampling.estimate(float(value[0]), left[0]), resampling.estimate(float(value[1]), left[1])


def _matrix(groups: Groups, chosen: Ints) -> Floats:
    """Rewards (len(chosen), largest size), NaN beyond a group's end."""
    sizes = groups.sizes[chosen]
    table = np.full((len(chosen), int(sizes.max(initial=0))), np.nan)
    inside = np.arange(table.shape[1]) < sizes[:, None]
    rows = groups.offsets[chosen][:, None] + np.arange(table.shape[1])
    table[inside] = groups.rewards[rows[inside]]
    return table
