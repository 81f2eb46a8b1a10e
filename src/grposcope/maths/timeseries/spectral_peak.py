"""Swings of a metric whose period changes: a broad peak in the spectrum above autocorrelated noise.

Method of this project; no publication.

Swings under late feedback have corners and change their period, so no sinusoid follows them for long (`periodogram`).
What stays is where their variance lies: around a frequency f₀ and its multiples, with less below, while the spectrum of
an AR(1) with φ ≥ 0 plus white noise only falls. In the cosine transform, where that noise is nearly diagonal
(`noise`), coefficient j has j/2 cycles per window, and swings whose period spreads by a share q of itself add

    v_j = c b_j + (1 − c) d_j,   b_j ∝ Σ_h h⁻³ exp(−(log(j / 2h f₀) / q)² / 2),   mean of b_j = 1,

c: their share of the variance; d_j: the noise. With L the residual likelihood, in which the smooth trend and the scale
drop out, and a grid of (f₀, q, c, harmonics, noise),

    E = mean over the grid of L(y) / max over noises of L(y)

has mean at most 1 under every noise, so P(E ≥ 1/α) ≤ α (Markov): no estimate of φ is plugged in, and nothing is counted
for the grid ("universal inference", Wasserman, Ramdas & Balakrishnan 2020, doi:10.1073/pnas.1922664117). That bound is
loose, since the maximum always exceeds the truth. By simulation P(E ≥ κ/α) ≤ α holds with κ = BOUND / n for n of 40 to
200 rows and φ of 0 to 0.98 (benchmarks/diagnosis.md), so p = κ / E.

The swings themselves are the Wiener filter of the coefficients; whether they grow is a line through the logarithm of
their energies e_i, one per period. What is left of a level shift rings, but near the shift alone: besides that line the
energies must be spread over (Σ e)² / Σ e² ≥ CYCLES periods.

A series that the trend fits exactly has p = 1.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.fft import dct, idct
from scipy.special import logsumexp, stdtr

from grposcope.core.estimate import Estimate
from grposcope.maths.timeseries.change import block_means
from grposcope.maths.timeseries.noise import EXACT, NO_WHITE, Array, Design, cosine_variances, lag_of_differences
from grposcope.maths.timeseries.periodogram import FASTEST, WINDOW, Oscillation, strongest, trend_columns, windows

BOUND = 2.0
"""n × κ, where P(E ≥ κ/α) ≤ α under every noise."""

CYCLES = 4.0
"""Fewer cycles in a window cannot be told from a few bends."""

STEP = 1.15
"""From one f₀ tried to the next, as a factor."""

SPREADS = (0.1, 0.25)
"""q: the spread of the period, as a share of it."""

HARMONICS = (1, 8)
"""Waves without corners, and saw-toothed ones, whose h-th harmonic has 1/h² of the variance of the first."""

SHARES = (0.3, 0.6, 0.9)
"""c: share of the detrended variance that swings."""


@lru_cache(maxsize=8)
def _grid(n: int, averaged: bool = False) -> tuple[Design, Design, Array, Array, Array]:
    """The models of a window of n rows or blocks: noise alone, and with swings; averaged: of exponential averages.

    Then of the models with swings: their cycles (M,) per window, the share (M,) that swings, and the share (M, n) of a
    coefficient's variance that does.
    """
    falling, (coarse, names) = _noises(n, averaged), cosine_variances(n, coarse=True, averaged=averaged)
    behind = coarse[(names[:, 1] == 1) | (names[:, 0] == 0)]  # white noise and pure AR(1)
    behind = np.vstack([behind, coarse[np.isinf(names[:, 1])][::3]])  # and some averages of it
    centres = CYCLES * STEP ** np.arange(1 + int(math.log(max(n / FASTEST / CYCLES, 1)) / math.log(STEP)))
    peaks = np.array([_peak(n, f, q, most) for f in centres for q in SPREADS for most in HARMONICS])
    share = np.array(SHARES)[:, None, None]
    swings = np.broadcast_to(share * peaks[:, None, None], (len(peaks), len(SHARES), len(behind), n))
    variances = swings + (1 - share) * behind
    cycles = np.repeat(centres, variances.size // n // len(centres))
    shares = np.broadcast_to(share[..., 0], variances.shape[:-1]).ravel()
    trend, _ = np.linalg.qr(trend_columns(n))
    passed = (swings / variances).reshape(-1, n)
    noise, with_swings = Design(trend, variances=falling), Design(trend, variances=variances.reshape(-1, n))
    return noise, with_swings, cycles, shares, passed


def _noises(n: int, averaged: bool) -> Array:
    """Variances (M, n) of the cosine coefficients of noise alone: the grid of `noise`, and AR(1) averaged over rows.

    Averaging makes the first autocorrelation exceed φ: s > 1, up to (1 − φ)² / (2φ (φ − 1 − log φ)) for averages of
    very many rows, φ that of the averages.
    """
    rows, names = cosine_variances(n, averaged=averaged)
    pure, phi = rows[names[:, 1] == 1], names[names[:, 1] == 1, :1]
    most = (1 - phi) ** 2 / (2 * phi * (phi - 1 - np.log(phi)))
    return np.vstack([rows, *(share * pure + 1 - share for share in ((1 + most) / 2, most))])


def _peak(n: int, centre: float, spread: float, harmonics: int) -> Array:
    """b (n,) for swings of `centre` cycles per window."""
    order = np.arange(1, harmonics + 1)[:, None]
    logs = np.log(np.arange(1, n) / 2 / centre / order)
    peak = (order**-3.0 * np.exp(-0.5 * (logs / spread) ** 2)).sum(0)
    return np.concatenate([[0.0], n * peak / peak.sum()])


def oscillation(y: Array) -> Oscillation | None:
    """The oscillation of finite values y (n,), of any shape and changing period; None if they are too few or constant.

    period, share: posterior means. amplitude: of the last two periods. root, growing, fading: from the energy of
    successive periods.
    """
    return strongest([_look(y, first, last) for first, last in windows(y)])


def _look(y: Array, first: int, last: int) -> Oscillation:
    part = block_means(y[first:last], WINDOW)
    n = len(part)
    per = (last - first) / n
    noise, swings, cycles, shares, passed = _grid(n, lag_of_differences(part) > NO_WHITE)
    z = dct(part - part.mean(), norm="ortho")
    rest = z - noise.z @ (noise.z.T @ z)
    if rest @ rest <= EXACT * (z @ z):
        return Oscillation.none(n, first, last - 1, "no noise")
    likelihood, of_noise = (design.log_likelihood(design.squares(z)) for design in (swings, noise))
    whole = logsumexp(likelihood)
    weight = np.exp(likelihood - whole)
    evidence = whole - math.log(len(weight)) - of_noise.max()
    p = min(1.0, math.exp(math.log(BOUND / n) - evidence))
    period = n / math.exp(float(weight @ np.log(cycles)))
    amplitude, gamma, growing, fading, spread = _course(idct((weight @ passed) * rest, norm="ortho"), period)
    modulus = math.exp(gamma.value / per)
    root = Estimate(modulus, modulus * gamma.se / per, gamma.n)
    return Oscillation(
        p if spread >= CYCLES else 1.0, period * per, amplitude, float(weight @ shares), root, growing, fading, first,
        last - 1,
    )  # fmt: skip


def _course(alone: Array, period: float) -> tuple[float, Estimate, float, float, float]:
    """Course of the swings over their periods: amplitude of the last two, γ per row or block, p-values, their spread.

    The p-values are of "they do not grow" and of "they do not fade"; the spread is the number of periods that share
    the energy, growth aside.
    """
    count = max(int(len(alone) / period), 3)
    parts = np.array_split(alone, count)
    logs = np.log([max(float(part @ part) / len(part), 1e-300) for part in parts])
    at = (np.arange(count) - (count - 1) / 2) * len(alone) / count
    slope = float(at @ logs / (at @ at))
    rest = logs - logs.mean() - slope * at
    error = math.sqrt(float(rest @ rest) / (count - 2) / float(at @ at))
    t = slope / error if error > 0 else 0.0
    size = math.sqrt(2 * float(np.mean(np.concatenate(parts[-2:]) ** 2)))
    energy = np.exp(rest - rest.max())
    return (
        size, Estimate(slope / 2, error / 2, count), float(stdtr(count - 2, -t)), float(stdtr(count - 2, t)),
        float(energy.sum() ** 2 / (energy @ energy)),
    )  # fmt: skip
