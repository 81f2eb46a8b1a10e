"""Forecast of a partial run: mean, predictive interval, where it ends, and whether going on pays.

The mean is that of `state_space`, a Bayesian average over levels that go on, wander, or rise ever more slowly, with
the prior that training raises rewards. A band is the level's posterior, widened for what no member says, plus
noise drawn from the one-step surprises of the second half of the run, spikes included, so that a skewed reward
keeps its skew. What no member says: they share their assumptions; few rewards tell little of how far a level
wanders over longer times; and a run may take off late. A take-off that is as likely at any age has come by the
share u of the run with probability 1 − 1/u, and it goes up: deviations upward count u times. The run's plateau
comes from a saturating curve fitted to it, where one is identified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grposcope.errors import UserError
from grposcope.records import Estimate
from grposcope.timeseries import state_space
from grposcope.timeseries.curves import fit_series
from grposcope.timeseries.noise import Array
from grposcope.timeseries.reward_curve import RewardCurve, clean, without_spikes

WIDEN, ENOUGH = 1.2, 60
"""The level's standard deviation counts WIDEN times, and with fewer than ENOUGH rewards √(ENOUGH/n) times more."""
DRAWS, NOISES, LONGEST = 400, 5, 1000
RECENT, FEWEST = 0.5, 20
SURE = 0.9
"""Probability asked of a verdict, on each side."""
SATURATING = ("exponential", "inertial", "logistic")


@dataclass(frozen=True)
class Forecast:
    """The next steps of a run.

    steps (H,), mean (H,) and the predictive interval low, high (H,) of single rewards at `coverage`; inner_low,
    inner_high (H,) the one that holds half of them.
    level: where the reward is now, without noise. gain: expected level at the horizon minus the level now, the value
    of continuing; gain_between: its ends at probability SURE on each side, further up than down. learning:
    probability that the run learns at all. plateau: value at which a saturating curve ends, plateau_step where
    95 % of its rise is done; NaN with the reason where no curve is identified.
    verdict: rising, falling, level or cannot tell. advice: continue, stop, or what is missing. flag: notes.
    """

    steps: Array
    mean: Array
    low: Array
    high: Array
    inner_low: Array
    inner_high: Array
    coverage: float
    level: Estimate
    gain: Estimate
    gain_between: tuple[float, float]
    learning: float
    plateau: Estimate
    plateau_step: float
    verdict: str
    advice: str
    flag: str = ""


def forecast(
    steps: ArrayLike,
    reward: ArrayLike,
    horizon: ArrayLike,
    coverage: float = 0.9,
    prior: state_space.Prior | None = None,
) -> Forecast:
    """Forecast `horizon` further steps, or at the steps listed in it; UserError for data that cannot be a curve.

    Noise is drawn with a fixed seed: the same curve gives the same forecast.
    """
    series = clean(steps, reward)
    if not 0 < coverage < 1:
        raise UserError(f"coverage {coverage:g} must be between 0 and 1")
    later = _later(series, horizon)
    n, notes = len(series.reward), "; ".join(series.notes)
    if series.constant:
        return _repeated(series, later, coverage, notes)
    model, spikes = _posterior(series, prior)
    member_mean, member_variance = model.ahead(later)
    mean = model.weight @ member_mean + spikes.mean()
    widen, late = WIDEN * math.sqrt(max(1.0, ENOUGH / n)), (later - model.origin) / model.span
    deviation, member_spread = member_mean - mean + spikes.mean(), np.sqrt(member_variance)
    band = mean + _band(model, widen * deviation, widen * member_spread, late, spikes, coverage)
    spread = widen * _spread(model.weight, model.level, model.level_variance)
    level = Estimate(float(model.weight @ model.level + spikes.mean()), spread, n)
    change, below = _change(model, member_mean[:, -1], float(late[-1]))
    below *= widen
    above = below * float(late[-1])
    gain = Estimate(change, (below + above) / 2, n)
    z = NormalDist().inv_cdf(SURE)
    between = change - z * below, change + z * above
    verdict, advice = _advice(*between, 0.25 * float(np.std(model.surprise + spikes[1:])))
    plateau, reached = _plateau(series)
    low, high, inner_low, inner_high = band
    return Forecast(later, mean, low, high, inner_low, inner_high, coverage, level, gain, between, 1 - model.still,
                    plateau, reached, verdict, advice, notes)  # fmt: skip


def mean_path(series: RewardCurve, later: Array, prior: state_space.Prior | None = None) -> Array:
    """The mean of `forecast` at steps `later`, without its intervals."""
    if series.constant:
        return np.full(len(later), series.reward[0])
    model, spikes = _posterior(series, prior)
    return np.asarray(model.weight @ model.ahead(later)[0] + spikes.mean())


def _posterior(series: RewardCurve, prior: state_space.Prior | None) -> tuple[state_space.Trend, Array]:
    """Posterior over the levels of the rewards without their spikes, and the spikes (n,)."""
    believed = prior or state_space.Prior()
    plain = without_spikes(series.reward, believed.window, believed.width)
    return state_space.posterior(series.steps, plain, series.spacing, believed), series.reward - plain


def _repeated(series: RewardCurve, later: Array, coverage: float, notes: str) -> Forecast:
    """Forecast of a reward that never varied: it repeats the reward."""
    n, reason = len(series.reward), "constant reward"
    same = np.full(len(later), series.reward[0])
    level = Estimate(float(same[0]), math.nan, n, reason)
    advice = "a reward that never varies gives no gradient: check the reward function and how hard the problems are"
    flag = "; ".join(filter(None, ("constant reward: the forecast only repeats it", notes)))
    return Forecast(
        later, same, same, same, same, same, coverage, level, Estimate(0.0, math.nan, n, reason),
        (0.0, 0.0), math.nan, level, math.nan, "cannot tell", advice, flag,
    )  # fmt: skip


def _later(series: RewardCurve, horizon: ArrayLike) -> Array:
    given = np.asarray(horizon, dtype=float)
    last = series.steps[-1]
    if given.ndim == 0:
        if not (np.isfinite(given) and given >= 1):
            raise UserError(f"horizon {float(given):g} must be at least 1 step")
        count = max(1, round(float(given) / series.spacing))
        every = -(-count // LONGEST)
        return np.asarray(last + series.spacing * np.arange(count % every or every, count + 1, every))
    if given.ndim != 1 or not len(given) or not (given > last).all():
        raise UserError(f"the steps to forecast must come after the last one, {last:g}")
    return given


def _band(
    model: state_space.Trend, deviation: Array, spread: Array, late: Array, spikes: Array, coverage: float
) -> NDArray[np.float64]:
    """Low, high, inner low and inner high (4, H) around the mean: quantiles of level plus noise, drawn from both."""
    random = np.random.default_rng(0)
    drawn = random.choice(len(model.weight), DRAWS, p=model.weight)
    level = deviation[drawn] + spread[drawn] * random.standard_normal((DRAWS, 1))
    level = np.where(level > 0, level * late, level)
    noise = model.surprise + spikes[1:] - spikes.mean()
    noise = noise[-max(FEWEST, round(RECENT * len(noise))) :]
    shaken = random.choice(noise, (NOISES, DRAWS, 1)) + level
    shares = [(1 - coverage) / 2, (1 + coverage) / 2, 0.25, 0.75]
    return np.asarray(np.quantile(shaken.reshape(-1, len(late)), shares, axis=0))


def _spread(weight: Array, mean: Array, variance: Array) -> float:
    """Standard deviation of a mixture of distributions with these weights, means and variances."""
    centre = weight @ mean
    return math.sqrt(float(weight @ (variance + (mean - centre) ** 2)))


def _change(model: state_space.Trend, final: Array, late: float) -> tuple[float, float]:
    """Expected change of the level up to the horizon, and its standard deviation: of the rise and of the wandering."""
    moved = final - model.level
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(model.rise != 0, moved / model.rise, 0.0)
    variance = model.rise_variance * ratio**2 + model.wander * state_space.aged(late)
    return float(model.weight @ moved), _spread(model.weight, moved, variance)


def _advice(low: float, high: float, matters: float) -> tuple[str, str]:
    """Verdict and advice from the ends of the change; `matters` is a quarter of the noise of one logged reward."""
    if low > 0:
        return "rising", "continue: the reward is expected to rise further"
    if high < 0:
        return "falling", "stop and look: the reward is expected to fall"
    if high < matters and low > -matters:
        return "level", "stop: what is left to gain is below a quarter of the noise of one step"
    return (
        "cannot tell",
        "the expected change does not stand out from what is uncertain: log more steps before deciding",
    )


def _plateau(series: RewardCurve) -> tuple[Estimate, float]:
    """Value and step of the plateau from the identified saturating curve with the least residual."""
    fits = [fit_series(series, name) for name in SATURATING]
    fits = [f for f in fits if not any(p.flag for p in f.parameters.values())]
    if not fits:
        reason = "cannot tell: no saturating curve is identified"
        return Estimate(math.nan, math.nan, len(series.reward), reason), math.nan
    best = min(fits, key=lambda f: f.rmse)
    spread = float(np.std([f.parameters["plateau"].value for f in fits]))
    value = best.parameters["plateau"]
    return Estimate(value.value, math.hypot(value.se, spread), value.n), best.reaches(0.95)
