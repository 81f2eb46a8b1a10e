"""A run as the rules see it: quantities by one name, gaps left out, each curve fitted once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from grposcope.runs import metrics
from grposcope.runs.run import Run
from grposcope.timeseries import change
from grposcope.timeseries import level as levels
from grposcope.timeseries.change import MeanCurve
from grposcope.timeseries.noise import Array, Contrast
from grposcope.ustat import dead_groups

LEAST = 30
"""Rows below which changes of a training metric are not tested: autocorrelation cannot be judged."""

SHORT = 12
"""Rows below which its levels are not tested either."""

EVALUATIONS = 4
"""Held-out evaluations below which they are not tested."""

_OTHER = ("length", "token", "trunc", "clip", "loss", "entropy", "kl", "time", "runtime", "second", "std", "min", "max",
          "num_", "n_", "steps", "samples", "epoch", "best@", "worst@", "turns", "grad")  # fmt: skip
_BEST = ("pass@1", "accuracy", "acc", "mean@", "reward", "score", "pass1", "success", "maj@")


@dataclass(frozen=True)
class Series:
    """Finite values (n,) of a metric with their steps; name: the metric's own, as in the vocabulary."""

    name: str
    steps: Array
    values: Array

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def curve(self) -> MeanCurve:
        """The mean curve with its uncertainty."""
        return change.fit(self.values)

    @cached_property
    def logs(self) -> Array | None:
        """Logarithms, for quantities whose noise is a factor; None if more than 5 % of the values are ≤ 0."""
        positive = self.values > 0
        if positive.sum() < max(0.95 * len(self), SHORT):
            return None
        return np.log(self.values[positive])

    def level(self, span: levels.Span, above: float = 0.0) -> Contrast:
        """Where it was over a part of the run, less a constant."""
        return levels.level(self.values, span, above)

    def onset(self) -> int:
        """Step at which its change begins."""
        return int(self.steps[min(change.onset(self.values).row, len(self) - 1)])

    def first_above(self, limit: float) -> int | None:
        """First step from which on the running mean stays above `limit`; None if there is none."""
        above = np.cumsum(self.values - limit)
        lowest = np.minimum.accumulate(above[::-1])[::-1]  # of this and all later sums
        over = np.flatnonzero(lowest > np.concatenate([[0.0], above[:-1]]))
        return int(self.steps[over[0]]) if len(over) else None


class View:
    """Quantities of a run; each is looked up and fitted once."""

    def __init__(self, run: Run):
        self.run = run
        self._series: dict[str, Series | None] = {}

    def exact(self, name: str) -> Series | None:
        """A column by its very name; None if it is not there or has no finite value."""
        if name not in self._series:
            column = self.run.table.get(name)
            good = np.isfinite(column) if column is not None else np.zeros(0, bool)
            found = bool(good.any())
            self._series[name] = None
            if column is not None and found:
                self._series[name] = Series(name, self.run.table["step"][good], column[good])
        return self._series[name]

    def get(self, quantity: str, least: int = LEAST) -> Series | None:
        """The nearest relative of a quantity with at least `least` finite values."""
        for name in metrics.VARIANTS.get(quantity, (quantity,)):
            found = self.exact(name)
            if found is not None and len(found) >= least:
                return found
        return None

    def lacks(self, quantity: str, least: int = LEAST) -> str:
        """Why `get` found nothing, in a clause."""
        names = metrics.VARIANTS.get(quantity, (quantity,))
        rows = max((len(found) for name in names if (found := self.exact(name))), default=0)
        title = metrics.metric(quantity).title.lower()
        return f"{rows} rows of {title} are fewer than {least}" if rows else f"no {title} is logged"

    def components(self, kind: str = "component") -> dict[str, Series]:
        """Reward components (or their spreads, kind="component_std") with enough values, by bare name."""
        names = [name for name in self.run.table if name.startswith(kind + "/")]
        found = {name.partition("/")[2]: self.exact(name) for name in names}
        return {name: series for name, series in found.items() if series is not None and len(series) >= SHORT}

    @cached_property
    def heldout(self) -> Series | None:
        """The held-out score that was evaluated most often, accuracy before reward; None if there are too few."""
        best: tuple[int, int, str] | None = None
        for metric in self.run.evaluations.metrics:
            low = metric.lower()
            if any(part in low for part in _OTHER):
                continue
            rank = next((i for i, part in enumerate(_BEST) if part in low), len(_BEST))
            count = int(np.isfinite(self.run.evaluations.of(metric).value).sum())
            if count >= EVALUATIONS and (best is None or (rank, -count, metric) < best):
                best = (rank, -count, metric)
        if best is None:
            return None
        rows = self.run.evaluations.of(best[2])
        good = np.isfinite(rows.value)
        return Series(best[2], rows.step[good].astype(np.float64), rows.value[good])

    @cached_property
    def group(self) -> int | None:
        """Rollouts in a group, from the groups or the settings; None if neither says."""
        if len(self.run.groups):
            return int(np.median(self.run.groups.sizes))
        found = self.run.setting("group")
        try:
            return None if found is None else int(found)
        except (TypeError, ValueError):
            return None

    @cached_property
    def dead(self) -> Series | None:
        """Share of dead groups per step; a lower bound, and so named, where only other metrics prove some."""
        logged = self.get("dead_fraction")
        if logged is not None:
            return logged
        groups = self.run.groups
        if len(groups) >= LEAST:
            steps, where = np.unique(groups.step, return_inverse=True)
            shares = np.bincount(
                where, weights=dead_groups.is_dead_ragged(groups.rewards, groups.offsets)
            ) / np.bincount(where)
            if len(steps) >= LEAST:
                return Series("dead_fraction of the groups", steps.astype(np.float64), shares)
        return self._dead_at_least()

    @cached_property
    def binary(self) -> bool:
        """Whether rewards are 0 or 1: every batch's least and largest are, or the setting rewards=binary says so."""
        ends = [self.run.table.get(name) for name in ("reward_min", "reward_max")]
        seen = [end[np.isfinite(end)] for end in ends if end is not None]
        proved = len(seen) == 2 and all(len(end) and np.isin(end, (0.0, 1.0)).all() for end in seen)
        return proved or self.run.setting("rewards") == "binary"

    def _dead_at_least(self) -> Series | None:
        """1 where a whole batch had one reward; for 0/1 rewards the larger of two bounds.

        p^G + (1 − p)^G, by convexity the least there can be at mean reward p; and 1 − √G std, since a live group
        of 0/1 rewards has at least the spread √(1/G) (ddof 1).
        """
        table = self.run.table
        bounds = []
        if "reward_max" in table and "reward_min" in table:
            spread = table["reward_max"] - table["reward_min"]
            bounds.append(np.where(np.isfinite(spread), (spread == 0).astype(np.float64), np.nan))
        if self.binary and self.group and "reward" in table:
            p = np.clip(table["reward"], 0, 1)
            bounds.append(p**self.group + (1 - p) ** self.group)
            if "reward_std" in table:
                bounds.append(1 - table["reward_std"] * math.sqrt(self.group))
        if not bounds:
            return None
        bound = np.fmax.reduce(bounds)
        good = np.isfinite(bound)
        return Series("dead_fraction, lower bound", table["step"][good], bound[good]) if good.sum() >= LEAST else None

    @cached_property
    def reward_range(self) -> tuple[float, float] | None:
        """Least and largest reward seen; (0, 1) where the means lie there; None if unknown."""
        low, high = self.exact("reward_min"), self.exact("reward_max")
        if len(self.run.groups):
            rewards = self.run.groups.rewards[np.isfinite(self.run.groups.rewards)]
            if len(rewards) and np.ptp(rewards) > 0:
                return float(rewards.min()), float(rewards.max())
        if low is not None and high is not None and high.values.max() > low.values.min():
            return float(low.values.min()), float(high.values.max())
        reward = self.get("reward")
        if reward is not None and reward.values.min() >= 0 and reward.values.max() <= 1:
            return 0.0, 1.0
        return None
