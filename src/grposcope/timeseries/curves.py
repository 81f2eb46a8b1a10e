"""Fit one model to a reward curve: parameters with standard errors, what is not identified, bootstrap refits.

Noise of a reward is autocorrelated, so the covariance is the sandwich H⁻¹ Jᵀ R J H⁻¹ s² with R_ij = ρ^|i−j| and ρ
the lag-one autocorrelation of the residuals, corrected for its small-sample bias (1 + 3ρ)/n. R² is to be read
against the noise ceiling 1 − σ²/Var(r), σ² from differences of neighbours: no curve can explain noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_banded

from grposcope.errors import UserError
from grposcope.records import Estimate
from grposcope.timeseries.curve_models import MODELS, Model
from grposcope.timeseries.least_squares import huber_loss, huber_weight, project, solve
from grposcope.timeseries.noise import Array, autocorrelation, noise_level, robust_spread
from grposcope.timeseries.reward_curve import RewardCurve, clean

HUBER = 2.5
"""Residuals beyond this many robust standard deviations count linearly."""
NOTHING = 4.0
"""A likelihood ratio to a constant, 2 log per parameter, below which a curve is noise."""
BINS = 200
"""Points that the refits of a bootstrap are made on, at the least."""
_STARTS, _LOOK = 4, 250


@dataclass(frozen=True)
class Fit:
    """A fitted model. Times are in steps.

    parameters: `start`, `plateau` and those of the model, each an Estimate whose flag says why not to trust it.
    r2, ceiling: share of variance explained, and the most a noise-free curve could. rmse: of the residuals.
    autocorrelation: ρ of the residuals. n: points. flag: empty, or what the fit cannot tell.
    """

    model: str
    parameters: Mapping[str, Estimate]
    r2: float
    ceiling: float
    rmse: float
    autocorrelation: float
    n: int
    first: float
    span: float
    psi: tuple[float, ...]
    flag: str = ""

    def predict(self, steps: ArrayLike) -> Array:
        """The curve at any steps from the first on."""
        s = np.maximum((np.asarray(steps, dtype=float) - self.first) / self.span, 0.0)
        start = self.parameters["start"].value
        shape = MODELS[self.model].shape
        if shape is None:
            return np.full(s.shape, start)
        f, _ = shape(np.array([self.psi]), s.reshape(-1))
        return np.asarray(start + (self.parameters["plateau"].value - start) * f[0].reshape(s.shape))

    def reaches(self, share: float = 0.95) -> float:
        """The step at which the curve has covered `share` of the way to its plateau for the last time left of it."""
        shape = MODELS[self.model].shape
        if shape is None:
            return self.first
        s = np.geomspace(1e-4, 1e3, 20000)
        f, _ = shape(np.array([self.psi]), s)
        short = np.flatnonzero(f[0] < share)
        if len(short) == len(s):
            return math.inf
        return self.first + self.span * float(s[short[-1] + 1] if len(short) else s[0])


def fit(steps: ArrayLike, reward: ArrayLike, model: str = "inertial") -> Fit:
    """Fit "inertial", "exponential", "logistic", "power" or "constant"; UserError for data that cannot be a curve."""
    return fit_series(clean(steps, reward), model)


def fit_series(series: RewardCurve, model: str, starts: Array | None = None) -> Fit:
    """The same for a checked curve; `starts` (any, q) replaces the search grid."""
    chosen = named(model)
    s, y = _share(series), series.reward
    if chosen.shape is None or series.constant:
        return _constant(series, model)
    scale = max(robust_spread(np.diff(y)) / math.sqrt(2), 1e-3 * float(y.std()))
    grid = _grid(chosen, s, y, scale) if starts is None else starts
    many = np.repeat(y[None], len(grid), 0)
    found = solve(chosen, s, many, grid.copy(), np.full(len(grid), scale), HUBER)
    best = int(found.loss.argmin())
    return _describe(series, chosen, found.start[best], found.rise[best], found.psi[best], scale)


def bootstrap(fitted: Fit, steps: ArrayLike, reward: ArrayLike, draws: int = 1000, seed: int = 0) -> dict[str, Array]:
    """Refits of curves with resampled blocks of residuals (length n^{1/3}, longer if ρ is high), all at once.

    Curves of more than 2·BINS points are averaged over neighbours first: a curve is straight within such a bin, so
    the refits stay those of the whole and cost a fraction.
    Returns (draws,) values per parameter. Quantiles of them are intervals that know of skewness.
    """
    series = clean(steps, reward)
    chosen = named(fitted.model)
    curve = fitted.predict(series.steps)
    residual = series.reward - curve
    residual = residual - residual.mean()
    n = len(residual)
    block = int(min(n // 2, max(n ** (1 / 3), 2 / max(1 - fitted.autocorrelation, 0.05))))
    random = np.random.default_rng(seed)
    begins = random.integers(0, n - block + 1, (draws, -(-n // block)))
    rows = (begins[:, :, None] + np.arange(block)).reshape(draws, -1)[:, :n]
    y = curve + residual[rows]
    if chosen.shape is None:
        return {"start": y.mean(1), "plateau": y.mean(1)}
    scale = max(robust_spread(residual), 1e-3 * float(series.reward.std()))
    s = _share(series)
    if n > 2 * BINS:
        begins = np.arange(0, n, n // BINS)
        sizes = np.diff(np.append(begins, n))
        s, y = np.add.reduceat(s, begins) / sizes, np.add.reduceat(y, begins, axis=1) / sizes
        scale = max(robust_spread(np.add.reduceat(residual, begins) / sizes), 1e-3 * float(series.reward.std()))
    found = solve(chosen, s, y, np.tile(fitted.psi, (draws, 1)), np.full(draws, scale), HUBER, 1e-4)
    named_values = {name: np.exp(found.psi[:, i]) for i, name in enumerate(chosen.names)}
    span = fitted.span
    return {
        "start": found.start,
        "plateau": found.start + found.rise,
        **{name: value * (span if name in chosen.timed else 1.0) for name, value in named_values.items()},
    }


def noise_ceiling(steps: ArrayLike, reward: ArrayLike) -> Estimate:
    """The R² of a curve that explains everything but noise: 1 − σ²/Var(r), σ² from neighbours."""
    series = clean(steps, reward)
    variance, n = float(series.reward.var()), len(series.reward)
    if variance == 0:
        return Estimate(math.nan, math.nan, n, "constant reward")
    share = noise_level(series.reward) ** 2 / variance
    return Estimate(max(0.0, 1 - share), share * math.sqrt(3 / n), n)


def named(model: str) -> Model:
    """A model by its name."""
    if model not in MODELS:
        raise UserError(f"unknown model {model!r}; use one of {', '.join(MODELS)}")
    return MODELS[model]


def _share(series: RewardCurve) -> Array:
    return np.asarray((series.steps - series.steps[0]) / (series.steps[-1] - series.steps[0]))


def _grid(model: Model, s: Array, y: Array, scale: float) -> Array:
    """The best few of the starting points, by the loss of their projected fit to at most `_LOOK` of the data."""
    stride = -(-len(s) // _LOOK)
    s, y = s[::stride], y[::stride]
    points = np.log(np.array(list(itertools.product(*model.starts))))
    assert model.shape is not None
    f, _ = model.shape(points, s)
    many, scales = np.repeat(y[None], len(points), 0), np.full(len(points), scale)
    linear = project(f, many, np.ones_like(f))
    loss = huber_loss(many - linear[:, :1] - linear[:, 1:] * f, scales, HUBER)
    return points[np.argsort(loss)[:_STARTS]]


def _constant(series: RewardCurve, model: str) -> Fit:
    """A level; also what every model is where nothing varies."""
    y = series.reward
    flag = "constant reward: nothing to fit" if series.constant else ""
    rho, n, spread = autocorrelation(y - y.mean()), len(y), float(y.std(ddof=1))
    inflation = math.sqrt((1 + rho) / (1 - rho)) if spread else 1.0
    level = Estimate(float(y.mean()), spread / math.sqrt(n) * inflation, n, flag)
    return Fit("constant", {"start": level, "plateau": level}, 0.0 if spread else math.nan,
               noise_ceiling(series.steps, y).value, float(y.std()), rho if spread else math.nan, n,
               float(series.steps[0]), float(np.ptp(series.steps)), (), _join(flag, series))  # fmt: skip


def _describe(series: RewardCurve, model: Model, start: float, rise: float, psi: Array, scale: float) -> Fit:
    assert model.shape is not None
    s, y, n = _share(series), series.reward, len(series.reward)
    f, slopes = (a[0] for a in model.shape(psi[None], s))
    residual = y - start - rise * f
    rho = autocorrelation(residual)
    jacobian = np.column_stack([1 - f, f, *(rise * slopes)])  # start, plateau, ψ
    weight = huber_weight(residual[None], np.array([scale]), HUBER)[0]
    covariance = _sandwich(jacobian, weight, residual, rho)
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    span = float(np.ptp(series.steps))
    reached = float(f[-1])
    total, left = float(((y - y.mean()) ** 2).sum()), max(float(residual @ residual), 1e-300)
    gained = n * (1 - rho) / (1 + rho) * math.log(total / left)
    flag = _unidentified(gained / jacobian.shape[1], rise, reached, float(errors[1]))
    parameters = {
        "start": Estimate(float(start), float(errors[0]), n),
        "plateau": Estimate(float(start + rise), float(errors[1]), n, flag),
    }
    for i, name in enumerate(model.names):
        value = math.exp(psi[i]) * (span if name in model.timed else 1.0)
        edge = psi[i] <= math.log(model.low[i]) + 1e-6 or psi[i] >= math.log(model.high[i]) - 1e-6
        error = value * float(errors[2 + i])
        reason = "at the edge of the search" if edge else "not identified" if error > 2 * value else flag
        parameters[name] = Estimate(value, error, n, reason)
    return Fit(model.name, parameters, 1 - left / total,
               noise_ceiling(series.steps, y).value, float(np.sqrt(np.mean(residual**2))), rho, n,
               float(series.steps[0]), span, tuple(map(float, psi)), _join(flag, series))  # fmt: skip


def _sandwich(jacobian: Array, weight: Array, residual: Array, rho: float) -> Array:
    """Covariance of the parameters under autocorrelated noise; ∞ on the diagonal where it is singular."""
    n, count = jacobian.shape
    scaled = jacobian * weight[:, None]
    bands = np.array([np.ones(n), np.full(n, -rho)])
    running = solve_banded((1, 0), bands, scaled)  # running[i] = scaled[i] + ρ running[i − 1]
    middle = scaled.T @ running + running.T @ scaled - scaled.T @ scaled
    bread = jacobian.T @ scaled
    size = np.sqrt(np.maximum(np.diag(bread), 1e-300))
    normal = bread / np.outer(size, size)
    if not np.isfinite(normal).all() or np.linalg.cond(normal) > 1e13:
        return np.diag(np.full(count, math.inf))
    inverse = np.linalg.inv(normal) / np.outer(size, size)
    variance = float(residual**2 @ weight) / max(n - count, 1)
    return np.asarray(variance * inverse @ middle @ inverse)


def _unidentified(gained: float, rise: float, reached: float, error: float) -> str:
    """Why the plateau is not known; `gained` is the likelihood ratio to a constant, per parameter."""
    if gained < NOTHING:
        return "no rise above the noise"
    if reached < 0.6:
        return f"plateau not identified: only {reached:.0%} of the fitted rise is behind"
    if not error < abs(rise):
        return "plateau not identified: its standard error exceeds the rise"
    return ""


def _join(flag: str, series: RewardCurve) -> str:
    return "; ".join(filter(None, (flag, *series.notes)))
