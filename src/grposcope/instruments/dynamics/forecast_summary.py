"""Reward curve of a run: its closed forms, and the forecast of its level.

The forecast reaches half as many further steps as there were. A long run is averaged to POINTS means of neighbouring
rewards first: a level and a smooth curve lose little by it, and a page stays quick to make.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.metrics import variant
from grposcope.core.run import Run
from grposcope.core.text import number
from grposcope.instruments.dynamics.curves import Fit, fit_series, noise_ceiling
from grposcope.instruments.dynamics.forecast import Forecast, forecast
from grposcope.instruments.dynamics.reward_curve import RewardCurve, averaged, clean, each_batch
from grposcope.instruments.dynamics.reward_range import RewardRange
from grposcope.maths.timeseries.noise import Array
from grposcope.signs.quantities import Quantities

POINTS = 1000
"""Points that a curve is averaged to, at most."""

CLOSED_FORMS = ("exponential", "inertial")
"""Models that are fitted."""


@dataclass(frozen=True)
class ForecastSummary:
    """Facts of one reward curve.

    series: the fitted rewards. ceiling: the R² that noise leaves to explain. fits: the closed forms by name, empty
    where they were not asked for. truth: later steps and rewards that were hidden from the fits, averaged like the
    rest; empty unless some were. hindsight: what they say of the forecast (`_hindsight`), None
    without them. plateau: where the curve
    ends and the step by which 95 % of its rise is done; NaN with the reason where no fitted curve tells, or where the
    forecast does not agree with it.
    """

    series: RewardCurve
    ceiling: float
    fits: Mapping[str, Fit]
    ahead: Forecast
    truth: tuple[Array, Array]
    hindsight: tuple[int, float, float] | None
    plateau: Estimate
    plateau_step: float

    def explained(self, fit: Fit) -> float:
        """R² of a fit ÷ the most that noise leaves to explain; NaN where it leaves next to nothing."""
        return fit.r2 / self.ceiling if self.ceiling > 0.02 else math.nan


def of_run(
    run: Run, horizon: float | None = None, coverage: float = 0.9, until: float | None = None, models: bool = True
) -> ForecastSummary:
    """Fit and forecast the reward of a run, as `summarize`; UserError where it logs none."""
    name = reward_column(run)
    if name is None:
        raise UserError(f"{run.meta.source} logs no reward; its columns are: {', '.join(run.table)}")
    limits = _reward_limits(run) if name == "reward" else None
    steps, reward = run.table["step"], run.table[name]
    return _summarize(steps, reward, horizon, coverage, until, run.refresh_interval, models, limits)


def reward_column(run: Run) -> str | None:
    """The column that is forecast; None where no reward is logged."""
    logged = [name for name, values in run.table.items() if np.isfinite(values).any()]
    return variant("reward", logged)


def _reward_limits(run: Run) -> RewardRange | None:
    """The range of the mean reward: of the settings reward_low and reward_high, else from what was logged, else None.

    Logged are 0/1 rewards, the least and largest reward, or components that all lie between 0 and 1.
    """
    low, high = run.setting("reward_low"), run.setting("reward_high")
    if isinstance(low, int | float) and isinstance(high, int | float):
        return RewardRange(low, high)
    quantities = Quantities(run)
    if quantities.binary_rewards:
        return RewardRange(0.0, 1.0)
    if quantities.reward_range is not None:
        return RewardRange(*quantities.reward_range)
    parts = [component.values for component in quantities.components().values()]
    bounded = parts and all(values.min() >= 0 and values.max() <= 1 for values in parts)
    return RewardRange(0.0, float(len(parts))) if bounded else None


def _summarize(
    steps: ArrayLike,
    reward: ArrayLike,
    horizon: float | None = None,
    coverage: float = 0.9,
    until: float | None = None,
    interval: int = 1,
    models: bool = True,
    limits: RewardRange | None = None,
) -> ForecastSummary:
    """Fit and forecast; UserError for data that cannot be a curve.

    horizon: further steps; if None up to the last hidden one, or else half of those seen. until: the last step to be
    seen. interval: optimizer steps on each batch of rollouts. models: whether to fit the closed forms, most of the
    work. limits: the range of the reward; inferred from the rewards if None.
    """
    whole = each_batch(clean(steps, reward), interval)
    known = np.ones(len(whole.steps), bool) if until is None else whole.steps <= until
    seen = clean(whole.steps[known], whole.reward[known])
    series = averaged(RewardCurve(seen.steps, seen.reward, whole.notes), POINTS)
    size = -(-len(seen.steps) // POINTS)
    later = whole.steps[~known], whole.reward[~known]
    whole_blocks = len(later[0]) // size * size
    truth = tuple(column[:whole_blocks].reshape(-1, size).mean(1) for column in later)
    seen_steps = float(series.steps[-1] - series.steps[0])
    further = (
        horizon
        if horizon is not None
        else max(1.0, later[0][-1] - series.steps[-1] if whole_blocks else seen_steps / 2)
    )
    fits = {name: fit_series(series, name) for name in CLOSED_FORMS} if models else {}
    ahead = forecast(series.steps, series.reward, further, coverage, limits)
    ahead = replace(ahead, flag="; ".join(filter(None, (ahead.flag, *series.notes))))
    plateau, reached = _plateau(fits, ahead)
    return ForecastSummary(
        series=series,
        ceiling=noise_ceiling(series.steps, series.reward).value,
        fits=fits,
        ahead=ahead,
        truth=(truth[0], truth[1]),
        hindsight=None if until is None else _hindsight(series, ahead, *truth),
        plateau=plateau,
        plateau_step=reached,
    )


def _plateau(fitted: Mapping[str, Fit], ahead: Forecast) -> tuple[Estimate, float]:
    """Plateau of the identified curve with the least residual, and the step by which 95 % of its rise is done.

    It must be in the range of the reward and, give or take two standard errors, among the levels that the forecast
    expects.
    """
    fits = [f for f in fitted.values() if not any(p.flag for p in f.parameters.values())]
    n = ahead.level.n
    if not fits:
        return Estimate(math.nan, math.nan, n, "cannot tell: no fitted curve has a plateau"), math.nan
    best = min(fits, key=lambda f: f.rmse)
    value = best.parameters["plateau"].value
    error = math.hypot(best.parameters["plateau"].se, float(np.std([f.parameters["plateau"].value for f in fits])))
    if error > 0.5 * abs(value - best.parameters["start"].value):
        return Estimate(math.nan, math.nan, n, "cannot tell: its error exceeds half of the rise"), math.nan
    lowest, highest = (ahead.level.value + change for change in ahead.change_between)
    agrees = lowest - 2 * error <= value <= highest + 2 * error
    if not agrees or not ahead.limits.low <= value <= ahead.limits.high:
        reason = f"cannot tell: the fitted curves end at {number(value)}, which the forecast does not expect"
        return Estimate(math.nan, math.nan, n, reason), math.nan
    return Estimate(value, error, n), best.reaches(0.95)


def _hindsight(series: RewardCurve, ahead: Forecast, steps: Array, values: Array) -> tuple[int, float, float]:
    """Test of a forecast on later rewards that were hidden from it.

    How many it reaches, the share of them inside the predictive interval, and the root mean square error of the
    expected rewards ÷ that of the last level; NaN where there is nothing to divide by.
    """
    inside = steps <= ahead.steps[-1]
    steps, values = steps[inside], values[inside]
    covered = error = math.nan
    if len(steps):
        low, high, mean = (np.interp(steps, ahead.steps, values) for values in (ahead.low, ahead.high, ahead.mean))
        covered = float(((low <= values) & (values <= high)).mean())
        base = float(np.sqrt(np.mean((values - _last_level(series.reward)) ** 2)))
        error = float(np.sqrt(np.mean((values - mean) ** 2))) / base if base else math.nan
    return len(steps), covered, error


def _last_level(reward: Array) -> float:
    """The mean of the last tenth of rewards (n,): the rule that a forecast has to beat."""
    return float(reward[-max(1, round(0.1 * len(reward))) :].mean())
