"""The quantities that the rules ask for, one name each whichever trainer logged the run, without gaps, fitted once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from grposcope.core import metrics
from grposcope.core.run import Run
from grposcope.core.text import apart, visible
from grposcope.maths import dead_groups
from grposcope.maths.timeseries import change
from grposcope.maths.timeseries import level as levels
from grposcope.maths.timeseries.change import EARLY, MeanCurve
from grposcope.maths.timeseries.change_points import LevelShift
from grposcope.maths.timeseries.mean_curve import SamplingVariance
from grposcope.maths.timeseries.noise import Array, Contrast
from grposcope.signs import present, sampling_noise
from grposcope.signs.present import Present
from grposcope.signs.thresholds import SOLVED

LEAST = 30
"""Rows below which changes of a training metric are not tested: autocorrelation cannot be judged."""

SHORT = 10
"""Rows below which the level of a training metric is not tested either, and no exact fact told."""

EVALUATIONS = 4
"""Held-out evaluations below which they are not tested."""

SHARES = frozenset(
    name for quantity in ("truncated", "dead_fraction", "clip") for name in metrics.VARIANTS.get(quantity, (quantity,))
)
"""Columns that are shares, by their definition."""

NO_SPREAD = 1e-9
"""A spread of the rewards of a batch that is none but for rounding."""

_FINE = 0.15
"""Spread of rewards over that of rewards of 0 and 1 with the same mean, below which they are about the mean."""

KEY = 34
"""Characters of a log's key that a first line has room for."""

LOWER_BOUND = "dead_fraction, lower bound"
"""Name of the series of dead groups where the log proves only that there are at least so many."""


def too_few(rows: int, title: str, least: int) -> str:
    """That a quantity has too few rows to be tested, and how many it takes, as a clause."""
    return f"only {rows} row{'s' * (rows != 1)} of {title} logged; at least {least} are needed"


COMPUTED = ("grposcope", "verl", "slime", "mlx-lm-lora")
"""Engines that log a KL only where it is computed; others may log 0 without a KL coefficient."""


class NotLoggedError(Exception):
    """A quantity without which a rule cannot tell is not logged, or on too few rows; the message is a clause."""

    def __init__(self, quantity: str, reason: str):
        super().__init__(reason)
        self.quantity = quantity


@dataclass(frozen=True)
class MetricSeries:
    """Finite values (n,) of one metric and their steps (n,); name: the column's name, as in `core.metrics`.

    sampling: the variance that each value has because its rollouts are drawn anew, where it is known.
    """

    name: str
    steps: Array
    values: Array
    sampling: SamplingVariance | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def rows(self) -> str:
        """What its rows are called when they are counted: steps if there is one at every step, else rows."""
        return "steps" if len(self) < 2 or np.ptp(self.steps) == len(self) - 1 else "rows"

    @cached_property
    def curve(self) -> MeanCurve:
        """The mean curve with its uncertainty."""
        return change.fit(self.values, self.sampling)

    @cached_property
    def line(self) -> MeanCurve | None:
        """The mean curve without bends, where none are evident."""
        return change.fit_line(self.values, self.sampling)

    @cached_property
    def shift(self) -> LevelShift | None:
        """The likeliest shift from one level to another; None for a constant series."""
        return change.sudden(self.values)

    @cached_property
    def present(self) -> Present:
        """Its levels at first, at best and at last, by the noise of those rows alone."""
        return present.present(self.values, self.shift if len(self) >= change.LEAST else None)

    @cached_property
    def logs(self) -> MetricSeries | None:
        """Logarithms, for quantities whose noise is a factor; None if more than 5 % of the values are ≤ 0."""
        positive = self.values > 0
        if positive.sum() < max(0.95 * len(self), SHORT):
            return None
        return MetricSeries(self.name, self.steps[positive], np.log(self.values[positive]))

    def level(self, span: levels.Span, above: float = 0.0) -> Contrast:
        """Mean over a part of the run, minus the constant `above`."""
        return levels.level(self.values, span, above)

    def change(self, first: levels.Span, last: levels.Span, ratio: float = 1.0, minus: float = 0.0) -> Contrast:
        """Mean over the part `last` less `ratio` × the mean over the part `first`, less a constant."""
        return levels.change(self.values, first, last, ratio, minus)

    def geometric_mean(self, span: levels.Span) -> tuple[float, float]:
        """Geometric mean over a part of the run and its standard error; the series must have logarithms."""
        assert self.logs is not None
        level = self.logs.level(span)
        value = math.exp(level.value)
        return value, value * level.se


def _are_percent(values: Array) -> bool:
    """Whether shares (n,) were logged in per cent: some are above 1, none above 100, and they are no counts."""
    return bool(values.min() >= 0 and 1 < values.max() <= 100 and (values.max() == 100 or (values % 1).any()))


class Quantities:
    """Quantities of a run, each looked up and fitted once."""

    def __init__(self, run: Run):
        self.run = run
        self._columns: dict[str, MetricSeries | None] = {}

    def key(self, name: str) -> str:
        """The log's own key of a column."""
        key = visible(self.run.keys.get(name, name))
        return key if len(key) <= KEY else "…" + key[1 - KEY :]

    def went(self, name: str, first: float, last: float, unit: str = "") -> str:
        """That a column went from one level to another, with the log's own key, for a first line."""
        a, b = apart(first, last)
        return f"{self.key(name)} {a} → {b}{unit}"

    def column(self, name: str) -> MetricSeries | None:
        """The column of exactly this name; None if the run lacks it or it has no finite value."""
        if name not in self._columns:
            values = self.run.table.get(name)
            finite = np.zeros(0, bool) if values is None else np.isfinite(values)
            self._columns[name] = None
            if values is not None and finite.any():
                variance = sampling_noise.of_reward(self.run) if name == "reward" else None
                shown = values[finite] / (100 if name in SHARES and _are_percent(values[finite]) else 1)
                self._columns[name] = MetricSeries(name, self.run.table["step"][finite], shown, variance)
        return self._columns[name]

    def get(self, quantity: str, least: int = LEAST) -> MetricSeries | None:
        """The first variant of a quantity (`core.metrics.VARIANTS`) that has at least `least` finite values."""
        for name in metrics.VARIANTS.get(quantity, (quantity,)):
            series = self.column(name)
            if series is not None and len(series) >= least:
                return series
        return None

    def require(self, quantity: str, least: int = LEAST) -> MetricSeries:
        """The series that `get` returns; NotLoggedError where there is none."""
        series = self.get(quantity, least)
        if series is None:
            raise NotLoggedError(quantity, self.absence(quantity, least))
        return series

    def require_computed_kl(self, least: int = LEAST) -> MetricSeries:
        """The KL to the start; NotLoggedError where there is none, or where it may be 0 without being computed."""
        kl = self.require("kl", least)
        if self.is_idle_kl(kl):
            raise NotLoggedError("kl", f"{self.key(kl.name)} is exactly 0 in every row, so it may not be computed")
        return kl

    def is_idle_kl(self, kl: MetricSeries) -> bool:
        """Whether a KL of exactly 0 in every row may be one that is not computed, as without a coefficient.

        It is computed where the settings state a coefficient above 0, and wherever one of COMPUTED logs it.
        """
        coefficient = self.run.setting("kl")
        stated = isinstance(coefficient, int | float) and coefficient > 0
        return not kl.values.any() and not stated and self.run.meta.engine not in COMPUTED

    def absence(self, quantity: str, least: int = LEAST) -> str:
        """Why `get` returned None, as a clause."""
        names = metrics.VARIANTS.get(quantity, (quantity,))
        rows = max((len(series) for name in names if (series := self.column(name))), default=0)
        title = metrics.metric(quantity).title.lower()
        return too_few(rows, title, least) if rows else f"no {title} is logged"

    def logged(self, quantity: str) -> bool:
        """Whether the run has a quantity on any row: "components", "evaluation" or a key of `core.metrics.VARIANTS`."""
        run = self.run
        if quantity == "evaluation":
            return bool(len(run.evaluations))
        if quantity == "dead_fraction" and len(run.groups):
            return True
        kinds = {"components": "component/", "component_std": "component_std/"}
        names = [name for name in run.table if name.startswith(kinds[quantity])] if quantity in kinds else ()
        return any(self.column(name) is not None for name in names or metrics.VARIANTS.get(quantity, (quantity,)))

    def components(self, kind: str = "component") -> dict[str, MetricSeries]:
        """Reward components (or their spreads, kind="component_std") of at least SHORT rows, by bare name."""
        names = [name for name in self.run.table if name.startswith(kind + "/")]
        columns = {name.partition("/")[2]: self.column(name) for name in names}
        return {name: series for name, series in columns.items() if series is not None and len(series) >= SHORT}

    def absent_components(self, least: int = 1) -> str:
        """Why there are fewer than `least` components, as a clause."""
        names = [name for name in self.run.table if name.startswith("component/")]
        rows = [len(series) for name in names if (series := self.column(name))]
        if len(rows) >= least:
            return too_few(max(rows), "reward components", SHORT)
        return f"fewer than {least} reward components are logged" if least > 1 else "no components are logged"

    @cached_property
    def group_size(self) -> int | None:
        """Rollouts per group, from the groups or the settings; None if neither says."""
        return sampling_noise.group_size(self.run)

    @cached_property
    def dead_fraction(self) -> MetricSeries | None:
        """Share of dead groups per step; a lower bound, and so named, where only other metrics prove some."""
        logged = self.get("dead_fraction", SHORT)
        if logged is not None:
            return logged
        groups = self.run.groups
        if len(groups) >= SHORT:
            steps, where = np.unique(groups.step, return_inverse=True)
            shares = np.bincount(
                where, weights=dead_groups.is_dead_ragged(groups.rewards, groups.offsets)
            ) / np.bincount(where)
            if len(steps) >= SHORT:
                return MetricSeries("dead_fraction of the groups", steps.astype(np.float64), shares)
        return self._dead_at_least()

    @property
    def dead_fraction_is_bound(self) -> bool:
        """Whether `dead_fraction` is a lower bound only."""
        return self.dead_fraction is not None and self.dead_fraction.name == LOWER_BOUND

    @cached_property
    def binary_rewards(self) -> bool:
        """Whether rewards are 0 or 1: every batch's least and largest are, or the setting rewards=binary says so."""
        return sampling_noise.binary(self.run)

    def _dead_at_least(self) -> MetricSeries | None:
        """Lower bound: 1 where a whole batch had one reward; for 0/1 rewards also the larger of two bounds.

        A batch had one reward where its extremes agree, where its rewards do not spread, or where its mean is an end of
        all means that SHORT rows or more have to the last digit.

        p^G + (1 − p)^G, by convexity the least there can be at mean reward p; and 1 − √G std, since a live group of
        0/1 rewards has at least the spread √(1/G) (ddof 1).
        """
        table = self.run.table
        bounds = []
        if "reward_max" in table and "reward_min" in table:
            spread = table["reward_max"] - table["reward_min"]
            bounds.append(np.where(np.isfinite(spread), (spread == 0).astype(np.float64), np.nan))
        scatter = self.get("reward_std", SHORT)
        if scatter is not None:
            values = table[scatter.name]
            bounds.append(np.where(np.isfinite(values), (np.abs(values) <= NO_SPREAD).astype(np.float64), np.nan))
        if "reward" in table:
            bounds.append(_at_an_end(table["reward"]))
        if self.binary_rewards and self.group_size and "reward" in table:
            p = np.clip(table["reward"], 0, 1)
            bounds.append(p**self.group_size + (1 - p) ** self.group_size)
            if "reward_std" in table:
                bounds.append(1 - table["reward_std"] * math.sqrt(self.group_size))
        if not bounds:
            return None
        bound = np.fmax.reduce(bounds)
        finite = np.isfinite(bound)
        return MetricSeries(LOWER_BOUND, table["step"][finite], bound[finite]) if finite.sum() >= SHORT else None

    @cached_property
    def largest_reward(self) -> float | None:
        """The largest reward of a rollout that was seen, or 1 where rewards are 0 or 1; None if neither is known."""
        low, high = self.column("reward_min"), self.column("reward_max")
        if len(self.run.groups) or (low is not None and high is not None and high.values.max() > low.values.min()):
            return None if self.reward_range is None else self.reward_range[1]
        return 1.0 if high is None and self.binary_rewards else None

    @cached_property
    def reward_range(self) -> tuple[float, float] | None:
        """Least and largest reward seen; (0, 1) where the means lie there; None if unknown."""
        reward, seen = self.get("reward"), self._rewards_seen
        if seen is None and reward is not None and reward.values.min() >= 0 and reward.values.max() <= 1:
            return 0.0, 1.0
        return seen

    @property
    def _rewards_seen(self) -> tuple[float, float] | None:
        """Least and largest reward of single rollouts; None where the log shows none."""
        low, high = self.column("reward_min"), self.column("reward_max")
        if len(self.run.groups):
            rewards = self.run.groups.rewards[np.isfinite(self.run.groups.rewards)]
            if len(rewards) and np.ptp(rewards) > 0:
                return float(rewards.min()), float(rewards.max())
        if low is not None and high is not None and high.values.max() > low.values.min():
            return float(low.values.min()), float(high.values.max())
        return None

    @cached_property
    def least_spread(self) -> float | None:
        """Median spread of rewards within groups whose rewards differ, where it is so small (_FINE of that of rewards
        of 0 and 1 with the same mean) that all rewards are about the mean, whatever the largest may be; else None."""
        reward, spread, dead = self.get("reward"), self.get("reward_std", SHORT), self.get("dead_fraction", SHORT)
        if reward is None or spread is None or dead is None or self._rewards_seen is not None:
            return None
        mean, live = float(np.median(reward.values)), 1 - float(np.median(dead.values))
        if not 0 < mean < 1 or not 0 < live <= 1:
            return None
        differ = float(np.median(spread.values)) / live
        return differ if 0 < differ < _FINE * math.sqrt(mean * (1 - mean)) else None

    def at_ceiling(self, reward: float) -> bool:
        """Whether a mean reward is in the upper part of the range; False where the range is not known."""
        ends = self.reward_range
        return ends is not None and reward > ends[0] + SOLVED * (ends[1] - ends[0])

    def reward_margin(self, share: float) -> float | None:
        """A change of the reward worth `share` of its range, or of two of its spreads where the range is not known."""
        if self.reward_range is not None:
            return share * (self.reward_range[1] - self.reward_range[0])
        spread = self.get("reward_std", SHORT)
        return None if spread is None else 2 * share * spread.level(EARLY).value

    def least_gain(self, share: float) -> float | None:
        """The same of a gain: where the range is only taken to be (0, 1), as the means lie there, by two of the spreads
        that are logged, if they are less, and by a fifth of the range at least."""
        whole, spread = self.reward_margin(share), self.get("reward_std", SHORT)
        if whole is None or spread is None or self._rewards_seen is not None or self.binary_rewards:
            return whole
        return min(whole, max(2 * share * spread.level(EARLY).value, whole / 5))


def _at_an_end(means: Array) -> Array:
    """1 in rows (n,) whose mean reward is the least or the largest of all and is so in SHORT rows or more, else 0.

    A mean of drawn rewards comes back to the last digit only where every rollout has one reward. NaN without a mean.
    Rows that are all one of two whole numbers may be single rollouts, which prove nothing about groups.
    """
    flat = np.where(np.isfinite(means), 0.0, np.nan)
    values = np.unique(means[np.isfinite(means)])
    if len(values) == 2 and not (values % 1).any():
        return flat
    for end in (np.nanmin(means), np.nanmax(means)) if np.isfinite(means).any() else ():
        same = means == end
        flat[same] = float(same.sum() >= SHORT)
    return flat
