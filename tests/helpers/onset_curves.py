"""Noisy curves whose noise-free onset is known, for the tests and the benchmark of `maths.timeseries.onset`.

The onset of a curve is the first row at which it has made a tenth of its way from the level before to the level after;
of a course that grows anyway, the first at which it has made a tenth of its way away from that course.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from synthetic_series import ar1

Array = NDArray[np.float64]
Generator = np.random.Generator

ROWS = (60, 90, 120, 200, 300, 500)
"""Rows of a curve."""

SIZES = 3.0, 15.0
"""Sizes of a change in standard deviations of the noise, the least and the largest."""

SCALES = (1.0, 1.0, 0.05, 100.0, 1e4)
"""Units that curves are logged in: rewards, shares, per cent, counts."""


@dataclass(frozen=True)
class Dated:
    """A noisy curve and its onset. direction, course: what `onset` is asked. row: the onset, None without a change.

    slow: whether the change takes more than a few rows.
    """

    values: Array
    direction: int
    row: int | None
    slow: bool = False
    course: bool = False


def tenth(way: Array) -> int:
    """First row at which a way (n,) from 0 has made a tenth of where it leads in the end."""
    return int(np.argmax(way / way[-1] >= 0.1))


def ramp(n: int, start: int, width: float) -> Array:
    """0 before row `start`, 1 from `width` rows later on."""
    return np.clip((np.arange(n) - start + 1) / width, 0, 1)


def approach(n: int, start: int, rows: float) -> Array:
    """0 before row `start`, and from there to 1 exponentially, with this time constant."""
    return 1 - np.exp(-np.maximum(np.arange(n) - start + 1, 0) / rows)


def noise(rng: Generator, n: int) -> Array:
    """Noise of variance 1: white or AR(1), normal, with heavy tails, or skewed."""
    kind = rng.integers(5)
    if kind == 0:
        return rng.normal(size=n)
    if kind == 1:
        return np.asarray(rng.standard_t(3, n) / np.sqrt(3))
    if kind == 2:
        return np.asarray(rng.gamma(2, size=n) - 2) / np.sqrt(2)
    return ar1(rng, n, rng.uniform(0.2, 0.9))


def transition(rng: Generator, n: int, start: int) -> tuple[Array, bool]:
    """A way from 0 to 1 from row `start` on, sudden or slow, and whether it is slow."""
    left, kind = n - start, rng.integers(3)
    if kind == 0:
        return ramp(n, start, 1), False
    if kind == 1:
        return ramp(n, start, max(rng.uniform(0.2, 1.0) * left, 3)), True
    return approach(n, start, max(rng.uniform(0.1, 0.4) * left, 2)), True


def _logged(rng: Generator, curve: Array, way: Array | None, direction: int, slow: bool) -> Dated:
    """A curve in standard deviations of the noise, with noise, in some unit."""
    scale = float(rng.choice(SCALES))
    values = scale * (curve + noise(rng, len(curve)) + rng.uniform(0, 30))
    return Dated(values, direction, None if way is None else tenth(way), slow)


def _of_way(rng: Generator, way: Array, slow: bool) -> Dated:
    sign, asked = int(rng.choice([-1, 1])), rng.random() < 0.7
    return _logged(rng, sign * size(rng) * way, way, sign if asked else 0, slow)


def size(rng: Generator) -> float:
    """Size of a change in standard deviations of the noise, log-uniform within SIZES."""
    return float(np.exp(rng.uniform(*np.log(SIZES))))


def step(rng: Generator, n: int) -> Dated:
    """From one level to another at once, within 15 to 85 % of the rows."""
    return _of_way(rng, ramp(n, int(n * rng.uniform(0.15, 0.85)), 1), False)


def late_step(rng: Generator, n: int) -> Dated:
    """A jump within the last 5 % of the rows, of 6 standard deviations or more; two rows or more show it."""
    start = n - int(rng.integers(2, max(int(0.05 * n), 2) + 1))
    sign = int(rng.choice([-1, 1]))
    way = ramp(n, start, 1)
    return _logged(rng, sign * rng.uniform(6, 15) * way, way, sign, False)


def slow_ramp(rng: Generator, n: int) -> Dated:
    """A straight way over 5 to 50 % of the rows."""
    width = n * rng.uniform(0.05, 0.5)
    start = int(rng.uniform(0.1 * n, n - width - 0.05 * n))
    return _of_way(rng, ramp(n, start, width), True)


def slow_approach(rng: Generator, n: int) -> Dated:
    """An exponential approach with a time constant of 3 to 20 % of the rows."""
    return _of_way(rng, approach(n, int(n * rng.uniform(0.1, 0.7)), n * rng.uniform(0.03, 0.2)), True)


def logistic(rng: Generator, n: int) -> Dated:
    """An S of which 80 % takes 5 to 40 % of the rows."""
    middle, rows = n * rng.uniform(0.35, 0.7), n * rng.uniform(0.05, 0.4) / (2 * np.log(9))
    way = 1 / (1 + np.exp(-(np.arange(n) - middle) / rows))
    way = way - way[0]
    return _of_way(rng, way / way[-1], True)


def rise_then_fall(rng: Generator, n: int) -> Dated:
    """A rise, and later a fall of 40 to 120 % of it, with or without a level between; the fall is asked for."""
    start = int(n * rng.uniform(0.4, 0.85))
    top = max(start * rng.choice([1.0, rng.uniform(0.3, 1.0)]), 3)
    rise = np.minimum(np.arange(n) / top, 1) if rng.random() < 0.5 else approach(n, 0, top / 4)
    fall, slow = transition(rng, n, start)
    held = np.where(np.arange(n) < start, rise, rise[start - 1])
    gain = size(rng)
    return _logged(rng, gain * (held - rng.uniform(0.4, 1.2) * max(4 / gain, 1) * fall), fall, -1, slow)


def kl_blow_up(rng: Generator, n: int) -> Dated:
    """Logarithms of a KL that grows on its course, and from 30 to 75 % of the rows on far beyond it."""
    start = int(n * rng.uniform(0.3, 0.75))
    way, slow = transition(rng, n, start)
    course, spread = kl_course(rng, n), rng.uniform(0.05, 0.4)
    logs = course + np.log(rng.uniform(10, 300)) * way + spread * noise(rng, n)
    return Dated(logs, 1, tenth(way), slow, course=True)


def kl_course(rng: Generator, n: int) -> Array:
    """Logarithms of a KL that stays, grows linearly, as a square root, or levels off."""
    u = (np.arange(n) + 1) / n
    kind = rng.integers(4)
    if kind == 3:
        return np.asarray(np.log(0.01 + 0.1 * approach(n, 0, n * rng.uniform(0.1, 0.4))))
    return np.asarray(np.log(0.005 + 0.1 * u ** (0.0, 1.0, 0.5)[kind]))


def no_change(rng: Generator, n: int) -> Dated:
    """A level, and any change is asked for."""
    return _logged(rng, np.zeros(n), None, int(rng.choice([-1, 0, 1])), False)


def rise_without_fall(rng: Generator, n: int) -> Dated:
    """A rise of any kind, and a fall is asked for."""
    way, slow = transition(rng, n, int(n * rng.uniform(0, 0.6)))
    return _logged(rng, size(rng) * way, None, -1, slow)


def kl_without_blow_up(rng: Generator, n: int) -> Dated:
    """Logarithms of a KL that stays on its course."""
    logs = kl_course(rng, n) + rng.uniform(0.05, 0.4) * noise(rng, n)
    return Dated(logs, 1, None, course=True)


CHANGES: Mapping[str, Callable[[Generator, int], Dated]] = {
    kind.__name__: kind for kind in (step, late_step, slow_ramp, slow_approach, logistic, rise_then_fall, kl_blow_up)
}
"""Kinds of curves with a change."""

UNCHANGED: Mapping[str, Callable[[Generator, int], Dated]] = {
    kind.__name__: kind for kind in (no_change, rise_without_fall, kl_without_blow_up)
}
"""Kinds of curves without the change that is asked for."""


def made(kind: str, seed: int) -> Dated:
    """The curve of this kind and seed, of one of ROWS."""
    rng = np.random.default_rng([seed, sorted([*CHANGES, *UNCHANGED]).index(kind)])
    return {**CHANGES, **UNCHANGED}[kind](rng, int(rng.choice(ROWS)))
