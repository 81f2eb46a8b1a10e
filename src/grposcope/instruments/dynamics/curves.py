"""Fit one model to a reward curve: parameters with standard errors, and what is not identified.

Huber's loss is minimised by `scipy.optimize.least_squares` (trf, analytic Jacobian), from the STARTS best of a grid.
Standard errors are those of `noise.residual_covariance`: the residual is AR(1) plus white noise, integrated over.
R² is to be read against the noise ceiling 1 − σ²/Var(r), σ² from differences of neighbours: no curve can explain noise.

By simulation (exponential curves of 60 to 300 rewards, φ of 0 to 0.97, shares s of 0.3 to 1), 95 % intervals of the
plateau hold it in 73 to 100 % of runs; with the lag-one autocorrelation of the residuals for their whole correlation
they did in 35 to 96 %.

The curves that a reward is fitted with: r(s) = r₀ + (r∞ − r₀) f(s; ψ), f(0) = 0, f → 1, with Jacobians.

s is the share of the observed run, (step − first)/(last − first), and ψ are logarithms of positive numbers:

    constant     none            f = 0
    exponential  τ               f = 1 − e^{−s/τ}                                    the overdamped limit
    inertial     τ, ζ            1 − step response of m r̈ + c ṙ + k r at rest, τ = c/k, ζ = c/(2√(mk))

ζ → ∞ turns inertial into exponential. `experiments/curve_families.py` has rivals. Each shape returns f (B, n) and
∂f/∂ψ (B, q, n) for ψ (B, q), analytic and finite at critical damping.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import dct
from scipy.optimize import least_squares

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.instruments.dynamics.reward_curve import RewardCurve, clean
from grposcope.maths.timeseries.noise import Array, difference_variance, residual_variances, robust_spread

HUBER = 2.5
"""Residuals beyond this many robust standard deviations count linearly."""
CLEAR = 3.0
"""Standard errors by which the fitted curve must leave its start, or else it is noise."""
SINGULAR = 3e6
"""Condition number of the Jacobian, its columns at length 1, beyond which no parameter is identified."""
STARTS = 4
"""Starting points that are searched from."""
EDGE = 0.05
"""Distance in ψ from the edge of the search within which a parameter counts as at it: SciPy's search stays inside."""
LOOK = 250
"""Points that starting points are judged by, at most."""


@dataclass(frozen=True)
class Fit:
    """A fitted model of a family. Times are in steps.

    parameters: `start`, `plateau` and those of the model, each an Estimate whose flag says why not to trust it.
    r2, ceiling: share of variance explained, and the most a noise-free curve could. rmse: of the residuals.
    autocorrelation: ρ of the residuals. n: points. flag: empty, or what the fit cannot tell.
    """

    family: _Model
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

    @property
    def model(self) -> str:
        """Name of the family."""
        return self.family.name

    def predict(self, steps: ArrayLike) -> Array:
        """The curve at any steps from the first on."""
        s = np.maximum((np.asarray(steps, dtype=float) - self.first) / self.span, 0.0)
        start = self.parameters["start"].value
        f, _ = self.family.shape(np.array([self.psi]), s.reshape(-1))
        return np.asarray(start + (self.parameters["plateau"].value - start) * f[0].reshape(s.shape))

    def reaches(self, share: float = 0.95) -> float:
        """Step from which on the curve has covered `share` of the way to its plateau; ∞ if it never has."""
        if self.model == "constant":
            return self.first
        s = np.geomspace(1e-4, 1e3, 20000)
        f, _ = self.family.shape(np.array([self.psi]), s)
        short = np.flatnonzero(f[0] < share)
        if len(short) == len(s):
            return math.inf
        return self.first + self.span * float(s[short[-1] + 1] if len(short) else s[0])


def fit(steps: ArrayLike, reward: ArrayLike, model: str | _Model = "inertial") -> Fit:
    """Fit "inertial", "exponential", "constant" or a family of one's own; UserError for data that cannot be a curve."""
    return fit_series(clean(steps, reward), model)


def fit_series(series: RewardCurve, model: str | _Model) -> Fit:
    """Fit a checked curve."""
    if isinstance(model, str) and model not in MODELS:
        raise UserError(f"unknown model {model!r}; use one of {', '.join(MODELS)}")
    chosen, s, y = MODELS[model] if isinstance(model, str) else model, series.share, series.reward
    if not chosen.names or series.constant:
        return _constant(series)
    steps = np.diff(y)
    scale = max((robust_spread(steps) or float(steps.std())) / math.sqrt(2), 1e-3 * float(y.std()))
    start, rise, psi = _solve(chosen, s, y, scale)
    return _describe(series, chosen, start, rise, psi, scale)


def noise_ceiling(steps: ArrayLike, reward: ArrayLike) -> Estimate:
    """The R² of a curve that explains everything but noise: 1 − σ²/Var(r), σ² from neighbours."""
    series = clean(steps, reward)
    variance, n = float(series.reward.var()), len(series.reward)
    if variance == 0:
        return Estimate(math.nan, math.nan, n, "constant reward")
    share = difference_variance(series.reward) / variance
    return Estimate(max(0.0, 1 - share), share * math.sqrt(3 / n), n)


def _solve(model: _Model, s: Array, y: Array, scale: float) -> tuple[float, float, Array]:
    """(r₀, c, ψ) that minimise Huber's loss of y − r₀ − c f(s; ψ), the best of the searches from all starts."""

    def residual(p: Array) -> Array:
        f, _ = model.shape(p[None, 2:], s)
        return p[0] + p[1] * f[0] - y

    def jacobian(p: Array) -> Array:
        f, slopes = model.shape(p[None, 2:], s)
        return np.column_stack([np.ones_like(s), f[0], *(p[1] * slopes[0])])

    free = np.full(2, math.inf)
    bounds = np.append(-free, np.log(model.low)), np.append(free, np.log(model.high))
    with np.errstate(over="ignore", invalid="ignore"):  # rewards of any size
        fits = [
            least_squares(residual, start, jacobian, bounds, x_scale="jac", loss="huber", f_scale=HUBER * scale)
            for start in _starts(model, s, y, scale)
        ]
    best = min(fits, key=lambda solution: float(solution.cost)).x
    return float(best[0]), float(best[1]), best[2:]


def _starts(model: _Model, s: Array, y: Array, scale: float) -> Array:
    """The best STARTS of the model's starting points (r₀, c, ψ), by their loss at no more than LOOK points.

    r₀ and c are those of ordinary least squares given ψ.
    """
    stride = -(-len(s) // LOOK)
    s, y = s[::stride], y[::stride]
    points = np.log(np.array(list(itertools.product(*model.starts))))
    f, _ = model.shape(points, s)
    centred = f - f.mean(1, keepdims=True)
    spread = (centred**2).sum(1)
    rise = np.where(spread > 1e-14 * len(s), (centred * y).sum(1) / np.maximum(spread, 1e-300), 0.0)
    start = y.mean() - rise * f.mean(1)
    size, limit = np.abs(y - start[:, None] - rise[:, None] * f), HUBER * scale
    loss = np.where(size <= limit, size**2, 2 * limit * size - limit**2).sum(1)
    return np.column_stack([start, rise, points])[np.argsort(loss)[:STARTS]]


def _constant(series: RewardCurve) -> Fit:
    """Fit of a level; for rewards that do not vary it stands for every model."""
    y = series.reward
    flag = "the reward is constant: nothing to fit" if series.constant else ""
    residual, n, spread = y - y.mean(), len(y), float(y.std())
    error = math.sqrt(_residual_covariance(np.ones((n, 1)), residual)[0, 0]) if spread else 0.0
    level = Estimate(float(y.mean()), error, n, flag)
    return Fit(MODELS["constant"], {"start": level, "plateau": level}, 0.0 if spread else math.nan,
               noise_ceiling(series.steps, y).value, spread, _autocorrelation(residual) if spread else math.nan, n,
               float(series.steps[0]), float(np.ptp(series.steps)), (), _join(flag, series))  # fmt: skip


def _describe(series: RewardCurve, model: _Model, start: float, rise: float, psi: Array, scale: float) -> Fit:
    s, y, n = series.share, series.reward, len(series.reward)
    f, slopes = (a[0] for a in model.shape(psi[None], s))
    residual = y - start - rise * f
    jacobian = np.column_stack([1 - f, f, *(rise * slopes)])  # start, plateau, ψ
    columns, upper = np.linalg.qr(jacobian)
    weight = HUBER * scale / np.maximum(np.abs(residual), HUBER * scale)
    covariance = _residual_covariance(columns, residual, weight)
    errors = _errors(upper, covariance)
    span = float(np.ptp(series.steps))
    total, left = float(((y - y.mean()) ** 2).sum()), max(float(residual @ residual), 1e-300)
    farthest = int(np.abs(f).argmax())
    away = columns[farthest] - columns[0]
    noisy = abs(rise * f[farthest]) < CLEAR * math.sqrt(away @ covariance @ away)
    flag = "the reward does not rise above its noise" if noisy else _unidentified(rise, float(f[-1]), float(errors[1]))
    parameters = {
        "start": Estimate(float(start), float(errors[0]), n),
        "plateau": Estimate(float(start + rise), float(errors[1]), n, flag),
    }
    for i, name in enumerate(model.names):
        value = math.exp(psi[i]) * (span if name in model.timed else 1.0)
        edge = psi[i] <= math.log(model.low[i]) + EDGE or psi[i] >= math.log(model.high[i]) - EDGE
        error = value * float(errors[2 + i])
        reason = "at the edge of the search range" if edge else "not identified" if error > 2 * value else flag
        parameters[name] = Estimate(value, error, n, reason)
    return Fit(model, parameters, 1 - left / total,
               noise_ceiling(series.steps, y).value, float(np.sqrt(np.mean(residual**2))), _autocorrelation(residual),
               n, float(series.steps[0]), span, tuple(map(float, psi)), _join(flag, series))  # fmt: skip


def _residual_covariance(columns: Array, residual: Array, weight: Array | None = None) -> Array:
    """Covariance (K, K) of least-squares coefficients of well-conditioned columns X (n, K), given their residual (n,).

    The sandwich (X'WX)⁻¹ X'CX (X'WX)⁻¹: C is the covariance of the weighted residual, averaged over the noises of the
    coarse grid; W: robust weights, 1 by default.
    """
    weight = np.ones(len(residual)) if weight is None else weight
    variances, z = residual_variances(columns, residual * weight), dct(columns, axis=0, norm="ortho")
    bread = np.linalg.inv(columns.T @ (columns * weight[:, None]))
    return np.asarray(bread @ (z.T @ (variances[:, None] * z)) @ bread)


def _autocorrelation(residual: Array) -> float:
    """Lag-one autocorrelation with the small-sample correction (1 + 3ρ)/n, held within (−0.5, 0.98)."""
    power, n = float(residual @ residual), len(residual)
    raw = float(residual[1:] @ residual[:-1]) / power if power > 0 else 0.0
    return min(0.98, max(-0.5, raw + (1 + 3 * raw) / n))


def _errors(upper: Array, covariance: Array) -> Array:
    """Standard errors of parameters p from the covariance of R p, R = `upper`; ∞ for all where R is singular."""
    normal = upper / np.maximum(np.sqrt((upper**2).sum(0)), 1e-300)
    if not np.isfinite(normal).all() or np.linalg.cond(normal) > SINGULAR:
        return np.full(len(upper), math.inf)
    inverse = np.linalg.inv(upper)
    return np.asarray(np.sqrt(np.diag(inverse @ covariance @ inverse.T)))


def _unidentified(rise: float, reached: float, error: float) -> str:
    """Why the plateau is not known, if it is not."""
    if reached < 0.6:
        return f"plateau not identified: the run has seen only {reached:.0%} of the fitted rise"
    if not error < abs(rise):
        return "plateau not identified: its standard error exceeds the rise"
    return ""


def _join(flag: str, series: RewardCurve) -> str:
    return "; ".join(filter(None, (flag, *series.notes)))


Shape = Callable[[Array, Array], tuple[Array, Array]]


@dataclass(frozen=True)
class _Model:
    """A family of curves.

    names: of the numbers in ψ; timed: those that are measured in steps; low, high: their range in shares of the run;
    starts: values of each number from which the search starts.
    """

    name: str
    shape: Shape
    names: tuple[str, ...] = ()
    timed: tuple[str, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    starts: tuple[tuple[float, ...], ...] = ()


def _constant_curve(psi: Array, s: Array) -> tuple[Array, Array]:
    """f = 0."""
    return np.zeros((len(psi), len(s))), np.zeros((len(psi), 0, len(s)))


def _exponential(psi: Array, s: Array) -> tuple[Array, Array]:
    """f = 1 − e^{−s/τ}."""
    ratio = s * np.exp(-psi[:, :1])
    remaining = np.exp(-ratio)
    return 1 - remaining, (-ratio * remaining)[:, None]


def _inertial(psi: Array, s: Array) -> tuple[Array, Array]:
    """1 − e^{−αs}(C + αs S) with α = 2ζ²/τ, Δ = 4ζ²(ζ² − 1)/τ², C = cosh √(Δs²), S = sinh √(Δs²)/√(Δs²)."""
    tau, zeta = np.exp(psi[:, :1]), np.exp(psi[:, 1:])
    alpha, omega2 = 2 * zeta**2 / tau, 4 * zeta**2 / tau**2
    delta = omega2 * (zeta**2 - 1)
    z, decay = delta * s**2, alpha * s
    c, big_s, slope = _damped(z, decay, omega2 * s**2)
    distance = c + decay * big_s
    by_alpha = s * (big_s - distance)
    by_delta = s**2 * (big_s / 2 + decay * slope)
    by_tau = -alpha * by_alpha - 2 * delta * by_delta
    by_zeta = 2 * alpha * by_alpha + (4 * zeta**2 - 2) * omega2 * by_delta
    return 1 - distance, -np.stack([by_tau, by_zeta], 1)


def _damped(z: Array, decay: Array, square: Array) -> tuple[Array, Array, Array]:
    """e^{−αs} times C, S and dS/dz at z = Δs²; `square` = ω²s² keeps αs − √z free of cancellation."""
    over = z[:, -1] >= 0  # the sign of Δ, a property of the row
    x = np.sqrt(np.abs(z))
    safe = np.where(x > 0, x, 1.0)
    c, big_s, fast = np.empty_like(z), np.empty_like(z), np.empty_like(z)
    if over.any():
        far = decay[over] + x[over]
        near = np.exp(-square[over] / np.where(far > 0, far, 1.0))
        fade = np.expm1(-2 * x[over])
        c[over], big_s[over] = near * (1 + fade / 2), near * np.where(x[over] > 0, -fade / (2 * safe[over]), 1.0)
        fast[over] = np.exp(-decay[over])
    if not over.all():
        under = ~over
        fast[under] = np.exp(-decay[under])
        c[under] = fast[under] * np.cos(x[under])
        big_s[under] = fast[under] * np.where(x[under] > 0, np.sin(x[under]) / safe[under], 1.0)
    small = np.abs(z) < 1e-2
    return c, big_s, np.where(small, _slope_series(fast, z), (c - big_s) / (2 * np.where(small, 1.0, z)))


def _slope_series(fast: Array, z: Array) -> Array:
    """dS/dz = 1/6 + z/60 + z²/1680 + z³/90720 + …, where the quotient cancels."""
    return fast * (1 / 6 + z * (1 / 60 + z * (1 / 1680 + z / 90720)))


MODELS: dict[str, _Model] = {
    "constant": _Model("constant", _constant_curve),
    "exponential": _Model("exponential", _exponential, ("time_constant",), ("time_constant",), (0.005,), (10.0,),
                         ((0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 4.0),)),
    "inertial": _Model("inertial", _inertial, ("time_constant", "damping_ratio"), ("time_constant",), (0.005, 0.1),
                      (10.0, 10.0), ((0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 4.0), (0.15, 0.3, 0.6, 1.0, 2.0, 5.0))),
}  # fmt: skip
"""All models by name."""
