"""Level of a metric over a part of the run: a fact that only measurement noise blurs.

Method of this project; no publication.

"Entropy fell below a fifth", "40 % of completions are cut" and "reward stayed where it began" speak of what the
run did, whatever made it do so. A policy that wandered there is there. So the quantity is the mean over the rows of a
window, and only the part of the noise that rows do not share blurs it. For a slow wandering plus white
noise of variance v, half the mean squared difference of successive rows, ½ E(Δ²) = v + (variance of the wandering)
(1 − φ), bounds v from above without a model (von Neumann 1941), and is blind to trends and jumps elsewhere:

    se² = ½ mean(Δ²) / rows of the window,   t with about ⅔ (rows − 1) degrees of freedom.

Where the run was *drawn to* is another question: `change` answers it, and needs many more rows where φ is large.

Windows are shares of the rows. Where successive rows do not differ, the error is 0 and tests are decided by the sign.
"""

from __future__ import annotations

import math

from scipy.special import stdtr

from grposcope.maths.timeseries.noise import Array, Contrast, difference_variance

Span = tuple[float, float]

LEAST = 3
"""Rows of the smallest window; a shorter one is widened."""

AROUND = 20
"""Rows in and around the window from which the noise is judged, at least."""


def level(y: Array, span: Span, above: float = 0.0, widen: float = 1.0) -> Contrast:
    """The mean of finite y (n,) over `span`, less a constant. widen: factor of its variance (`noise.widening`)."""
    mean, variance, df = _mean(y, span, widen)
    return _tested(mean - above, variance, df)


def change(
    y: Array, first: Span, last: Span, ratio: float = 1.0, minus: float = 0.0, widen: float = 1.0
) -> Contrast:  # fmt: skip
    """Mean over `last` less `ratio` × mean over `first`, less a constant; degrees of freedom by Welch."""
    early, v_early, df_early = _mean(y, first, widen)
    late, v_late, df_late = _mean(y, last, widen)
    v_early *= ratio**2
    total = v_early + v_late
    df = 1 / ((v_early / total) ** 2 / df_early + (v_late / total) ** 2 / df_late) if total > 0 else 1.0
    return _tested(late - ratio * early - minus, total, df)


def rows(n: int, span: Span, least: int = LEAST) -> slice:
    """The rows whose middle lies in `span`, widened to `least` of them where there are as many."""
    first, last = math.ceil(span[0] * n - 0.5), math.floor(span[1] * n - 0.5) + 1
    least = min(least, n)
    if last - first < least:
        first = min(max((first + last - least) // 2, 0), n - least)
        last = first + least
    return slice(first, last)


def _mean(y: Array, span: Span, widen: float) -> tuple[float, float, float]:
    part, around = y[rows(len(y), span)], y[rows(len(y), span, AROUND)]
    return float(part.mean()), widen * difference_variance(around) / len(part), max(2 * (len(around) - 1) / 3, 1.0)


def _tested(value: float, variance: float, df: float) -> Contrast:
    error = math.sqrt(variance)
    if error <= 1e-12 * abs(value):
        return Contrast(value, 0.0, 0.0 if value > 0 else 1.0, 0.0 if value < 0 else 1.0)
    return Contrast(value, error, float(stdtr(df, -value / error)), float(stdtr(df, value / error)))
