"""Dead groups of a run: how many were seen, how many chance explains, and how many other group sizes would have.

The success rates of a run change, so estimates are taken within windows of steps and averaged over these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from grposcope.core.estimate import Estimate
from grposcope.core.run import Groups, Ints, Run
from grposcope.core.text import percent
from grposcope.maths import dead_groups
from grposcope.maths.dead_groups import Counts
from grposcope.maths.intervals import Z

GROUPS_PER_WINDOW, WINDOWS = 150, 50
"""Groups in a window at least, and windows at most."""

Basis = Literal["as sampled", "subsets of groups, unbiased", "Beta prediction"]

APART = 0.05
"""Shares of dead groups that are this near each other say nothing of the prompts, however sure they are."""


@dataclass(frozen=True)
class Windows:
    """Histograms of successes K over windows of steps: counts (W, G + 1), first and last step of each (W,)."""

    first: Ints
    last: Ints
    counts: Counts

    @property
    def group(self) -> int:
        """Rollouts of a group, G."""
        return self.counts.shape[1] - 1

    def observed(self) -> Estimate:
        """Share of all groups that were dead."""
        return dead_groups.observed(self.counts.sum(0))

    def expected(self) -> Estimate:
        """Share that chance explains, success rates spread over prompts as a Beta distribution."""
        return self._averaged([dead_groups.predicted(counts) for counts in self.counts])

    def alike(self) -> Estimate:
        """Share that chance explains if all prompts of a window were equally hard."""
        return self._averaged([dead_groups.alike(counts) for counts in self.counts])

    def other_sizes(self) -> list[tuple[int, Estimate, Basis]]:
        """Expected shares in the last window for a quarter of the group size to four times of it.

        The size, the share, and what the estimate rests on.
        """
        counts, group = self.counts[-1], self.group
        shares: list[tuple[int, Estimate, Basis]] = [
            (size, dead_groups.subsets(counts, size), "subsets of groups, unbiased")
            for size in (group // 4, group // 2)
            if size >= 2
        ]
        shares.append((group, dead_groups.subsets(counts, group), "as sampled"))
        shares += [(size, dead_groups.predicted(counts, size), "Beta prediction") for size in (2 * group, 4 * group)]
        return shares

    def _averaged(self, parts: Sequence[Estimate]) -> Estimate:
        """Mean over windows, each weighed by its groups."""
        n = self.counts.sum(1)
        flags = {estimate.flag for estimate in parts if estimate.flag}
        value = sum(w * estimate.value for w, estimate in zip(n, parts, strict=True)) / n.sum()
        error = math.sqrt(sum((w * estimate.se) ** 2 for w, estimate in zip(n, parts, strict=True))) / n.sum()
        return Estimate(float(value), float(error), int(n.sum()), "; ".join(sorted(flags)))


@dataclass(frozen=True)
class _DeadGroups:
    """Dead groups of a run, observed and expected; windows is None where chance cannot be told, for this reason."""

    windows: Windows | None
    reason: str = ""

    def sentence(self) -> str:
        """The observed share against the expected one, or why the latter cannot be told."""
        if self.windows is None:
            return self.reason
        seen, expected = self.windows.observed(), self.windows.expected()
        text = f"{percent(seen.value)} of {seen.n:,} groups were dead: all their rewards were equal, so they "
        text += "taught nothing. "
        if expected.flag:
            return text + f"Cannot tell how many to expect: {expected.flag}."
        margin = percent(Z * expected.se, 1)
        text += f"Expected, with difficulty spread smoothly over prompts: {percent(expected.value)} ± {margin}"
        if abs(seen.value - expected.value) <= Z * math.hypot(seen.se, expected.se):
            return text + ", which agrees with what was seen."
        if abs(seen.value - expected.value) < APART:
            return text + ", which is close to what was seen."
        if seen.value < expected.value:
            return text + ". Fewer were dead: hardly any prompt is always or never solved."
        return text + ". More were dead: look for prompts that are always or never solved, or answers that repeat."


def of_run(run: Run) -> _DeadGroups:
    """Dead groups of a run, from its record of groups."""
    groups = run.groups
    if run.resamples_dead:
        reason = (
            "Dead groups were replaced by further prompts, so the recorded groups are a selection that does "
            "not show what chance alone would give; the curve counts all groups drawn."
        )
    elif str(run.setting("allocate") or "uniform").partition(":")[0] != "uniform":
        reason = (
            "Problems were drawn by their success rates, so the recorded groups are a selection that does "
            "not show what chance alone would give."
        )
    elif not len(groups):
        reason = "No groups are recorded, so the expected share is unknown."
    elif (groups.sizes != groups.sizes[0]).any():
        reason = "Groups differ in size, so the expected share is not computed."
    elif groups.sizes[0] < 2:
        reason = "Groups of one rollout are always dead: there is nothing to compare with."
    elif (windows := _windows(groups)) is not None:
        return _DeadGroups(windows)
    else:
        reason = "Rewards take more than two values, so the binomial share of dead groups does not apply."
    return _DeadGroups(None, reason)


def _successes(groups: Groups) -> Ints | None:
    """Successes of every group (N,), for groups of one size; None unless rewards take two values at most.

    The larger of the two values is a success, and 1 where there is one value only.
    """
    low, high = groups.rewards.min(), groups.rewards.max()
    if not np.isfinite([low, high]).all() or not ((groups.rewards == low) | (groups.rewards == high)).all():
        return None
    threshold = (low + high) / 2 if low < high else 0.5
    return np.asarray((groups.rewards > threshold).reshape(len(groups), -1).sum(1))


def _windows(groups: Groups) -> Windows | None:
    """Histograms over windows of steps with about equal numbers of groups; None where `successes` is."""
    solved = _successes(groups)
    if solved is None:
        return None
    steps, starts = np.unique(groups.step, return_index=True)
    count = int(np.clip(len(groups) // GROUPS_PER_WINDOW, 1, min(WINDOWS, len(steps))))
    parts = np.array_split(np.arange(len(steps)), count)
    ends, size = np.append(starts, len(groups)), int(groups.sizes[0])
    counts = [np.bincount(solved[ends[p[0]] : ends[p[-1] + 1]], minlength=size + 1) for p in parts]
    first, last = (np.array([steps[p[i]] for p in parts]) for i in (0, -1))
    return Windows(first, last, np.array(counts))
