"""Forecast of the level of a reward: where it is, how far it may go, and a predictive band of single rewards.

Method of this project; no publication. No curve is extrapolated: the level stays, give or take what it did before.

    reward = level + noise
    level now        L = Σ w_g L_g,   L_g ← L_g + g (reward − L_g),   w_g ∝ (Σ (reward − L_g)²)^(−m/2)
    change in s more steps        ~ N(b M, se(L)² + (SPREAD D)² (1 − b²))
    b = (rises − falls) / (N + 3)

L_g are exponentially weighted means, weighed by the likelihood of their m one-step errors, the first quarter left out
(local level models, Harvey 1989). D is the farthest that the level was from L in the last s steps: the band is as wide
as the level moved over the last equal horizon. M is how far it moved over them, at the slower of its rates over all and
over half of them, so that what has settled is not expected to go on. Both are L less means of WINDOW of the
run, their noise subtracted. b is Laplace's rule of succession: of the N earlier stretches of s steps, those over which
the level rose or fell by more than half the noise of a reward, with one rise, one fall and one neither added; so a
half run of steady rise gives b = 1/4, and only many horizons that rose alike say that the next one will.

A band adds the noise of the second half of the run, spikes and skew included. Horizons longer than the run have the M
and D of all of it. Rare jackpots count with their mean and make no trend. A constant reward is repeated, without a
verdict. Everything is held to the range of the reward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import uniform_filter1d
from scipy.special import ndtr, ndtri

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.instruments.dynamics.reward_curve import RewardCurve, clean
from grposcope.instruments.dynamics.reward_range import RewardRange
from grposcope.maths.timeseries.noise import Array, robust_spread
from grposcope.maths.timeseries.running_median import running_median

GAINS = (0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05, 0.03, 0.02)
"""Weights of a new reward in the means that the level is averaged from."""
WINDOW = 0.2
"""Share of the run whose mean is an earlier level."""
RATES = (1.0, 0.5)
"""Shares of the last stretch over each of which a level has to have gone on, for its move to be believed."""
SPREAD = 0.8
"""Standard deviation of the change to come, as a share of how far the level moved over the last equal horizon."""
LONGEST = 1000
"""Steps of a forecast, at most; a longer horizon is thinned."""
KNOTS = 40
"""Steps at which the level is computed; between them it is interpolated."""
NODES = 41
"""Quantiles by which the level and the noise enter an interval."""
RECENT, FEWEST = 0.5, 20
"""Share of the rewards, and their least number, whose noise is that of the forecast."""
SURE = 0.9
"""Probability asked of a verdict."""
AROUND, WIDTH = 0.1, 5.0
"""Share of the run over which a running mean is taken, and its noise levels beyond which a reward is a spike."""


@dataclass(frozen=True)
class Forecast:
    """The next steps of a run.

    steps (H,), mean (H,) and the predictive interval low, high (H,) of single rewards at `coverage`; inner_low,
    inner_high (H,) the one that holds half of them. limits: the range that none of them leaves.
    level: where the reward is now, without noise. change: expected level at the last step minus `level`, and how well
    that later level is known; change_between: what it exceeds, and stays below, with probability SURE each. margin: the
    noise of one reward; smaller changes count as none. verdict: flat where a smaller change has probability SURE, else
    rising or declining where a larger one on that side has, else cannot tell. flag: notes.
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
) -> Forecast:
    """Forecast `horizon` further steps, or the steps listed in it; UserError for data that cannot be a curve.

    limits: the range of the reward; inferred from the rewards if None, and ignored where they leave it.
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
    plain = _without_spikes(series.reward, AROUND, WIDTH)
    noise, quiet = _noise(series.reward, plain), float(_noise(plain, plain).std())
    margin = float(noise.std())
    now, now_se = _level_now(plain, quiet)
    leads = (later[knots] - series.steps[-1]) / series.spacing
    move, error = _changes(plain, now, now_se, quiet, leads)
    now = float(limits.clip(np.array(now + (series.reward - plain).mean())))
    expected = limits.clip(now + move)
    shares = ((1 - coverage) / 2, (1 + coverage) / 2, 0.25, 0.75)
    bands = limits.clip(expected + _quantiles(error, noise, shares))
    mean, low, high, inner_low, inner_high = (np.interp(later, later[knots], row) for row in (expected, *bands))
    change, spread = float(expected[-1] - now), float(error[-1])
    ends = limits.clip(now + change + spread * ndtri(np.array([1 - SURE, SURE]))) - now
    return Forecast(
        later, mean, low, high, inner_low, inner_high, coverage, limits,
        level=Estimate(now, now_se, n), change=Estimate(change, spread, n),
        change_between=(float(ends[0]), float(ends[1])), margin=margin,
        verdict=_verdict(change, spread, margin), flag="; ".join(notes),
    )  # fmt: skip


def _without_spikes(reward: Array, window: float, width: float) -> Array:
    """Rewards clipped to within `width` robust σ of a running median over the share `window` of the curve.

    A reward function that pays a rare jackpot moves the mean, but a curve must not chase it.
    """
    n = len(reward)
    size = min(max(5, int(window * n) // 2 * 2 + 1), n // 2 * 2 - 1)
    middle = running_median(reward, size)
    deviation = reward - middle
    limit = width * max(robust_spread(deviation), 0.1 * float(deviation.std()))
    return np.asarray(middle + np.clip(deviation, -limit, limit))


def _level_now(reward: Array, noise: float) -> tuple[float, float]:
    """The level at the end of rewards (n,) and its standard error, for single rewards with this noise."""
    n = len(reward)
    gains = np.array([gain for gain in GAINS if gain >= 1 / n])
    levels, squares = np.full(len(gains), reward[0]), np.zeros(len(gains))
    for i, value in enumerate(reward):
        error = value - levels
        if i >= n // 4:
            squares += error**2
        levels = levels + np.maximum(gains, 1 / (i + 1)) * error
    odds = -0.5 * (n - n // 4) * np.log(np.maximum(squares, 1e-300))
    weight = np.exp(odds - odds.max())
    weight /= weight.sum()
    level = float(weight @ levels)
    return level, math.sqrt(noise**2 * float(weight @ (gains / (2 - gains))) + float(weight @ (levels - level) ** 2))


def _changes(reward: Array, now: float, now_se: float, noise: float, leads: Array) -> tuple[Array, Array]:
    """Expected change of the level `leads` (H,) rewards ahead, and the standard deviation of the later level.

    reward (n,): the rewards that were seen; now, now_se: their level at the end; noise: standard deviation of one.
    """
    size = max(5, round(WINDOW * len(reward)))
    total = np.append(0.0, np.cumsum(reward))
    path = np.append(now, ((total[size:] - total[:-size]) / size)[::-1])
    ago = np.append(0.0, np.arange(len(path) - 1) + (size - 1) / 2)  # a mean is the level in the middle of its rewards
    away = now - path
    blur = (now_se**2 + noise**2 / size) * np.minimum(ago / size, 1.0)
    moved = np.sqrt(np.maximum(away**2 - blur, 0.0))
    within = np.clip(leads, 1.0, ago[-1])
    farthest = np.interp(within, ago, np.maximum.accumulate(moved))
    rates = np.array([np.interp(within * rate, ago, np.sign(away) * moved) / rate for rate in RATES])
    last = np.where((rates > 0).all(0), rates.min(0), np.where((rates < 0).all(0), rates.max(0), 0.0))
    believed = np.array([_steadiness(ago, path, stretch, 0.5 * noise) for stretch in within])
    expected = np.where(believed * last > 0, np.abs(believed) * last, 0.0)
    return expected, np.sqrt(now_se**2 + (SPREAD * farthest) ** 2 * (1 - believed**2))


def _steadiness(ago: Array, path: Array, stretch: float, least: float) -> float:
    """(rises − falls)/(N + 3) of a level, path (K,) at ascending times `ago`, over N stretches of this length."""
    ends = np.interp(np.arange(0.0, ago[-1] + 1e-9, stretch), ago, path)
    rose = ends[:-1] - ends[1:]
    return (np.count_nonzero(rose > least) - np.count_nonzero(rose < -least)) / (len(rose) + 3)


def _limits(series: RewardCurve, limits: RewardRange | None) -> tuple[RewardRange, tuple[str, ...]]:
    """The range to hold the forecast to, and the notes: a range that the rewards have left is none."""
    if limits is None:
        return _inferred_range(series.reward), series.notes
    if limits.low <= series.reward.min() and series.reward.max() <= limits.high:
        return limits, series.notes
    note = f"rewards leave the range {limits.low:g} to {limits.high:g}, so the forecast ignores this range"
    return RewardRange(), (*series.notes, note)


def _inferred_range(reward: Array) -> RewardRange:
    """0 to 1 where all rewards (n,) lie there, and no range elsewhere."""
    if reward.min() >= 0 and reward.max() <= 1:
        return RewardRange(0.0, 1.0)
    return RewardRange()


def _repeated(series: RewardCurve, later: Array, coverage: float, limits: RewardRange, notes: str) -> Forecast:
    """Forecast of a reward that never varied: it repeats the reward."""
    n, reason = len(series.reward), "constant reward"
    same = np.full(len(later), series.reward[0])
    flag = "; ".join(filter(None, ("the reward is constant: the forecast repeats it", notes)))
    return Forecast(
        later, same, same, same, same, same, coverage, limits, Estimate(float(same[0]), math.nan, n, reason),
        Estimate(0.0, math.nan, n, reason), (0.0, 0.0), 0.0, "cannot tell", flag,
    )  # fmt: skip


def _later(series: RewardCurve, horizon: ArrayLike) -> Array:
    steps = np.asarray(horizon, dtype=float)
    last = series.steps[-1]
    if steps.ndim == 0:
        if not (np.isfinite(steps) and steps >= 1):
            raise UserError(f"horizon {float(steps):g} must be at least 1 step")
        if steps / series.spacing >= 2**53:
            raise UserError(f"horizon {float(steps):g} is longer than can be counted; give a shorter one")
        count = max(1, round(float(steps) / series.spacing))
        every = -(-count // LONGEST)
        return np.asarray(last + series.spacing * np.arange(count % every or every, count + 1, every))
    if steps.ndim != 1 or not len(steps) or not (steps > last).all():
        raise UserError(f"the steps to forecast must come after the last one, {last:g}")
    return steps


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


def _verdict(change: float, spread: float, margin: float) -> str:
    """What a change ~ N(change, spread²) is with probability SURE: within the margin, or beyond it on one side."""
    above, below = 1 - ndtr((margin - change) / spread), ndtr((-margin - change) / spread)
    if 1 - above - below >= SURE:
        return "flat"
    return "rising" if above >= SURE else "declining" if below >= SURE else "cannot tell"
