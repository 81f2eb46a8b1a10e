"""What a metric was at first, at best and at last, by the noise of those rows alone.

Method of this project; no publication.

"It is lower now" and "it would have come back" are two questions. Here is the first: means over the rows of a window
with the error of those rows (`maths.timeseries.level`), whatever drew the run there. The second, whether a slow
wandering would do as much, is that of `maths.timeseries.change`.

The last window begins behind a sudden fall, so that a run that collapsed in its last tenth is not averaged with what
it was before.
"""

from __future__ import annotations

from dataclasses import dataclass

from grposcope.core.estimate import Estimate
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import BLOCKS, EARLY, LATE
from grposcope.maths.timeseries.change_points import LevelShift
from grposcope.maths.timeseries.level import Span
from grposcope.maths.timeseries.noise import Array, Contrast, smoothing, widening

PARTS: tuple[Span, ...] = tuple((start / 10, start / 10 + 0.2) for start in range(7))
"""Parts of the run that the best level is looked for in; four of them do not overlap."""

DISJOINT = 4
"""Number of parts that do not overlap, which p-values of the best part are multiplied by."""

SUDDEN = 1e-3
"""p-value of a shift of the level below which a fall is sudden, if it takes at most SHORT of the run."""

SHORT = 0.15

WINDOW = 0.2
"""Share of the run before a sudden fall that is one of the parts that the best level is looked for in."""


@dataclass(frozen=True)
class Present:
    """Levels of a metric of n rows. first, best, last: with the error of their rows.

    best_part, last_part: their rows, as shares of the run. rise, loss: the last level less the first and the best.
    fall: row at which a sudden fall begins, None where there is none. smoothed: φ of the exponential average that the
    rows look like, 0 where they do not; errors are those of such rows.
    """

    first: Estimate
    best: Estimate
    last: Estimate
    best_part: Span
    last_part: Span
    rise: Contrast
    loss: Contrast
    fall: int | None = None
    smoothed: float = 0.0


def present(values: Array, shift: LevelShift | None = None) -> Present:
    """The levels of finite values (n,), n of 1 or more. shift: the likeliest shift of the level, where it was looked
    for."""
    n = len(values)
    fall = _sudden_fall(values, shift)
    last_part = LATE if fall is None else (max(LATE[0], min(fall[1] / n, 1 - 3 / n)), 1.0)
    parts = PARTS if fall is None else (*PARTS, (max(fall[0] / n - WINDOW, 0.0), fall[0] / n))
    best_part = max(parts, key=lambda span: float(values[level.rows(n, span)].mean()))
    phi = smoothing(values)
    widen = widening(phi)
    first, best, last = (level.level(values, span, widen=widen) for span in (EARLY, best_part, last_part))
    if best.value <= last.value:
        best, best_part = last, last_part
    rise, loss = (
        level.change(values, EARLY, last_part, widen=widen),
        level.change(values, best_part, last_part, widen=widen),
    )
    of_first, of_best, of_last = (Estimate(estimate.value, estimate.se, n) for estimate in (first, best, last))
    begin = None if fall is None else fall[0]
    return Present(of_first, of_best, of_last, best_part, last_part, rise, loss, begin, phi)


def _sudden_fall(values: Array, shift: LevelShift | None) -> tuple[int, int] | None:
    """First row of a sudden fall and first row behind it; None where there is none."""
    n = len(values)
    rows = n / min(n, -(-n // -(-n // BLOCKS)))  # of a block
    if shift is None or shift.p >= SUDDEN or shift.size >= 0 or shift.width * rows > SHORT * n:
        return None
    begin, end = round(shift.start * rows), round((shift.start + shift.width) * rows)
    return (begin, end) if begin >= 1 and n - end >= level.LEAST else None
