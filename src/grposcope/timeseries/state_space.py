"""Level and drift of a noisy reward: a Bayesian average over small state-space models.

Method of this project; no publication.

y_t = l_t + ε_t, l_t = l_{t−1} + b Δf_t + w_t: a level that follows a shape f with an unknown total rise b and
wanders a little besides. With u the share of the observed run, the shapes are u^p, growth that slows but does
not end, and 1 − e^{−u/τ}, growth that has ended; all scaled to rise by 1 over the observed part. In units of
the noise σ, b ~ N(gain, spread²): a run that optimises its reward is expected to rise, and further the longer
it has been going. One more family has b = 0, a run that does not learn. The variance of w is q Δ(u^0.3/0.3), so
a run changes less as it ages. Every member is a Kalman filter over (l, b) with σ² concentrated out, weighted by
its likelihood times its prior.

The noise is not that of `noise`: there the wandering is an AR(1), which returns to a mean curve that is fitted
separately, and a forecast from it would return too. Here the level itself wanders without a mean to return to, ever
more slowly, and is forecast.

The constants are few and were chosen on the scale of noise units; `experiments/dynamics_forecast.py` chooses
them again with each run left out.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grposcope.timeseries.noise import Array, robust_noise_level

AGE = 0.3
"""Exponent of the clock in which the level wanders."""


@dataclass(frozen=True)
class Prior:
    """Prior beliefs about a run; rises are in units of its noise σ.

    powers, decays: the shapes u^p and 1 − e^{−u/τ}. roughness: variances q of the wandering, in σ² per unit of
    the slowing clock. gain: mean of the rise b per hundred rewards, of which `most` hundreds count. spreads: standard
    deviations of b with their log-odds; a far larger rise is believed, but on strong evidence only. saturated,
    still: prior log-odds of the decaying shapes and of b = 0. window, width: what counts as a spike.
    """

    powers: tuple[float, ...] = (0.3, 0.5, 0.8)
    decays: tuple[float, ...] = (0.03, 0.1, 0.3)
    roughness: tuple[float, ...] = (0.0, 0.1, 1.0, 10.0, 100.0, 1000.0)
    gain: float = 3.0
    most: float = 1.5
    spreads: tuple[tuple[float, float], ...] = ((1.0, 0.0), (30.0, -6.0))
    saturated: float = -1.0
    still: float = -1.0
    window: float = 0.1
    width: float = 5.0


@dataclass(frozen=True)
class Trend:
    """The posterior over M members.

    weight, level, rise (M,) and their covariances, in reward units; wander: q σ² of each. surprise (n − 1,): one-step
    errors of the average. still: posterior probability of b = 0. Shares of the run are (step − origin)/span, `first`
    being that of the first step. members: shape and number of each.
    """

    weight: Array
    level: Array
    rise: Array
    level_variance: Array
    covariance: Array
    rise_variance: Array
    wander: Array
    surprise: Array
    still: float
    origin: float
    span: float
    first: float
    members: tuple[tuple[str, float], ...]

    def ahead(self, steps: Array) -> tuple[Array, Array]:
        """Mean and variance of the level at future steps, per member, (M, H) each."""
        now, then = np.ones(1), (steps - self.origin) / self.span
        moved = np.array([_shape(kind, number, then) - _shape(kind, number, now) for kind, number in self.members])
        moved /= np.array([_rise(kind, number, self.first) for kind, number in self.members])[:, None]
        mean = self.level[:, None] + self.rise[:, None] * moved
        variance = (
            self.level_variance[:, None]
            + 2 * self.covariance[:, None] * moved
            + self.rise_variance[:, None] * moved**2
            + self.wander[:, None] * aged(then)
        )
        return mean, np.maximum(variance, 0.0)


def posterior(steps: Array, reward: Array, spacing: float, prior: Prior) -> Trend:
    """Filter the curve with every member and weigh them. `reward` without spikes, not constant."""
    sigma = robust_noise_level(reward)
    origin = steps[0] - spacing
    span = steps[-1] - origin
    share = (steps - origin) / span
    shapes = [("power", p) for p in prior.powers] + [("decay", d) for d in prior.decays]
    gain = prior.gain * min(len(reward) / 100, prior.most) * sigma
    rows = [
        (shape, q, spread**2, gain, likely + (prior.saturated if shape[0] == "decay" else 0.0))
        for shape, q, (spread, likely) in itertools.product(shapes, prior.roughness, prior.spreads)
    ]
    odds = np.array([row[4] for row in rows]) - np.log(len(prior.powers))
    rows += [(("power", AGE), q, 0.0, 0.0, prior.still) for q in prior.roughness]
    odds = np.concatenate([odds, np.full(len(prior.roughness), prior.still)])
    members = tuple(row[0] for row in rows)
    increments = np.array([np.diff(_shape(*m, share)) / _rise(*m, share[0]) for m in members])
    wandering, spreads, means = (np.array([row[i] for row in rows]) for i in (1, 2, 3))
    ticks = np.diff(share**AGE / AGE)
    fit, level, rise, covariances, scale, surprises = _filter(reward, increments, ticks, wandering, spreads, means)
    odds += fit
    weight = np.exp(odds - odds.max())
    weight /= weight.sum()
    still = float(weight[-len(prior.roughness) :].sum())
    return Trend(
        weight=weight, level=level, rise=rise, level_variance=covariances[0] * scale, covariance=covariances[1] * scale,
        rise_variance=covariances[2] * scale, wander=wandering * scale,
        surprise=surprises @ weight, still=still, origin=float(origin), span=float(span), first=float(share[0]),
        members=members,
    )  # fmt: skip


def aged(share: Array | float) -> Any:
    """Time that passes on the clock of the wandering from now, share 1, to a later share of the run."""
    return (share**AGE - 1) / AGE


def _shape(kind: str, number: float, share: Array) -> Array:
    return share**number if kind == "power" else -np.exp(-share / number)


def _rise(kind: str, number: float, first: float) -> float:
    ends = _shape(kind, number, np.array([first, 1.0]))
    return float(ends[1] - ends[0])


def _filter(
    y: Array, increments: Array, ticks: Array, wandering: Array, spreads: Array, means: Array
) -> tuple[Array, Array, Array, tuple[Array, Array, Array], Array, NDArray[np.float64]]:
    """Kalman filters of all members at once: log-likelihood, final (l, b), covariances in units of σ², σ², errors."""
    members, n = increments.shape[0], len(y)
    level, rise = np.full(members, y[0]), means.copy()
    p_ll, p_lb, p_bb = np.ones(members), np.zeros(members), spreads.copy()
    squares, logs = np.zeros((2, members))
    errors = np.empty((n - 1, members))
    for i in range(n - 1):
        d = increments[:, i]
        level = level + rise * d
        p_ll = p_ll + 2 * d * p_lb + d * d * p_bb + wandering * ticks[i]
        p_lb = p_lb + d * p_bb
        total = p_ll + 1
        error = y[i + 1] - level
        errors[i] = error
        squares += error * error / total
        logs += np.log(total)
        gain_l, gain_b = p_ll / total, p_lb / total
        level, rise = level + gain_l * error, rise + gain_b * error
        p_bb = p_bb - gain_b * p_lb
        p_lb = p_lb - gain_l * p_lb
        p_ll = p_ll - gain_l * p_ll
    scale = squares / (n - 1)
    return -0.5 * (logs + (n - 1) * np.log(scale)), level, rise, (p_ll, p_lb, p_bb), scale, errors
