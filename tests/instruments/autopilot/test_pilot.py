"""Decisions: what follows from which alarm, with which checkpoint and which setting, and whether it came true."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from grposcope.core.estimate import Estimate
from grposcope.core.files import dumps
from grposcope.instruments.autopilot.pilot import Decision, Pilot, PilotAlarm, Situation
from grposcope.instruments.autopilot.policy import AutopilotPolicy

CHECKPOINTS = (0, 10, 20, 30, 40)


def accuracy(value: float, n: int = 400) -> Estimate:
    return Estimate(value, math.sqrt(value * (1 - value) / n), n)


def flown(
    levels: np.ndarray, heldout: dict[int, float] | None = None, seed: int = 0, interval: int = 1
) -> tuple[Pilot, list[Decision]]:
    """A pilot that saw batches of these levels, and its decisions. heldout: accuracy by step."""
    draw, pilot, decisions = np.random.default_rng(seed), Pilot(AutopilotPolicy()), []
    factor = 1.0
    for step, level in enumerate(levels, 1):
        pilot.batch(step, (draw.random((16, 4)) < level).astype(float), np.zeros((16, 4)))
        pilot.update(1.0)
        if heldout and step in heldout:
            pilot.evaluation(step, accuracy(heldout[step]))
        if (alarm := pilot.alarm(step)) is not None:
            steps = [one for one in CHECKPOINTS if one < step]
            decisions.append(pilot.decide(alarm, Situation(step, interval, 1, factor, steps)))
            interval, factor = decisions[-1].interval, decisions[-1].factor
    return pilot, decisions


FALL = np.r_[np.full(35, 0.7), np.full(15, 0.2)]


def test_back_to_the_newest_checkpoint_before_the_fall() -> None:
    _, (first, *_) = flown(FALL)
    assert (first.action, first.to, first.monitor) == ("rollback", 30, "reward")
    assert first.factor == 0.25
    assert first.interval == 1
    assert abs(first.since - 36) <= 1


def test_the_refresh_interval_is_cut_first() -> None:
    _, (first, *_) = flown(FALL, interval=16)
    assert (first.interval, first.factor) == (4, 1.0)


def test_further_cuts_are_larger_and_then_the_run_ends() -> None:
    """Nothing helps: the level stays low whatever is done."""
    _, decisions = flown(np.r_[np.full(35, 0.7), np.full(150, 0.1)])
    assert [one.action for one in decisions] == ["rollback", "rollback", "rollback", "stop"]
    assert [one.factor for one in decisions[:3]] == [0.25, 0.25**3, 0.01]
    assert all(one.to == 30 for one in decisions)


def test_without_a_sound_checkpoint_a_setting_is_changed() -> None:
    draw, pilot = np.random.default_rng(0), Pilot(AutopilotPolicy())
    for step, level in enumerate(FALL, 1):
        pilot.batch(step, (draw.random((16, 4)) < level).astype(float))
        if (alarm := pilot.alarm(step)) is not None:
            decision = pilot.decide(alarm, Situation(step, checkpoints=(40,)))  # taken after the fall began
            assert (decision.action, decision.to, decision.factor) == ("change", -1, 0.25)
            return
    pytest.fail("no alarm")


def test_where_held_out_accuracy_held_nothing_is_changed() -> None:
    heldout = {10: 0.6, 20: 0.61, 30: 0.62, **dict.fromkeys(range(36, 60), 0.62)}
    pilot, (first, *_) = flown(FALL, heldout=heldout)
    assert first.action == "tell"
    assert "reward or the data changed" in first.cause
    assert pilot.counts.rollbacks == 0


def test_held_out_falls_while_the_reward_rises() -> None:
    heldout = {10: 0.6, 20: 0.61, 30: 0.62, 40: 0.3}
    _, (first, *_) = flown(np.full(50, 0.8), heldout=heldout)
    assert (first.action, first.to, first.monitor) == ("stop", 30, "heldout")


def test_checkpoints_given_up_are_not_gone_back_to() -> None:
    pilot, (first, *_) = flown(FALL)
    assert pilot.dropped[0] == (30, first.step - 1)
    assert first.step > 36
    for step in range(50, 60):
        pilot.batch(step, np.ones((16, 4)))
    assert pilot.sound(PilotAlarm("reward", 60, 1.0, 60, 0.7, 0.1), [20, 30, 36]) == 30


def test_a_gradient_that_is_not_finite_is_seen_at_once() -> None:
    pilot = Pilot(AutopilotPolicy())
    for step in (1, 2, 3):
        pilot.batch(step, np.full((4, 4), 0.5))
        pilot.update(math.nan)
        assert (pilot.alarm(step) is not None) == (step == 3)


def test_cut_completions_and_dead_groups_are_told_once() -> None:
    pilot, told = Pilot(AutopilotPolicy()), []
    for step in range(1, 60):
        pilot.batch(step, np.zeros((8, 4)) if step > 1 else np.eye(8, 4), np.ones((8, 4)))
        if (alarm := pilot.alarm(step)) is not None:
            told.append(pilot.decide(alarm, Situation(step)))
    assert {one.monitor: one.action for one in told} == {"cut": "tell", "dead": "tell"}
    assert len(told) == 2


def test_groups_that_are_all_right_are_not_dead() -> None:
    pilot = Pilot(AutopilotPolicy())
    for step in range(1, 60):
        pilot.batch(step, np.ones((8, 4)))
        assert pilot.alarm(step) is None


def test_what_was_expected_is_followed_up() -> None:
    _, (first, *_) = flown(FALL)
    pilot, decisions = flown(FALL[: first.step])
    assert len(decisions) == 1
    seen = []
    for step in range(first.step + 1, first.step + 12):
        pilot.batch(step, (np.random.default_rng(step).random((16, 4)) < 0.7).astype(float))
        seen.append(pilot.followed(step))
    (outcome,) = [one for one in seen if one is not None]
    assert outcome.came_true
    assert outcome.of == first.step


def test_a_pilot_survives_json_at_any_step() -> None:
    draw = np.random.default_rng(3)
    batches = [(draw.random((16, 4)) < level).astype(float) for level in FALL]

    def fly(cut: int) -> list[Decision]:
        pilot, decisions = Pilot(AutopilotPolicy()), []
        for step, batch in enumerate(batches, 1):
            if step == cut:
                pilot = Pilot(AutopilotPolicy(), json.loads(dumps(pilot.state())))
            pilot.batch(step, batch)
            pilot.update(1.0)
            if step % 10 == 0:
                pilot.evaluation(step, accuracy(0.6 if step < 40 else 0.2))
            if (alarm := pilot.alarm(step)) is not None:
                decisions.append(pilot.decide(alarm, Situation(step, checkpoints=[c for c in CHECKPOINTS if c < step])))
        return decisions

    whole = fly(-1)
    assert whole
    for cut in (1, 2, 20, 36, 37, 38, 39, 40, 41, 45, 50):
        assert fly(cut) == whole


@pytest.mark.slow
def test_over_a_whole_run_alarms_are_no_more_frequent_than_alpha() -> None:
    """Sound runs of 150 batches: constant levels and rising ones."""
    spoke = 0
    for seed in range(60):
        level = 0.1 + 0.8 * (seed % 6) / 6
        levels = np.full(150, level) if seed % 2 else level + (0.95 - level) * np.linspace(0, 1, 150)
        _, decisions = flown(levels, heldout={s: float(levels[s - 1]) for s in range(20, 150, 20)}, seed=seed)
        spoke += bool(decisions)
    assert spoke <= 3
