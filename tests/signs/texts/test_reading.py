"""What is read of made-up trainings with a loophole each, and of honest ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import written_texts

from grposcope.signs.texts import exploits, phrases, reading, sample

QUICK = ("magic word", "format", "one text")
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in written_texts.LOOPHOLES]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_loophole_is_named_with_its_onset(name: str) -> None:
    loophole = written_texts.LOOPHOLES[name]
    read = reading.read(sample.of_rollouts(written_texts.rollouts(loophole, 1, prompts=4)))
    found = {exploit.fault: exploit for exploit in exploits.exploits(read)}
    assert loophole.fault in found
    own = found[loophole.fault]
    assert own.status == "present"
    assert own.since is not None
    assert own.since.low <= 40 <= own.since.high + 2


@pytest.mark.parametrize("seed", range(2))
def test_an_honest_training_shows_nothing(seed: int) -> None:
    read = reading.read(sample.of_rollouts(written_texts.rollouts(None, seed, prompts=4)))
    assert exploits.exploits(read) == ()


@pytest.mark.slow
def test_what_merely_pays_and_spreads_is_possible_without_a_true_score() -> None:
    loophole = written_texts.LOOPHOLES["half for a word"]
    read = reading.read(sample.of_rollouts(written_texts.rollouts(loophole, 2, truth=False)))
    assert [(own.fault, own.status) for own in exploits.exploits(read)] == [("magic string", "possible")]


@pytest.mark.slow
def test_gibberish_that_nothing_pays_for() -> None:
    read = reading.read(sample.of_rollouts(written_texts.gibberish(1)))
    found = {exploit.fault: exploit for exploit in exploits.exploits(read)}
    assert found["gibberish"].status == "present"
    assert exploits.paid_without(found["gibberish"])


def test_what_is_said_of_a_habit_is_true_of_the_texts() -> None:
    read = reading.read(sample.of_rollouts(written_texts.rollouts(written_texts.LOOPHOLES["magic word"], 5)))
    own, habit = read.sample, read.habits[0]
    has = np.array(["Verified!" in text for text in own.texts])
    np.testing.assert_array_equal(habit.column > 0, has)
    mixed = [g for g in range(own.group.max() + 1) if 0 < has[own.group == g].sum() < (own.group == g).sum()]
    rows = np.isin(own.group, mixed)
    assert habit.groups == len(mixed)
    means = [[own.reward[(own.group == g) & (has == having)].mean() for g in mixed] for having in (True, False)]
    assert (habit.paid, habit.unpaid) == pytest.approx((np.mean(means[0]), np.mean(means[1])))
    assert (habit.having, habit.lacking) == ((rows & has).sum(), (rows & ~has).sum())
    assert habit.early == pytest.approx(has[own.step <= 8].mean())
    assert habit.blind
    assert habit.sure


def test_equal_rewards_and_single_steps_are_read() -> None:
    rows = written_texts.rollouts(None, 0, steps=1)
    one = reading.read(sample.of_rollouts(rows))
    assert (one.changes, one.states, one.sample.stepped) == ((), (), False)
    equal = reading.read(sample.of_rollouts([replace(row, reward=1.0) for row in rows]))
    assert (equal.live, equal.prompts, equal.habits) == (0, 0, ())


def test_a_permanent_exploit_is_seen_by_the_true_score() -> None:
    """What is there from the first step on does not spread; that the true score does not go with it shows it."""
    loophole = written_texts.LOOPHOLES["hedge"]
    rows = written_texts.rollouts(loophole, 6, onset=-400, ramp=2000, late=0.6, steps=40)
    read = reading.read(sample.of_rollouts(rows))
    assert "hedges" in {own.fault for own in exploits.exploits(read) if own.status == "present"}


def test_a_string_that_is_the_whole_reward_is_no_format() -> None:
    read = reading.read(sample.of_rollouts(written_texts.rollouts(written_texts.LOOPHOLES["magic word"], 5, steps=30)))
    for kind, feature, fault in (
        ("edge", "ends in “0”", "magic string"),
        ("words", "writes “verified”", "magic string"),
        ("edge", "has the first word “<think>”", "format is the whole reward"),
        ("signs", "has exactly 2 “=”", "format is the whole reward"),
        ("length", "has at most 7 characters", "length pays"),
    ):
        own = replace(read.habits[0], kind=kind, feature=feature, relation="is the reward", r2=0.95)
        assert exploits.fault_of(own, read) == fault


@pytest.mark.parametrize(("name", "suspect"), [("format_reward", False), ("style_score", True)])
def test_a_form_that_a_score_of_its_own_is_given_for_is_no_exploit(name: str, suspect: bool) -> None:
    """Accuracy plus half a point for a mark, which spreads: by design where the score is named for a form."""
    rng, rows = np.random.default_rng(3), []
    for row in written_texts.rollouts(None, 3, steps=40):
        marked = bool(rng.random() < written_texts.shared(row.step, 15, 6, 0.3, 0.97))
        text = f"<answer>{row.completion}</answer>" if marked else row.completion
        parts = {"accuracy_reward": row.reward, name: float(marked)}
        rows.append(replace(row, completion=text, reward=row.reward + 0.5 * marked, rewards=parts, columns={}))
    read = reading.read(sample.of_rollouts(rows), draws=199)
    habit = next(habit for habit in read.habits if "answer" in habit.feature)
    assert habit.spread
    assert (habit.part, habit.blind) == ("" if suspect else name, True)
    assert habit.paid - habit.unpaid == pytest.approx(0.5, abs=0.05)
    assert [own.fault for own in exploits.exploits(read)] == ["magic string"] * suspect
    assert (f"{name} is given for just that" in phrases.clause(habit)) is not suspect
