"""Which model of a reward curve predicts: fits ranked by their error on later steps that they have not seen.

At 50, 60, 70 and 80 % of the run each model is fitted to what was known and predicts the rest. Errors are divided
by those of the last-level rule (the mean of the last tenth goes on), so below 1 a model knows more than
"the last level goes on". R² alone favours the flexible model, whatever it does next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grposcope.records import Estimate
from grposcope.timeseries.curve_models import MODELS
from grposcope.timeseries.curves import Fit, fit_series
from grposcope.timeseries.forecast import mean_path
from grposcope.timeseries.noise import Array
from grposcope.timeseries.reward_curve import RewardCurve, clean

ORIGINS = (0.5, 0.6, 0.7, 0.8)
LEAST_SEEN = 8
SURE = 3.18
"""Standard errors by which the best must beat the last level to be called so: Student's t at 97.5 %, four origins."""


@dataclass(frozen=True)
class Contender:
    """One ranked model.

    fit: on the whole run, None for `forecast`, the average over levels. explained: R² over the noise
    ceiling. held_out: geometric mean over origins of RMSE ÷ that of the last level; its standard error is a guide only,
    since origins share data.
    """

    model: str
    fit: Fit | None
    explained: float
    held_out: Estimate


@dataclass(frozen=True)
class Comparison:
    """Contenders, the best on held-out steps first. best: its name; flag: why there is no winner, if there is none."""

    contenders: tuple[Contender, ...]
    best: str
    ceiling: float
    flag: str = ""

    def __getitem__(self, model: str) -> Contender:
        return next(c for c in self.contenders if c.model == model)


def compare(steps: ArrayLike, reward: ArrayLike) -> Comparison:
    """Fit all models, rank them on held-out later steps; UserError for data that cannot be a curve."""
    series = clean(steps, reward)
    full = {name: fit_series(series, name) for name in MODELS}
    ceiling = full["constant"].ceiling
    if series.constant:
        empty = Estimate(math.nan, math.nan, 0, "constant reward")
        rows = tuple(Contender(name, f, math.nan, empty) for name, f in full.items())
        return Comparison(rows, "constant", ceiling, "cannot tell: constant reward, nothing to compare")
    errors = held_out_errors(series)
    rows = tuple(
        Contender(name, full.get(name), _explained(full.get(name)), _geometric(values))
        for name, values in errors.items()
    )
    ranked = tuple(sorted(rows, key=lambda c: (math.isnan(c.held_out.value), c.held_out.value)))
    first = ranked[0].held_out
    flag = ""
    if not math.isfinite(first.value):
        flag = "cannot tell: too few points to hold any out"
    elif not first.value + SURE * first.se < 1:
        flag = "cannot tell: no model predicts later steps better than their last level"
    return Comparison(ranked, ranked[0].model, ceiling, flag)


def held_out_errors(series: RewardCurve) -> dict[str, list[float]]:
    """Root mean square error ÷ that of the last level, for each model at each origin."""
    errors: dict[str, list[float]] = {name: [] for name in (*MODELS, "forecast")}
    n = len(series.reward)
    for origin in ORIGINS:
        seen = round(origin * n)
        if seen < LEAST_SEEN or n - seen < 2:
            continue
        past = RewardCurve(series.steps[:seen], series.reward[:seen])
        later, truth = series.steps[seen:], series.reward[seen:]
        base = _rmse(last_level(past.reward), truth)
        if base == 0:
            continue
        for name in MODELS:
            errors[name].append(_rmse(fit_series(past, name).predict(later), truth) / base)
        errors["forecast"].append(_rmse(mean_path(past, later), truth) / base)
    return errors


def last_level(reward: Array) -> float:
    """The mean of the last tenth: the rule that a forecast has to beat."""
    return float(reward[-max(1, round(0.1 * len(reward))) :].mean())


def _explained(fit: Fit | None) -> float:
    return fit.r2 / fit.ceiling if fit is not None and fit.ceiling > 0.02 else math.nan


def _geometric(values: list[float]) -> Estimate:
    if not values:
        return Estimate(math.nan, math.nan, 0, "too few points to hold any out")
    logs = np.log(np.maximum(values, 1e-12))
    centre = float(np.exp(logs.mean()))
    error = float(logs.std(ddof=1) / math.sqrt(len(logs))) if len(logs) > 1 else math.nan
    return Estimate(centre, centre * error, len(logs))


def _rmse(predicted: Array | float, truth: Array) -> float:
    return float(np.sqrt(np.mean((predicted - truth) ** 2)))
