"""Monitors: silent where nothing fell, at most as often wrong as they say, and quick where something did."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from grposcope.core.estimate import Estimate
from grposcope.core.files import dumps
from grposcope.faults import catalogue
from grposcope.faults.length import length
from grposcope.faults.record import non_finite
from grposcope.instruments.autopilot import alarm, monitors
from grposcope.instruments.autopilot.answer import ALSO
from grposcope.instruments.autopilot.monitors import Fall, HeldoutFall, Share
from grposcope.instruments.autopilot.policy import MONITORS
from grposcope.signs import dead_groups


def course(levels: np.ndarray, seed: int, prompts: int = 16) -> Fall:
    draw, found = np.random.default_rng(seed), Fall(0.1)
    for step, level in enumerate(levels, 1):
        found.take(step, draw.binomial(4, level, prompts) / 4)
    return found


def loudest(levels: np.ndarray, seed: int) -> float:
    draw, found, most = np.random.default_rng(seed), Fall(0.1), -math.inf
    for step, level in enumerate(levels, 1):
        most = max(most, found.take(step, draw.binomial(4, level, 16) / 4))
    return most


@pytest.mark.slow
def test_a_level_at_the_very_limit_alarms_no_more_often_than_allowed() -> None:
    """The hardest case of the null: after a level was shown, the mean lies just at the limit that follows from it."""
    alarms = 0
    for seed in range(200):
        draw, found = np.random.default_rng(seed), Fall(0.1)
        for step in range(1, 30):
            found.take(step, draw.binomial(4, 0.7, 16) / 4)
        limit = found.hypotheses[-1].limit
        most = max(found.take(step, draw.binomial(4, limit, 16) / 4) for step in range(30, 130))
        alarms += most >= math.log(1 / 0.1)
    assert alarms <= 30  # 10 % of 200 and three standard deviations


def test_a_fall_is_found_soon_and_its_beginning_named() -> None:
    found = course(np.r_[np.full(40, 0.7), np.full(12, 0.3)], 1)
    assert found.log_e > math.log(1e4)
    assert abs(found.onset() - 41) <= 1
    worst = found.worst
    assert worst is not None
    assert 0.5 < worst.limit < worst.level - 0.09 < 0.65


@pytest.mark.slow
def test_a_rising_level_raises_the_limit_and_no_alarm() -> None:
    assert max(loudest(np.linspace(0.2, 0.9, 150), seed) for seed in range(20)) < math.log(100)
    limits = [one.limit for one in course(np.linspace(0.2, 0.9, 150), 0).hypotheses]
    assert limits == sorted(limits)
    assert limits[-1] > 0.6


def test_a_low_level_that_vanishes_is_a_fall_too() -> None:
    """A tenth of the range would let a success rate of 8 % go to 0."""
    assert course(np.r_[np.full(60, 0.08), np.full(60, 0.0)], 3).log_e > math.log(100)


def test_values_beyond_the_range_seen_are_clipped() -> None:
    found = course(np.full(30, 0.6), 4)
    before = found.log_e
    found.take(31, np.array([-1e9, *[0.6] * 15]))
    assert found.log_e < before + 3


def test_values_that_are_not_finite_say_nothing() -> None:
    found = course(np.full(30, 0.6), 5)
    before = monitors.state(found)
    found.take(31, np.array([math.nan, math.inf]))
    assert monitors.state(found) == before


def test_a_monitor_survives_json() -> None:
    levels = np.r_[np.full(40, 0.7), np.full(6, 0.4)]
    found = course(levels, 7)
    again = monitors.fall_of(json.loads(dumps(monitors.state(found))))
    assert monitors.state(again) == monitors.state(found)
    assert again.take(50, np.full(16, 0.2)) == found.take(50, np.full(16, 0.2))
    heldout = HeldoutFall(0.1)
    assert monitors.heldout_of(json.loads(dumps(monitors.state(heldout)))) == heldout


def test_held_out_accuracy_that_falls_and_one_that_does_not() -> None:
    draw = np.random.default_rng(0)

    def evaluated(*levels: float) -> HeldoutFall:
        found = HeldoutFall(0.1)
        for step, level in enumerate(levels):
            found.take(10 * step, Estimate.mean((draw.random(200) < level).astype(float).tolist()))
        return found

    assert evaluated(0.3, 0.5, 0.7, 0.3).log_e > math.log(100)
    assert evaluated(0.3, 0.5, 0.6, 0.3).verdict() == "fell"
    assert max(evaluated(0.3, 0.5, *[0.6] * 20).log_e for _ in range(20)) < math.log(100)
    assert evaluated(0.3, 0.5, 0.6, 0.62).verdict() == "held"
    assert evaluated(0.3).verdict() == "unknown"


@pytest.mark.parametrize(("level", "loud"), [(0.45, False), (0.6, True), (1.0, True)])
def test_a_share_above_its_limit(level: float, loud: bool) -> None:
    draw, found = np.random.default_rng(2), Share(0.5)
    most = max(found.take((draw.random(32) < level).astype(float)) for _ in range(60))
    assert (most > math.log(200)) == loud


def test_limits_are_those_of_the_faults_at_three_times_the_odds() -> None:
    def odds(share: float) -> float:
        return share / (1 - share)

    for limit, at_the_end in ((monitors.CUT, length.CUT), (monitors.DEAD, dead_groups.DEAD)):
        assert odds(limit) == pytest.approx(3 * odds(at_the_end))
    assert pytest.approx(0.5) == monitors.CUT
    assert monitors.NOT_FINITE == non_finite.LASTING


def test_every_monitor_watches_for_a_fault_of_the_catalogue() -> None:
    assert set(alarm.FAULTS) == set(MONITORS)
    assert set(alarm.FAULTS.values()) <= catalogue.faults().keys()
    assert len(set(alarm.FAULTS.values())) == len(MONITORS)
    assert ALSO.keys() <= catalogue.faults().keys()


def test_p_of_an_alarm_allows_for_the_share_of_its_monitor() -> None:
    """Adjusted, it is below alpha exactly where the e-value is above the monitor's limit."""
    share = 0.2
    limit = math.log(1 / (0.05 * share))
    below, above = (alarm.too_many("cut", 9, limit + by, share) for by in (-0.01, 0.01))
    assert below.adjusted > 0.05 > above.adjusted
    assert (above.status, above.seen, above.fault) == ("present", 9, "length")
    assert "more than 50% of the completions are cut" in above.because
    assert alarm.too_many("cut", 9, 5000.0).p > 0


def test_weights_that_were_put_back_have_to_be_as_good_as_before() -> None:
    """A monitor that begins anew keeps the best evaluation, so that 0 after 0 is no level that holds."""
    seen = HeldoutFall(0.1)
    seen.take(10, Estimate(0.46, 0.04, 128))
    seen.take(20, Estimate(0.02, 0.01, 128))
    again = seen.anew()
    assert again.verdict() == "unknown"
    assert again.log_e == -math.inf
    assert again.limit == seen.limit
    for step in (30, 40):
        again.take(step, Estimate(0.01, 0.01, 128))
        assert again.verdict() == "fell"
    assert again.anew().verdict() == "unknown"
    again.take(50, Estimate(0.45, 0.04, 128))
    assert again.verdict() == "held"
    restored = monitors.heldout_of(json.loads(dumps(monitors.state(again))))
    assert (restored.reference, restored.verdict()) == (again.reference, "held")


def test_wandering_is_what_the_prompts_of_a_batch_do_not_make() -> None:
    draw = np.random.default_rng(4)

    def batches(levels: np.ndarray, prompts: int = 64) -> list[tuple[int, int, float, float]]:
        drawn = [draw.normal(level, 0.3, prompts) for level in levels]
        return [(step, prompts, float(own.mean()), float(own.var())) for step, own in enumerate(drawn)]

    steady = [monitors._wandering(batches(np.full(48, 0.5))) for _ in range(20)]
    rising = [monitors._wandering(batches(np.linspace(0.2, 0.8, 48))) for _ in range(20)]
    wild = [monitors._wandering(batches(0.5 + 0.1 * draw.normal(size=48))) for _ in range(20)]
    assert max(np.mean(steady), np.mean(rising)) < 0.01
    assert np.mean(wild) == pytest.approx(0.1, rel=0.1)
    assert monitors._wandering(batches(np.full(2 * monitors.WINDOW - 1, 0.5))) == 0


def test_the_limit_of_a_fall_allows_for_wandering(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(spread: float, factor: float) -> float:
        monkeypatch.setattr(monitors, "WANDERS", factor)
        draw, fall = np.random.default_rng(5), monitors.Fall(0.1)
        for step in range(60):
            level = 0.2 + 0.5 * step / 60 + spread * draw.normal()
            fall.take(step, np.clip(draw.normal(level, 0.1, 64), 0, 1))
        last = fall.hypotheses[-1]
        assert last.step > 40
        return last.level - last.limit

    assert drop(0.0, 2.0) == pytest.approx(drop(0.0, 0.0), abs=0.03)
    assert 0.08 < drop(0.06, 2.0) - drop(0.06, 0.0) < 0.16
