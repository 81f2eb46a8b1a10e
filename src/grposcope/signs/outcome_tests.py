"""The tests that decide what became of a run: of a metric of training rows, of few rows, and of evaluations.

Method of this project; no publication. Levels of a metric of rows are those of `present`: means with the error of their
rows. Whether they differ is tested on its mean curve (`maths.timeseries.change`), with an error that allows for
wandering. Levels of evaluations are means of evaluations, with the error that the log gives them or that their
neighbours show, since an evaluation says where the run was and not where it was drawn to.

Rises are tested at RISES, falls at FALLS, those from the best part times the number of parts that it was chosen from: a
fall is a warning by itself, a rise is none. A small gain counts if it is CERTAIN; no range is assumed that nobody
stated. A fall that the eye sees plainly, PLAIN of the range beyond the noise of its rows, has happened whether or not a
wandering could have done it. And where something prevents learning the burden of proof lies on the gain: `no_gain` says
that none was shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import ndtr, stdtr

from grposcope.core.estimate import Estimate
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.maths.timeseries.noise import Array, Contrast, difference_variance, harmonic_mean, wandering, widening
from grposcope.signs.outcome import Doubt, Fate, Outcome, direction
from grposcope.signs.present import DISJOINT, PARTS, SUDDEN, Present
from grposcope.signs.quantities import MetricSeries
from grposcope.signs.thresholds import (
    BEGIN,
    CERTAIN,
    FALLS,
    FEW,
    FEWEST,
    HALF,
    HALVES,
    LITTLE,
    LONG,
    LOST,
    MIDDLE,
    PLAIN,
    RISES,
    ROOM,
    SOLVED,
    SPREADS,
    STILL,
    UPPER,
    WHITE,
)

BEFORE = 5
"""Evaluations that a sudden fall is measured from."""

ALL_AT_ONCE = 0.6
"""Share of a sudden fall that is made from one evaluation to the next; a straight slide makes at most a third."""

Ends = tuple[float, float]
"""Least and largest value that a metric can have."""

Compare = Callable[[level.Span | None, level.Span, float], Contrast]
"""The test of the mean over the second span less that over the first (0 for None) less a constant."""


def of_reward(series: MetricSeries, ends: Ends | None, margin: float | None, least: float | None = None) -> Outcome:
    """Outcome by the training reward, from its mean curve and, where no bends are evident, its line.

    ends: least and largest reward there can be, None if unknown. margin: a change of the reward that is none, None if
    that is not known either. least: the same of a gain, for rows that are no average; None: the margin.
    """
    steps, values, seen, curve, line = series.steps, series.values, series.present, series.curve, series.line

    def compare(first: level.Span | None, last: level.Span, minus: float) -> Contrast:
        if first is None:
            return curve.level(last, minus)
        changed = curve.change(first, last, minus=minus)
        if seen.smoothed:
            return _of_averaged(changed, level.change(values, first, last, minus=minus, widen=widening(seen.smoothed)))
        if line is None or (first, last) != (EARLY, LATE):
            return changed
        straight = line.change(first, last, minus=minus)
        up, down = (harmonic_mean(pair) for pair in ([changed.p_up, straight.p_up], [changed.p_down, straight.p_down]))
        return Contrast(changed.value, changed.se, up, down)

    scale = _scale(values, seen, margin)
    least = margin if least is None or seen.smoothed else least
    outcome = _outcome(compare, steps, ends, margin, heldout=False, worth=STILL * scale, least=least)
    outcome = replace(outcome, name=series.name, plain=_is_plain(outcome, ends))
    before = (
        seen.first if outcome.before == outcome.start else seen.best
    )  # levels are those of rows, tests those of curves
    outcome = replace(outcome, start=seen.first, end=seen.last, best=seen.best, before=before)
    outcome = _by_eye(outcome, steps, values, seen, scale)
    if outcome.doubt != "chance":
        return outcome
    white = [fit.if_white.change(EARLY, LATE) for fit in (curve, line) if fit is not None]
    wanders = min(min(test.p_up, test.p_down) for test in white) < WHITE
    return replace(outcome, doubt="wandering") if wanders else outcome


def _of_averaged(curve: Contrast, rows: Contrast) -> Contrast:
    """The test of rows that are an exponential average: the less sure one of its curve's and of its widened levels'."""
    return Contrast(rows.value, max(curve.se, rows.se), max(curve.p_up, rows.p_up), max(curve.p_down, rows.p_down))


def of_few(series: MetricSeries, margin: float | None, missing: str) -> Outcome:
    """What can be said by the reward on rows that are too few to test for wandering: levels, and what is plain.

    margin: as in `of_reward`. missing: why nothing more can be told.
    """
    steps, values, seen, name = series.steps, series.values, series.present, series.name
    outcome = Outcome("cannot tell", name, start=seen.first, end=seen.last, best=seen.best, first=int(steps[0]),
                    last=int(steps[-1]), before=seen.first, change=_estimate(seen.rise, len(steps)))  # fmt: skip
    small = _is_small(seen.rise.value + UPPER * seen.rise.se, margin, None, seen.first.value)
    outcome = replace(outcome, best_step=_middle_step(steps, seen.best_part), no_gain=small)
    if len(steps) >= FEW:
        scale = _scale(values, seen, margin)
        outcome = _by_eye(outcome, steps, values, seen, scale)
        if outcome.fate == "cannot tell" and seen.rise.p_up < FALLS and seen.rise.value >= PLAIN * scale:
            outcome = replace(outcome, fate="learned", no_gain=False)
    return replace(outcome, missing=missing if outcome.fate == "cannot tell" else "")


def _scale(values: Array, seen: Present, margin: float | None) -> float:
    """What a change of the reward is measured by: its range where that is known, else the scatter of its rows."""
    return margin / STILL if margin is not None else SPREADS * _scale_of_rows(values, seen) / PLAIN


def _scale_of_rows(values: Array, present: Present) -> float:
    """The standard deviation of rows (n,) within the best and the last part, or of averaged rows about their mean.

    It is what a fall is measured by where nothing else is known.
    """
    if present.smoothed:
        return float(np.sqrt(difference_variance(values) / (1 - present.smoothed)))
    parts = [values[level.rows(len(values), span)] for span in (present.best_part, present.last_part)]
    return float(np.sqrt(np.mean([values_of_span.var() for values_of_span in parts])))


def _by_eye(outcome: Outcome, steps: Array, values: Array, seen: Present, scale: float) -> Outcome:
    """The outcome where the eye sees plainly that the reward fell, by PLAIN of its scale beyond the noise of rows.

    The noise is that of rows that go together with their neighbours as these (n,) do.
    """
    loss = -seen.loss.value
    widen = widening(max(seen.smoothed, wandering(values)))
    if (
        loss < PLAIN * scale
        or DISJOINT * level.change(values, seen.best_part, seen.last_part, widen=widen).p_down >= FALLS
    ):
        return outcome
    gain = seen.best.value - seen.first.value
    gained = gain > max(LITTLE * scale, UPPER * math.hypot(seen.best.se, seen.first.se))
    if gained and loss < LOST * gain:
        return outcome
    fate: Fate = "lost" if gained else "fell"
    above = gained and loss < HALF * gain and seen.rise.p_up < RISES
    return replace(
        outcome, fate=fate, doubt="", above=above, best_step=_middle_step(steps, seen.best_part),
        before=seen.best, plain=True, change=_estimate(seen.loss, len(steps)), no_gain=True,
        sudden=seen.fall is not None,
    )  # fmt: skip


def _estimate(test: Contrast, n: int) -> Estimate:
    return Estimate(test.value, test.se, n)


def _middle_step(steps: Array, span: level.Span) -> int:
    return int(steps[min(int(sum(span) / 2 * len(steps)), len(steps) - 1)])


def of_evaluations(
    steps: Array, values: Array, errors: Array, ends: Ends | None, margin: float | None, name: str
) -> Outcome:
    """Outcome by a held-out score, finite values (n,) at steps (n,) with standard errors (n,), NaN where unknown."""
    n, exact = len(values), bool(np.isfinite(errors).all() and (errors > 0).any())
    if n < (2 if exact else FEWEST):
        missing = f"only {n} evaluation{'s' * (n != 1)} and no standard errors; at least {FEWEST} are needed"
        return _of_hardly_any(steps, values, errors, name, missing)
    variances = np.square(errors) if exact else np.full(n, second_difference_variance(values))
    df = math.inf if exact else max(0.51 * (n - 2), 1.0)

    def compare(first: level.Span | None, last: level.Span, minus: float) -> Contrast:
        parts = [level.rows(n, span, least=1) for span in (first, last) if span is not None]
        means = [float(values[rows].mean()) for rows in parts]
        error = math.sqrt(sum(float(variances[rows].sum()) / (rows.stop - rows.start) ** 2 for rows in parts))
        value = means[-1] - (means[0] if first is not None else 0.0) - minus
        return _contrast(value, error, df)

    fallen, p = _late_fall(values, np.square(errors) if exact else None)
    late = LATE if fallen is None else (fallen / n, 1.0)
    worth = (margin or 0.0) / 2
    outcome = _outcome(compare, steps, ends, margin, heldout=True, worth=worth, late=late, least=margin)
    return replace(outcome, name=name, plain=_is_plain(outcome, ends), sudden=fallen is not None, p_sudden=p)


def _late_fall(values: Array, variances: Array | None) -> tuple[int | None, float]:
    """The first of the last evaluations, two or more, that lie behind a sudden fall within the last part of a run, and
    its p-value.

    values (n,), variances (n,) of them, None where they are not known: then those before the fall show them. A fall is
    sudden below SUDDEN, times the number of evaluations at which it may begin; None where there is none.
    """
    n = len(values)
    begins = range(level.rows(n, LATE, least=1).start + 1, n - 1)
    falls = {begin: _fall_at(values, variances, begin) for begin in begins}
    begin = min(falls, key=falls.__getitem__, default=0)
    p = min(len(falls) * falls[begin], 1.0) if falls else 1.0
    return (begin, p) if p < SUDDEN else (None, p)


def _fall_at(values: Array, variances: Array | None, begin: int) -> float:
    """p-value of a fall of the mean of the values from `begin` on below where the BEFORE values were heading down to.

    1 where it is not made at once, ALL_AT_ONCE of it from one value to the next, or one of the last is above half of
    the way.
    """
    rows = np.arange(max(begin - BEFORE, 0), begin)
    before, after = values[rows], values[begin:]
    fall = before.mean() - after.mean()
    if values[begin - 1] - values[begin] < ALL_AT_ONCE * fall or 2 * after.max() > before.mean() + after.mean():
        return 1.0
    if variances is None:
        if begin < FEWEST:
            return 1.0
        variances, df = np.full(len(values), second_difference_variance(values[:begin])), max(0.51 * (begin - 2), 1.0)
    else:
        df = math.inf
    away = (begin + len(values) - 1) / 2 - rows.mean()
    heading = 1 / len(rows) + away * (rows - rows.mean()) / np.square(rows - rows.mean()).sum()  # weights of a line
    weights = heading if (heading - 1 / len(rows)) @ before < 0 else np.full(len(rows), 1 / len(rows))
    square = np.square(weights) @ variances[rows] + variances[begin:].sum() / len(after) ** 2
    return _contrast(float(after.mean() - weights @ before), math.sqrt(float(square)), df).p_down


def _of_hardly_any(steps: Array, values: Array, errors: Array, name: str, missing: str) -> Outcome:
    """The levels of evaluations that are too few to be compared; missing: why, as a clause."""
    top, n = int(np.argmax(values)), len(values)
    start, best, end = (Estimate(float(values[i]), float(errors[i]), n) for i in (0, top, -1))
    return Outcome(
        "cannot tell", name, heldout=True, start=start, end=end, best=best, best_step=int(steps[top]),
        first=int(steps[0]), last=int(steps[-1]), before=start, missing=missing,
    )  # fmt: skip


def _is_plain(outcome: Outcome, ends: Ends | None) -> bool:
    """Whether a fall that is shown is plain to see: PLAIN of the range, or LOST of a level that is above 0."""
    if outcome.direction != "down" or ends is None:
        return False
    loss = -outcome.change.value
    return loss >= PLAIN * (ends[1] - ends[0]) or (ends[0] == 0 and loss >= LOST * outcome.before.value)


def _outcome(
    compare: Compare, steps: Array, ends: Ends | None, margin: float | None, heldout: bool, worth: float,
    late: level.Span = LATE, least: float | None = None,
) -> Outcome:  # fmt: skip
    """The outcome by any way to compare parts of a run, of a metric without a name.

    worth: a fall that counts where it is not CERTAIN. late: its last part, which begins behind a sudden fall where
    there is one. least: as in `of_reward`.
    """
    first = BEGIN if heldout else EARLY
    parts = PARTS if late == LATE else (*PARTS, (LATE[0], late[0]))
    part = max(parts, key=lambda span: compare(None, span, 0.0).value)
    start, best, end = (compare(None, span, 0.0) for span in (first, part, late))
    best_step = _middle_step(steps, part)
    if not best.value > end.value:
        best, best_step = end, int(steps[-1])
    rise, gain, loss = compare(first, late, 0.0), compare(first, part, 0.0), compare(part, late, 0.0)
    rose = rise.p_up < RISES
    still = len(steps) >= HALVES and _still(compare, ends, end.value)
    none = rise.p_up >= CERTAIN and _no_gain(rise, steps, least, ends, start.value)
    small = not heldout and (none or _is_small(rise.value, least, ends, start.value))
    fate: Fate = (
        _fate_of_a_fall(rise, gain, loss, worth, heldout)
        or _fate_of_a_rise(rise, gain, loss, small, still and _is_half(end.value, ends, start.value))
        or _fate_of_a_level(compare, first, end.value, ends, margin)
        or "cannot tell"
    )
    n = len(steps)
    of_start, of_best, of_end = (_estimate(test, n) for test in (start, best, end))
    from_best = direction(fate) == "down" and not (heldout and start.value >= best.value)
    return Outcome(
        fate,
        "",
        heldout,
        of_start,
        of_end,
        of_best,
        best_step,
        still,
        int(steps[0]),
        int(steps[-1]),
        of_best if from_best else of_start,
        _estimate(loss if from_best else rise, n),
        _doubt(rise, gain, loss, best, end) if fate == "cannot tell" else "",
        rose=rose,
        no_gain=none,
        small=small and fate in ("learned", "stalled"),
        above=not heldout and fate == "lost" and rose and -loss.value < HALF * gain.value,
    )


def _fate_of_a_fall(rise: Contrast, gain: Contrast, loss: Contrast, worth: float, heldout: bool) -> Fate | None:
    """What a run is whose end is below its best part (`loss`) or its start (`rise`) beyond chance; None where neither
    is. gain: the best part less the start. A fall below `worth` counts from half of that on, where it is CERTAIN and
    no evaluation."""

    def fell(fall: Contrast, tried: int) -> bool:
        p = tried * fall.p_down
        return p < FALLS and -fall.value > (worth / 2 if p < CERTAIN and not heldout else worth)

    falling = fell(loss, DISJOINT)
    if falling and gain.p_up < RISES and -loss.value >= LOST * gain.value:
        return "lost"
    return "fell" if fell(rise, 1) or (falling and gain.p_up >= RISES) else None


def _fate_of_a_rise(rise: Contrast, gain: Contrast, loss: Contrast, small: bool, stalled: bool) -> Fate | None:
    """What a run is whose end is above its start beyond chance, None where it is not; it cannot be told where it may
    have lost what it had gained."""
    if not rise.p_up < RISES:
        return None
    if -loss.value >= LOST * gain.value:
        return "cannot tell"
    if small and rise.p_up >= CERTAIN:
        return "flat"
    return "stalled" if stalled else "learned"


def _fate_of_a_level(
    compare: Compare, first: level.Span, end: float, ends: Ends | None, margin: float | None
) -> Fate | None:
    """What a run is that neither rose nor fell: at the top of its range, or changed by less than `margin` either way;
    None where neither is shown."""
    if ends is not None and end > ends[0] + SOLVED * (ends[1] - ends[0]):
        return "solved"
    if margin is None:
        return None
    return "flat" if max(compare(first, LATE, margin).p_down, compare(first, LATE, -margin).p_up) < RISES else None


def _doubt(rise: Contrast, gain: Contrast, loss: Contrast, best: Contrast, end: Contrast) -> Doubt:
    """Why a fate cannot be told: it may have lost what it gained, or chance explains what is seen."""
    lost = -loss.value > max(LOST * gain.value, end.se) and gain.value > best.se
    return "lost" if rise.p_up < RISES or lost else "chance"


def _is_half(end: float, ends: Ends | None, start: float) -> bool:
    """Whether at most HALF of what there was to gain was gained; False where that is not known."""
    return ends is not None and ends[1] > start and (end - start) / (ends[1] - start) <= HALF


def _is_small(gain: float, margin: float | None, ends: Ends | None, start: float) -> bool:
    """Whether a gain is below LITTLE of the range, and below ROOM of what was left to gain."""
    room = ends[1] - start if ends is not None else math.inf
    return margin is not None and gain < min(LITTLE / STILL * margin, ROOM * room)


def _no_gain(rise: Contrast, steps: Array, margin: float | None, ends: Ends | None, start: float) -> bool:
    """Whether no gain was shown: its 95 % upper bound is LITTLE of the range or ROOM of what is left to gain, or after
    LONG steps its lower bound is not above 0."""
    small = _is_small(rise.value + UPPER * rise.se, margin, ends, start)
    return small or (rise.p_up >= RISES and steps[-1] - steps[0] + 1 >= LONG)


def second_difference_variance(y: Array) -> float:
    """Variance of white noise from second differences of y (n,), n of 3 or more; straight lines do not move it.

    E(y₋ − 2 y₀ + y₊)² = 6 σ²; it has about 0.51 n degrees of freedom (Gasser, Sroka & Jennen-Steinmetz 1986).
    """
    return float(np.square(np.diff(y, 2)).mean()) / 6


def _contrast(value: float, error: float, df: float) -> Contrast:
    """The test of a value with this standard error, under Student's t; exact values are decided by the sign."""
    if error <= 1e-12 * max(abs(value), 1e-300):
        return Contrast(value, 0.0, 0.0 if value > 0 else 1.0, 0.0 if value < 0 else 1.0)
    up, down = (float(ndtr(z) if math.isinf(df) else stdtr(df, z)) for z in (-value / error, value / error))
    return Contrast(value, error, up, down)


def _still(compare: Compare, ends: Ends | None, end: float) -> bool:
    """Whether the end is above the middle by less than a fifth of what is left to gain, with 95 % confidence."""
    if ends is None or end >= ends[1]:
        return False
    return compare(MIDDLE, LATE, 2 * STILL * (ends[1] - end)).p_down < RISES and compare(MIDDLE, LATE, 0.0).p_up >= 0.01
