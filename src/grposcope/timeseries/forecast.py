"""Forecast of a partial run: mean, predictive interval, and whether the reward goes on rising, stays or declines.

The mean is that of `level_path`, a Bayesian average over levels that have ended, wander, rise or fall, held to the
range that the reward cannot leave. An interval of single rewards is the posterior of the level plus noise, drawn from
the residuals of the second half of the run, spikes included, so that a skewed reward keeps its skew. The verdict is
what the posterior of the later level says. The constants were learned on public runs (`forecast_prior`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import uniform_filter1d
from scipy.special import ndtri

from grposcope.errors import UserError
from grposcope.records import Estimate
from grposcope.timeseries import level_path, reward_range
from grposcope.timeseries.forecast_prior import LEARNED
from grposcope.timeseries.level_path import LevelPath, Prior
from grposcope.timeseries.noise import Array
from grposcope.timeseries.reward_curve import RewardCurve, clean, without_spikes
from grposcope.timeseries.reward_range import RewardRange

LONGEST = 1000
"""Steps of a forecast, at most; a longer horizon is thinned."""
KNOTS = 40
"""Steps at which the level is computed; between them it is interpolated."""
NODES = 41
"""Quantiles by which the level and the noise enter an interval."""
RECENT, FEWEST = 0.5, 20
"""Share of the rewards, and their least number, whose noise is that of the forecast."""
MARGIN = 1.0
"""Noise levels of one reward; smaller changes count as none."""
SURE = 0.9
"""Probability asked of a verdict."""
WINDOW, WIDTH = 0.1, 5.0
"""Share of the run over which a running mean is taken, and its noise levels beyond which a reward is a spike."""


@dataclass(frozen=True)
class Forecast:
    """The next steps of a run.

    steps (H,), mean (H,) and the predictive interval low, high (H,) of single rewards at `coverage`; inner_low,
    inner_high (H,) the one that holds half of them. limits: the range that none of them leaves.
    level: where the reward is now, without noise. change: expected level at the last step minus `level`, and how well
    that later level is known; change_between: what it exceeds, and stays below, with probability SURE each. margin: the
    noise of one reward; smaller changes count as none. verdict: rising, declining, flat or cannot tell. flag: notes.
    """

    steps: Array
    mean: Array
    low: Array
    high: Array
    inner_low: Array
    inner_high: Array
    coverage: float
    limits: RewardRange
    level: Estimate
    change: Estimate
    change_between: tuple[float, float]
    margin: float
    verdict: str
    flag: str = ""


def forecast(
    steps: ArrayLike,
    reward: ArrayLike,
    horizon: ArrayLike,
    coverage: float = 0.9,
    limits: RewardRange | None = None,
    sampling: float | None = None,
    prior: Prior = LEARNED,
) -> Forecast:
    """Forecast `horizon` further steps, or the steps listed in it; UserError for data that cannot be a curve.

    limits: the range of the reward; inferred from the rewards if None, and ignored where they leave it. sampling: the
    variance that each reward has because its rollouts are drawn anew, where it is known.
    """
    series = clean(steps, reward)
    if not 0 < coverage < 1:
        raise UserError(f"coverage {coverage:g} must be between 0 and 1")
    later = _later(series, horizon)
    limits, notes = _limits(series, limits)
    n = len(series.reward)
    if series.constant:
        return _repeated(series, later, coverage, limits, "; ".join(notes))
    knots = _knots(later)
    found, noise = level_ahead(series, later[knots], limits, sampling, prior)
    shares = ((1 - coverage) / 2, (1 + coverage) / 2, 0.25, 0.75)
    bands = limits.clip(found.mean + _quantiles(found.se, noise, shares))
    mean, low, high, inner_low, inner_high = (np.interp(later, later[knots], row) for row in (found.mean, *bands))
    change, error = float(found.mean[-1] - found.now), float(found.se[-1])
    margin = MARGIN * float(noise.std())
    ends = [min(found.change(1 - SURE), change), max(found.change(SURE), change)]
    low_end, high_end = (limits.clip(found.now + np.array(ends)) - found.now).tolist()
    return Forecast(
        later, mean, low, high, inner_low, inner_high, coverage, limits,
        level=Estimate(found.now, found.now_se, n), change=Estimate(change, error, n),
        change_between=(low_end, high_end), margin=margin,
        verdict=_verdict(found, margin), flag="; ".join(notes),
    )  # fmt: skip


def level_ahead(
    series: RewardCurve, later: Array, limits: RewardRange, sampling: float | None = None, prior: Prior = LEARNED
) -> tuple[LevelPath, Array]:
    """The level of a reward that is not constant, at steps `later` (H,), and the noise (m,) of its recent rewards."""
    origin = series.steps[0] - series.spacing
    span = series.steps[-1] - origin
    plain = without_spikes(series.reward, WINDOW, WIDTH)
    spikes = float((series.reward - plain).mean())
    found = level_path.path((series.steps - origin) / span, plain, (later - origin) / span, prior, sampling)
    level = limits.approach(found.now + spikes, np.append(0.0, found.mean - found.now))
    found = replace(found, now=float(level[0]), mean=level[1:], last=found.last + spikes)
    return found, _noise(series.reward, plain)


def mean_path(series: RewardCurve, later: Array) -> Array:
    """The mean of `forecast` at steps `later`, without its intervals."""
    if series.constant:
        return np.full(len(later), series.reward[0])
    knots = _knots(later)
    found, _ = level_ahead(series, later[knots], reward_range.inferred(series.reward))
    return np.asarray(np.interp(later, later[knots], found.mean))


def _limits(series: RewardCurve, limits: RewardRange | None) -> tuple[RewardRange, tuple[str, ...]]:
    """The range to hold the forecast to, and the notes: a range that the rewards have left is none."""
    if limits is None:
        return reward_range.inferred(series.reward), series.notes
    if limits.low <= series.reward.min() and series.reward.max() <= limits.high:
        return limits, series.notes
    note = f"rewards leave the range {limits.low:g} to {limits.high:g}: the forecast does not keep to it"
    return RewardRange(), (*series.notes, note)


def _repeated(series: RewardCurve, later: Array, coverage: float, limits: RewardRange, notes: str) -> Forecast:
    """Forecast of a reward that never varied: it repeats the reward."""
    n, reason = len(series.reward), "constant reward"
    same = np.full(len(later), series.reward[0])
    flag = "; ".join(filter(None, ("constant reward: the forecast only repeats it", notes)))
    return Forecast(
        later, same, same, same, same, same, coverage, limits, Estimate(float(same[0]), math.nan, n, reason),
        Estimate(0.0, math.nan, n, reason), (0.0, 0.0), 0.0, "cannot tell", flag,
    )  # fmt: skip


def _later(series: RewardCurve, horizon: ArrayLike) -> Array:
    given = np.asarray(horizon, dtype=float)
    last = series.steps[-1]
    if given.ndim == 0:
        if not (np.isfinite(given) and given >= 1):
            raise UserError(f"horizon {float(given):g} must be at least 1 step")
        if given / series.spacing >= 2**53:
            raise UserError(f"horizon {float(given):g} is longer than can be counted; give a shorter one")
        count = max(1, round(float(given) / series.spacing))
        every = -(-count // LONGEST)
        return np.asarray(last + series.spacing * np.arange(count % every or every, count + 1, every))
    if given.ndim != 1 or not len(given) or not (given > last).all():
        raise UserError(f"the steps to forecast must come after the last one, {last:g}")
    return given


def _knots(later: Array) -> NDArray[np.int64]:
    """Indices of at most KNOTS of the later steps, the first and the last among them."""
    return np.unique(np.linspace(0, len(later) - 1, min(KNOTS, len(later))).astype(np.int64))


def _noise(reward: Array, plain: Array) -> Array:
    """Residuals of the recent rewards from a running mean of the rewards without spikes, with mean 0."""
    n = len(reward)
    size = max(5, round(WINDOW * n))
    residual = (reward - uniform_filter1d(plain, size, mode="reflect")) / math.sqrt(1 - 1 / size)
    recent = residual[-max(FEWEST, round(RECENT * n)) :]
    return np.asarray(recent - recent.mean())


def _quantiles(error: Array, noise: Array, shares: tuple[float, ...]) -> Array:
    """Quantiles (S, H) of a normal level with mean 0 and standard deviations (H,) plus noise drawn from (m,)."""
    middle = (np.arange(NODES) + 0.5) / NODES
    drawn = np.quantile(noise, middle) if len(noise) > NODES else noise
    total = error[:, None, None] * ndtri(middle)[:, None] + drawn
    return np.asarray(np.quantile(total.reshape(len(error), -1), shares, axis=1))


def _verdict(found: LevelPath, margin: float) -> str:
    """The side that the level goes to with probability SURE, or that it changes by less than the margin."""
    rises = found.probability(0.0)
    if rises >= SURE:
        return "rising"
    if rises <= 1 - SURE:
        return "declining"
    return "flat" if found.probability(-margin, margin) >= SURE else "cannot tell"
