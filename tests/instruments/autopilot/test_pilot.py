"""Decisions: what follows from which alarm, with which checkpoint and which setting, and whether it came true."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from alike import alike

from grposcope.core.estimate import Estimate
from grposcope.core.files import dumps
from grposcope.core.finding import Finding
from grposcope.instruments.autopilot import alarm as alarms
from grposcope.instruments.autopilot import wording
from grposcope.instruments.autopilot.pilot import CHANGED, WORSE, Decision, Pilot, Situation, _Calm
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


def finding(decision: Decision) -> Finding:
    assert isinstance(decision.why, Finding)
    return decision.why


FALL = np.r_[np.full(35, 0.7), np.full(15, 0.2)]


def test_back_to_the_newest_checkpoint_before_the_fall() -> None:
    _, (first, *_) = flown(FALL)
    assert (first.action, first.to, first.fault) == ("rollback", 30, "reward decline")
    assert first.factor == 0.25
    assert first.interval == 1
    assert abs((finding(first).onset or 0) - 36) <= 1


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


@pytest.mark.parametrize(
    ("evaluated", "checkpoints", "to", "factor", "interval"),
    [
        ((0, 10), (0, 10), 0, 1 / 16, 1),
        ((0, 10), (0,), 0, 1 / 16, 1),
        ((0,), (0,), 0, 1 / 4, 4),
        ((0, 5, 10), (0, 5, 10), 5, 1 / 4, 4),
    ],
    ids=["no later one is sound", "a later evaluation", "there is no later one", "a later one is sound"],
)
def test_back_to_the_first_weights_past_later_ones_is_a_change_of_two(
    evaluated: tuple[int, ...], checkpoints: tuple[int, ...], to: int, factor: float, interval: int
) -> None:
    for parts, changes in ((1, ("rate", factor)), (16, ("interval", interval))):
        pilot = Pilot(AutopilotPolicy())
        for step, right in ((0, 0.6), (5, 0.62), (10, 0.05)):
            if step in evaluated:
                pilot.evaluation(step, Estimate(right, 0.02, 600))
        decision = pilot.decide(alarms.not_finite(12, 8), Situation(12, parts, checkpoints=checkpoints))
        assert (decision.action, decision.to) == ("rollback", to)
        assert (decision.setting, decision.factor if parts == 1 else decision.interval) == changes


def test_what_was_gained_before_the_fall_is_no_change_of_two() -> None:
    """No checkpoint but the first, and evaluations that rose before the weights were lost."""
    pilot = Pilot(AutopilotPolicy())
    for step, right in ((0, 0.3), (10, 0.5), (20, 0.6), (30, 0.05)):
        pilot.evaluation(step, Estimate(right, 0.02, 600))
    pilot.accuracies[0] = 0.55  # the first are sound enough to go back to
    assert pilot._gained_nothing((0,)) is True
    pilot.accuracies[0] = 0.3
    assert pilot._gained_nothing((0,)) is False
    assert pilot._gained_nothing((0, 25)) is False


def test_where_held_out_accuracy_held_nothing_is_changed() -> None:
    heldout = {10: 0.6, 20: 0.61, 30: 0.62, **dict.fromkeys(range(36, 60), 0.62)}
    pilot, (first, *_) = flown(FALL, heldout=heldout)
    assert first.action == "tell"
    assert finding(first).brief == CHANGED
    assert finding(first).remedy.startswith("compare the reward function")
    assert pilot.counts.rollbacks == 0


def test_an_evaluation_before_the_fall_says_nothing_of_it() -> None:
    _, (first, *_) = flown(FALL, heldout={10: 0.6, 20: 0.61, 30: 0.62, 35: 0.62})
    assert (first.action, finding(first).brief) == ("rollback", WORSE)


def test_held_out_falls_while_the_reward_rises() -> None:
    heldout = {10: 0.6, 20: 0.61, 30: 0.62, 40: 0.3}
    _, (first, *_) = flown(np.full(50, 0.8), heldout=heldout)
    assert (first.action, first.to, first.fault) == ("stop", 30, "held-out decline")


def test_checkpoints_given_up_are_not_gone_back_to() -> None:
    pilot, (first, *_) = flown(FALL)
    assert pilot.dropped[0] == (30, first.step - 1)
    assert first.step > 36
    for step in range(50, 60):
        pilot.batch(step, np.ones((16, 4)))
    assert pilot.newest_sound([20, 30, 36], onset=60, limit=0.1) == 30


def test_a_gradient_that_is_not_finite_is_seen_at_once() -> None:
    pilot = Pilot(AutopilotPolicy())
    for step in (1, 2, 3):
        pilot.batch(step, np.full((4, 4), 0.5))
        pilot.update(math.nan)
        assert (pilot.alarm(step) is not None) == (step == 3)


def limits(allowed: float, most: int) -> list[Decision]:
    """Decisions of a pilot whose completions are cut until the limit is 40 tokens."""
    pilot, found, tokens = Pilot(AutopilotPolicy(tokens=allowed)), [], 10
    for step in range(1, 120):
        pilot.batch(step, np.eye(8, 4), np.full((8, 4), float(tokens < 40)))
        if (alarm := pilot.alarm(step)) is not None:
            found.append(pilot.decide(alarm, Situation(step, tokens=tokens, tokens_most=most)))
            tokens = found[-1].tokens or tokens
    return found


def test_the_token_limit_is_raised_until_completions_end() -> None:
    assert [(one.action, one.setting, one.tokens) for one in limits(4, 40)] == [
        ("change", "tokens", 20), ("change", "tokens", 40),
    ]  # fmt: skip


def test_the_token_limit_is_raised_as_far_as_is_allowed() -> None:
    """A context of 15 tokens: one raise, and then a person is told."""
    assert [(one.action, one.tokens) for one in limits(4, 15)] == [("change", 15), ("tell", 0)]


def test_rollouts_of_earlier_weights_get_a_correction_first() -> None:
    draw, pilot, found, factor, correctable = np.random.default_rng(0), Pilot(AutopilotPolicy()), [], 1.0, True
    for step, level in enumerate(np.r_[np.full(35, 0.7), np.full(60, 0.1)], 1):
        pilot.batch(step, (draw.random((16, 4)) < level).astype(float))
        if (alarm := pilot.alarm(step)) is not None:
            now = Situation(step, 1, 1, factor, (20, 30), correctable=correctable)
            found.append(pilot.decide(alarm, now))
            factor, correctable = found[-1].factor, correctable and not found[-1].correction
    assert [one.setting for one in found[:2]] == ["correction", "rate"]
    assert found[0].correction == "sequence_cap:2"
    assert found[0].factor == 1.0
    assert found[1].factor == 0.25**2


RAISING = AutopilotPolicy(raise_after=32)


def steered(
    works: float, steps: int = 400, policy: AutopilotPolicy | None = None, cut: int = -1, bad: float = 0.2
) -> list[Decision]:
    """Decisions where the level is 0.7 while the factor on the rate is at most `works`, after a fault at step 36, else
    `bad`. cut: step at which the pilot goes through JSON."""
    draw, pilot, found, factor = np.random.default_rng(5), Pilot(policy or RAISING), [], 1.0
    for step in range(1, steps + 1):
        level = 0.7 if step < 36 or factor <= works else 0.2 if factor == 1.0 else bad
        pilot = Pilot(pilot.policy, json.loads(dumps(pilot.state()))) if step == cut else pilot
        pilot.batch(step, (draw.random((16, 4)) < level).astype(float))
        pilot.followed(step)
        if (alarm := pilot.alarm(step)) is not None:
            found.append(pilot.decide(alarm, Situation(step, 1, 1, factor, [c for c in (0, 10, 20, 30) if c < step] + [
                one.step for one in found])))  # fmt: skip
            factor = found[-1].factor
    return found


def test_a_rate_is_raised_again_where_the_fault_has_passed() -> None:
    first, second = steered(works=1.0, steps=45), steered(works=0.3)
    assert not first
    (back, up, *rest) = second
    assert (back.action, back.factor) == ("rollback", 0.25)
    assert (up.action, up.setting, up.factor) == ("change", "rate", 1.0)
    assert isinstance(up.why, _Calm)
    assert up.step - back.step >= RAISING.raise_after
    (again,) = rest
    assert (again.action, again.factor, again.to) == ("rollback", 0.25, up.step)  # to where the raise began


def test_a_rate_that_was_found_too_high_is_not_tried_again() -> None:
    found = steered(works=0.07)
    assert [round(one.factor, 6) for one in found] == [0.25, 0.25**3, 0.25**2, 0.25, 0.25**2]
    assert [one.action for one in found] == ["rollback", "rollback", "change", "change", "rollback"]


def test_a_raise_that_lowers_the_level_a_little_is_taken_back() -> None:
    """By 0.1, as much as may be lost in all: the raise is judged by the level just before it."""
    (_, *_, up, back) = steered(works=0.07, bad=0.6, steps=200)[:4]
    assert isinstance(up.why, _Calm)
    assert (back.action, back.to) == ("rollback", up.step)
    assert back.step - up.step <= 40


@pytest.mark.parametrize("cut", [60, 88, 90, 100, 130])
def test_a_raise_survives_json(cut: int) -> None:
    whole, again = (steered(works=0.07, steps=160, cut=at) for at in (-1, cut))
    assert len(whole) >= 4
    assert [repr(one) for one in again] == [repr(one) for one in whole]


def test_a_rate_is_never_raised_unless_that_is_asked_for() -> None:
    found = steered(works=0.3, policy=AutopilotPolicy())
    assert [one.factor for one in found] == [0.25]


def test_cut_completions_and_dead_groups_are_told_once() -> None:
    pilot, told = Pilot(AutopilotPolicy()), []
    for step in range(1, 60):
        pilot.batch(step, np.zeros((8, 4)) if step > 1 else np.eye(8, 4), np.ones((8, 4)))
        if (alarm := pilot.alarm(step)) is not None:
            told.append(pilot.decide(alarm, Situation(step)))
    assert {one.fault: one.action for one in told} == {"length": "tell", "starved": "tell"}
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
        assert alike(fly(cut), whole)


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


@pytest.mark.parametrize(("now", "action"), [(0.02, "rollback"), (0.5, "stop")])
def test_a_reward_that_fell_with_held_out_accuracy_is_no_gamed_one(now: float, action: str) -> None:
    """Two batches are too few for the monitor of the reward, and tell a broken policy from a gamed grader."""
    pilot, random = Pilot(AutopilotPolicy()), np.random.default_rng(1)
    for step in range(1, 13):
        pilot.batch(step, (random.random((16, 8)) < (0.5 if step <= 10 else now)).astype(float))
        if step in (5, 10):
            pilot.evaluation(step, Estimate(0.46, 0.03, 256))
    pilot.evaluation(12, Estimate(0.0, 0.001, 256))
    alarm = pilot.alarm(12)
    assert isinstance(alarm, Finding)
    assert alarm.fault == "held-out decline"
    decision = pilot.decide(alarm, Situation(12, checkpoints=(5, 10)))
    assert (decision.action, decision.to) == (action, 10)


@pytest.mark.parametrize(
    ("lag", "interval", "setting", "says"),
    [
        (0, 1, "rate", "0.25 × the scheduled learning rate."),
        (4, 1, "rate", "rate (every batch is 4 steps late or more: the limit is K*, which a lower rate raises)."),
        (0, 8, "interval", "refresh interval 2 (a batch, fresh at first, serves 8 steps: the limit is N*)."),
        (4, 8, "interval", "interval 2 (a batch is 4 steps late or more and serves 8: neither N* nor K* applies)."),
    ],
)
def test_a_change_says_which_threshold_limits_the_run(lag: int, interval: int, setting: str, says: str) -> None:
    pilot = Pilot(AutopilotPolicy())
    alarm = alarms.explained(alarms.fall("heldout", 12, 9.0, None, 0.6, 0.5, 0.3), "c")
    changed = pilot._changed(Situation(12, interval, lag=lag))
    assert changed["setting"] == setting
    decided = Decision(12, "change", alarm, **{"interval": interval, "lag": lag, **changed})
    assert wording.sentence(decided, (interval, 1.0)).endswith(says)
    worse = pilot._decided(alarms.not_finite(12, 3), Situation(12, interval, lag=lag))
    assert (worse.action, worse.lag) == ("change", lag)
