"""Onsets of curves that know theirs; benchmarks/onset.py has the table."""

from __future__ import annotations

import numpy as np
import onset_curves
import pytest

from grposcope.maths.timeseries.onset import Onset, _dated, at_once, onset

LATE = np.random.default_rng(0).normal(size=(20, 120))


def dated(kind: str, seeds: range) -> list[tuple[onset_curves.Dated, Onset | None]]:
    curves = [onset_curves.made(kind, seed) for seed in seeds]
    return [(curve, onset(curve.values, curve.direction, curve.course)) for curve in curves]


def held(kind: str, seeds: range) -> tuple[float, float]:
    """Share of the intervals that hold the true row, and the median error of the points."""
    rows = [(at, curve.row) for curve, at in dated(kind, seeds) if at is not None and curve.row is not None]
    assert len(rows) >= 0.5 * len(seeds)
    return (
        float(np.mean([at.low <= row <= at.high for at, row in rows])),
        float(np.median([abs(at.row - row) for at, row in rows])),
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", onset_curves.CHANGES)
def test_intervals_hold_the_true_row(kind: str) -> None:
    covered, error = held(kind, range(12))
    assert covered >= 0.75
    assert error <= (3 if kind.endswith("step") else 8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", onset_curves.CHANGES)
def test_nine_in_ten_intervals_hold_the_true_row(kind: str) -> None:
    covered, error = held(kind, range(1000, 1150))
    assert covered >= 0.9
    assert error <= (3 if kind.endswith("step") else 8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", onset_curves.UNCHANGED)
def test_hardly_any_curve_without_the_change_is_dated(kind: str) -> None:
    assert sum(at is not None for _, at in dated(kind, range(1000, 1150))) <= 0.07 * 150  # 5 % and chance


def test_noise_is_not_dated() -> None:
    assert sum(onset(noise) is not None for noise in LATE) <= 1


def test_an_onset_is_a_tenth_of_the_way_and_no_limit() -> None:
    way = onset_curves.ramp(120, 40, 50)
    for scale, level in ((1.0, 0.0), (1e4, 5e5), (-3.0, 1.0)):
        seen = onset(level + scale * (way + 0.01 * LATE[0]))
        assert seen is not None
        assert abs(seen.row - 44) <= 2
        assert seen.low <= 44 <= seen.high


def test_a_fall_after_a_rise_is_at_the_fall() -> None:
    rows = np.arange(120)
    for top in (50, 70, 100):
        curve = np.where(rows < top, rows / top, 1 - (rows - top) / (120 - top))
        seen = onset(8 * curve + LATE[1], -1)
        assert seen is not None
        assert abs(seen.row - (top + 0.1 * (120 - top))) <= 6


def test_a_jump_in_the_last_rows_is_dated_and_a_single_row_is_not() -> None:
    for noise in LATE[:8]:
        jumped = noise + 10 * (np.arange(120) >= 116)
        seen = onset(jumped, 1)
        assert seen is not None
        assert abs(seen.row - 116) <= 1
        spiked = noise + 100 * (np.arange(120) == 60)
        assert onset(spiked) is None


def test_a_level_that_is_lost_for_good_is_dated_to_the_row() -> None:
    """Rows before it may dip by chance, and those after it have another noise or none: all are dated right."""
    lost = np.arange(120) < 60
    for noise in LATE:
        seen = onset(np.where(lost, 0.5 + 0.04 * noise, 0.0), -1, shown=True)
        assert seen is not None
        assert seen.low <= seen.row == 60
        assert at_once(np.where(lost, 0.5 + 0.04 * noise, 2.8 + 0.005 * noise)) == 60
    long = np.where(np.arange(500) < 201, 0.5, 0.0) + 0.03 * np.random.default_rng(0).normal(size=500)
    assert at_once(long, -1) == 201, "also of more rows than are averaged in blocks"
    assert at_once(long, 1) is None


def test_a_change_that_takes_several_rows_is_not_at_once() -> None:
    for noise in LATE:
        for width in (3, 6, 20):
            assert at_once(10 * onset_curves.ramp(120, 60, width) + 0.1 * noise) is None
        spiked = np.where(np.arange(120) < 60, 10.0, 0.0) + 0.1 * noise
        spiked[30] = 0
        assert at_once(spiked) is None
        assert at_once(noise) is None


def test_a_growing_course_is_no_onset_and_leaving_it_is() -> None:
    u = (np.arange(120) + 1) / 120
    for noise in LATE:
        course = np.log(0.01 + 0.1 * u) + 0.15 * noise
        assert onset(course, 1, course=True) is None
        blown = onset(course + 4 * onset_curves.ramp(120, 75, 45), 1, course=True)
        assert blown is not None
        assert abs(blown.row - 79) <= 4


def test_what_is_too_short_or_constant_is_not_dated() -> None:
    assert onset(np.array([1.0, 2.0, 3.0])) is None
    assert onset(np.full(60, 0.4)) is None


def test_one_series_that_is_asked_again_is_not_dated_anew() -> None:
    rises = 8 * onset_curves.ramp(120, 40, 1) + LATE[0]
    before = _dated.cache_info()
    answers = {str(onset(2 * rises + 3, 1)) for _ in range(3)} | {str(onset(rises, 1))}
    after = _dated.cache_info()
    assert len(answers) == 1
    assert after.hits - before.hits >= 2
    assert onset(rises, -1) != onset(rises, 1)
