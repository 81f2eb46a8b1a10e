"""Where the level of a noisy reward is and where it goes: a Bayesian average over small Gaussian processes.

Method of this project; no publication.

    reward = a + b f(u) + wandering(u) + noise(u),        u the share of the run that has passed

a is unknown. b f(u) is a rise or a fall of unknown size: f is growth that slows but does not end, u^p, or growth that
has ended, 1 − e^{−u/τ}. The wandering is a Brownian motion in the clock u^AGE, so that a run changes less as it ages.
Their sizes are in units of the noise σ of one reward at the end of the run. The noise is white, with a variance of its
own at each reward: runs grow quiet as they saturate. A member fixes f and the sizes; members are weighed by their
likelihood, tempered. Three numbers were learned from public runs (LEARNED): how far the likelihood is tempered,
and how much of the expected change is believed.

It was the forecast of `grposcope fit` until a simpler one did as well on public runs and better on simulated ones
(`dynamics_forecast.py`). Tests of what a run did take slow wandering for noise (`noise`, AR(1) plus white); here it is
the level that wanders and does not return, and that is forecast. Rewards enter as at most BLOCKS means of neighbours,
so that the work does not grow with the length of a run.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from grposcope.instruments.dynamics import forecast
from grposcope.instruments.dynamics.forecast import AROUND as RUNNING
from grposcope.instruments.dynamics.forecast import SURE, WIDTH, Forecast, _without_spikes
from grposcope.instruments.dynamics.reward_curve import RewardCurve
from grposcope.instruments.dynamics.reward_range import RewardRange
from grposcope.maths.timeseries.noise import Array

BLOCKS = 60
AGE = 0.3
"""Exponent of the clock in which the level wanders."""
DOUBT = 6.0
"""Means of neighbours that the noise level, judged from their differences, is worth."""
AROUND, AROUND_LEAST = 0.15, 10
"""Share of the run, and the least number of rewards, around a reward that tell its noise."""
ANCHOR = 2.0
"""Differences of neighbours that what is known of the noise counts as."""

Shape = tuple[str, float]
"""("power", p) for u^p, ("decay", τ) for 1 − e^{−u/τ}, ("none", 0) for no rise at all."""


@dataclass(frozen=True)
class Prior:
    """The members, and how far their average is believed.

    shapes: f, equally likely beforehand. rises, wanders: standard deviations, in units of σ, of b and of the wandering
    over the whole run, equally likely. temper: exponent of the likelihood. keep: share of the expected change that is
    believed, for the least error. spread: factor on the standard deviations of the level.
    """

    temper: float
    keep: float
    spread: float
    shapes: tuple[Shape, ...] = (
        ("power", 0.3),
        ("power", 0.8),
        ("decay", 0.1),
        ("decay", 0.3),
        ("none", 0.0),
    )
    rises: tuple[float, ...] = (1.0, 3.0, 10.0)
    wanders: tuple[float, ...] = (0.0, 0.3, 1.0, 3.0, 10.0)


LEARNED = Prior(temper=0.4, keep=0.3, spread=0.8)
"""What `dynamics_forecast.py --learn` chose on public runs."""


@dataclass(frozen=True)
class LevelPath:
    """The level now and at H later times, averaged over members: now, mean (H,) and their standard deviations.

    The standard deviations allow for the whole change that members expect, of which the mean takes a part. weight,
    last, last_se (M,): the members at the last of those times, likewise with the whole change.
    """

    now: float
    now_se: float
    mean: Array
    se: Array
    weight: Array
    last: Array
    last_se: Array

    def probability(self, low: float, high: float = math.inf) -> float:
        """Probability that the level is at last between these changes from where it is now."""
        change = self.last - self.now
        inside = ndtr((high - change) / self.last_se) - ndtr((low - change) / self.last_se)
        return float(self.weight @ inside)

    def change(self, share: float) -> float:
        """Quantile of the change from now to the last time."""
        ends = np.concatenate([self.last - 4 * self.last_se, self.last + 4 * self.last_se]) - self.now
        tried = np.linspace(ends.min(), ends.max(), 500)
        below = self.weight @ ndtr((tried + self.now - self.last[:, None]) / self.last_se[:, None])
        return float(np.interp(share, below, tried))


@dataclass(frozen=True)
class Members:
    """M members: log prior and log-likelihood (M,), and level (M, 1 + H) now and later with its variance."""

    prior: Array
    likelihood: Array
    level: Array
    variance: Array

    def average(self, prior: Prior) -> LevelPath:
        """The average over members by their posterior probabilities."""
        odds = self.prior + prior.temper * self.likelihood
        weight = np.exp(odds - odds.max())
        weight /= weight.sum()
        believed = self.level[:, :1] + prior.keep * (self.level - self.level[:, :1])
        mean = weight @ believed
        error = prior.spread * np.sqrt(weight @ (self.variance + (self.level - mean) ** 2))
        last_se = prior.spread * np.sqrt(self.variance[:, -1])
        return LevelPath(float(mean[0]), float(error[0]), mean[1:], error[1:], weight, self.level[:, -1], last_se)


def path(share: Array, reward: Array, later: Array, prior: Prior, sampling: float | None = None) -> LevelPath:
    """The level at the shares `later` (H,), all above 1, of a run with rewards (n,) at shares (n,) that end at 1.

    reward: not constant, and without rare spikes, which a level must not chase. sampling: the variance that each reward
    has because its rollouts are drawn anew, where it is known.
    """
    return members(share, reward, later, prior, sampling).average(prior)


def members(share: Array, reward: Array, later: Array, prior: Prior, sampling: float | None = None) -> Members:
    """Condition every member of the prior on the rewards."""
    variances = noise_variances(reward, sampling)
    sigma = math.sqrt(variances[-1])
    u, y, noise = _blocks(share, reward / sigma, variances / sigma**2)
    n = len(u)
    shapes, log_prior, (rises, wanders) = _grid(prior)
    at = np.concatenate([u, [1.0], later])
    f = np.array([_shape(shape, at) for shape in shapes])
    clock = at**AGE
    level = (wanders**2)[:, None, None] * np.minimum(clock[:, None], clock)
    level += (rises**2)[:, None, None] * f[:, :, None] * f[:, None, :]
    seen, across = level[:, :n, :n] + np.diag(noise), level[:, n:, :n]
    # One solution for the rewards, the unknown constant, and the level now and later.
    known = np.broadcast_to(np.column_stack([y, np.ones(n)]), (len(shapes), n, 2))
    solved = np.linalg.solve(seen, np.concatenate([known, across.transpose(0, 2, 1)], 2))
    solved_y, solved_one, solved_across = solved[:, :, 0], solved[:, :, 1], solved[:, :, 2:]
    precision = solved_one.sum(1)
    constant = solved_y.sum(1) / precision
    weighted = solved_y - constant[:, None] * solved_one
    squares = weighted @ y
    likelihood = -0.5 * (np.linalg.slogdet(seen)[1] + np.log(precision) + (n - 1 + DOUBT) * np.log(DOUBT + squares))
    mean = constant[:, None] + np.einsum("mhn,mn->mh", across, weighted)
    missing = 1 - np.einsum("mhn,mn->mh", across, solved_one)
    variance = np.diagonal(level[:, n:, n:], axis1=1, axis2=2) - np.einsum("mhn,mnh->mh", across, solved_across)
    variance = np.maximum(variance + missing**2 / precision[:, None], 1e-12)
    variance *= ((DOUBT + squares) / (n - 1 + DOUBT))[:, None]
    return Members(log_prior, likelihood, sigma * mean, sigma**2 * variance)


def _grid(prior: Prior) -> tuple[list[Shape], Array, Array]:
    """Shape and log prior of each member, and its sizes (2, M); a shape without rise has the rise 0 only."""
    rows = [
        (shape, -math.log(1 if shape[0] == "none" else len(prior.rises)), rise, wander)
        for shape in prior.shapes
        for rise, wander in itertools.product((0.0,) if shape[0] == "none" else prior.rises, prior.wanders)
    ]
    numbers = np.array([row[1:] for row in rows]).T
    return [row[0] for row in rows], numbers[0], numbers[1:]


def _shape(shape: Shape, share: Array) -> Array:
    """f at shares of the run, scaled to rise by 1 from 0 to 1."""
    kind, number = shape
    if kind == "none":
        return np.zeros_like(share)
    if kind == "power":
        return np.asarray(share**number)
    return np.asarray(np.expm1(-share / number) / np.expm1(-1 / number))


def noise_variances(reward: Array, sampling: float | None = None) -> Array:
    """Variance (n,) of the noise of each reward: half the mean squared difference of the neighbours around it.

    Few differences say little: ANCHOR more have the variance that sampling explains, or else that of the whole run.
    """
    n = len(reward)
    half = 0.5 * np.diff(reward) ** 2
    size = min(max(AROUND_LEAST, round(AROUND * n)), n - 1)
    sums = np.convolve(half, np.ones(size), "same")
    counts = np.convolve(np.ones(n - 1), np.ones(size), "same")
    whole = float(half.mean()) if sampling is None else sampling
    local = (sums + ANCHOR * whole) / (counts + ANCHOR)
    return np.asarray(np.append(local, local[-1]))


def _blocks(share: Array, reward: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Mean share and reward (B,) of at most BLOCKS groups of neighbours, and the variance of the noise of each mean.

    noise: variances (n,) of the rewards. The first group may be larger.
    """
    n = len(reward)
    size = -(-n // BLOCKS)
    begins = np.append(0, np.arange(size + n % size, n, size))
    counts = np.diff(np.append(begins, n))
    shares, rewards, variances = (np.add.reduceat(values, begins) / counts for values in (share, reward, noise))
    return shares, rewards, variances / counts


def predicted(series: RewardCurve, later: Array, prior: Prior = LEARNED) -> Forecast:
    """The average as a forecast of a reward that is not constant, at steps `later` (H,) with a band of 90 %."""
    plain = forecast.forecast(series.steps, series.reward, later)
    knots = forecast._knots(later)
    found, noise = level_ahead(series, later[knots], plain.limits, prior)
    bands = plain.limits.clip(found.mean + forecast._quantiles(found.se, noise, (0.05, 0.95)))
    mean, low, high = (np.interp(later, later[knots], row) for row in (found.mean, *bands))
    rises = found.probability(0.0)
    margin = float(noise.std())
    flat = "flat" if found.probability(-margin, margin) >= SURE else "cannot tell"
    verdict = "rising" if rises >= SURE else "declining" if rises <= 1 - SURE else flat
    level = replace(plain.level, value=found.now)
    return replace(plain, mean=mean, low=low, high=high, level=level, margin=margin, verdict=verdict)


def level_ahead(
    series: RewardCurve, later: Array, limits: RewardRange, prior: Prior = LEARNED
) -> tuple[LevelPath, Array]:
    """The level of a reward that is not constant, at steps `later` (H,), and the noise (m,) of its recent rewards."""
    origin = series.steps[0] - series.spacing
    span = series.steps[-1] - origin
    plain = _without_spikes(series.reward, RUNNING, WIDTH)
    spikes = float((series.reward - plain).mean())
    found = path((series.steps - origin) / span, plain, (later - origin) / span, prior)
    level = approach(limits, found.now + spikes, np.append(0.0, found.mean - found.now))
    found = replace(found, now=float(level[0]), mean=level[1:], last=found.last + spikes)
    return found, forecast._noise(series.reward, plain)


def approach(limits: RewardRange, now: float, change: Array) -> Array:
    """Levels that expected changes (H,) from the level `now` lead to: each next part of a change closes its share of
    the room that is left, room · (1 − e^{−change/room}), so that no end is reached.
    """
    room = 1e-3 * (limits.high - limits.low) if math.isfinite(limits.high - limits.low) else 0.0
    now = min(max(now, limits.low + room), limits.high - room)
    above, below = limits.high - now, now - limits.low
    up = -above * np.expm1(-np.maximum(change, 0.0) / above) if math.isfinite(above) else np.maximum(change, 0.0)
    down = below * np.expm1(np.minimum(change, 0.0) / below) if math.isfinite(below) else np.minimum(change, 0.0)
    return np.asarray(now + up + down)
