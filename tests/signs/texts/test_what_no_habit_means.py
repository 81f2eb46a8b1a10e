"""That no habit spread is said where one would have been found, and that texts are paid where they are."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import written_texts

from grposcope.core.rollouts import Rollout
from grposcope.instruments.texts import answer
from grposcope.maths import group_steps
from grposcope.signs.rollouts.claims import texts
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.texts import exploits, features, reading, sample

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def letters(steps: int, late: float = 0.2) -> list[Rollout]:
    """Rollouts of two prompts a step that are paid the share of “a”, whose probability goes from 0.03 to `late`."""
    rng = np.random.default_rng(3)
    rows = []
    for step in range(1, steps + 1):
        likely = 0.03 + (late - 0.03) * (step - 1) / (steps - 1)
        for prompt in range(2):
            name = "".join(rng.choice(list("bcdef"), size=5))
            for _ in range(8):
                drawn = rng.random(int(rng.integers(4, 9))) < likely
                words = ["a" if paid else LETTERS[rng.integers(1, 26)] for paid in drawn]
                rows.append(
                    Rollout(step=step, prompt=name, completion=" ".join(words), reward=float(drawn.mean()),
                            group=f"{step}-{prompt}")
                )  # fmt: skip
    return rows


def claim(rows: list[Rollout]) -> list[tuple[str, str]]:
    return [(found.status, found.because) for found in texts.PROOF.check(PipelineEvidence("", "", tuple(rows)))]


def test_a_habit_that_rose_in_few_groups_leaves_the_claim_open() -> None:
    rows = letters(10)
    read = reading.read(sample.of_rollouts(rows))
    assert read.rose is not None
    assert not read.rose.spread
    [(status, because)] = claim(rows)
    assert status == "cannot tell"
    assert because.startswith("Texts that write “a” are paid ")
    assert because.endswith(" over the run, which may be chance in 20 groups of 10 steps.")
    first = answer._first_line(read, exploits.exploits(read))
    assert "which may be chance" in first
    assert len(first) <= answer.FIRST_LINE
    assert answer._word(read, ()) == "cannot tell"


@pytest.mark.parametrize(("steps", "status"), [(8, "cannot tell"), (30, "excluded")])
def test_nothing_holds_where_no_habit_would_have_been_found(steps: int, status: str) -> None:
    rows = written_texts.rollouts(None, 9, steps=steps, prompts=4 if steps > 20 else 2)
    [(told, because)] = claim(rows)
    assert told == status
    read = reading.read(sample.of_rollouts(rows))
    first = answer._first_line(read, exploits.exploits(read))
    if status == "excluded":
        assert re.search(r"; one that \d+% of the texts .* is found about four times of five\.$", because)
        assert first.startswith("No habit of the texts spread")
    else:
        assert because.endswith("record more groups and steps.")
        assert first.startswith("Too few groups to tell that no paid habit spread")


def test_a_paid_habit_that_no_true_score_clears_leaves_the_claim_open() -> None:
    rows = letters(30, late=0.03)
    read = reading.read(sample.of_rollouts(rows))
    assert read.unmeant.endswith("; no true score says whether that is meant.")
    assert all(status == "cannot tell" for status, _ in claim(rows))


def test_the_smallest_habit_that_is_told_is_found() -> None:
    """Planted in the later half of the groups, four times of five but for the chance of ten draws."""
    own = sample.of_rollouts(written_texts.rollouts(None, 9, steps=30, prompts=4))
    read = reading.read(own, draws=99)
    match = re.match(r"one that (\d+)%", read.least)
    assert match is not None
    share, rng = int(match[1]) / 100, np.random.default_rng(0)
    measured, later, found = features.of_sample(own, 50).columns, own.step > 15, 0
    for _ in range(10):
        planted = (later & (rng.random(len(own)) < share)).astype(np.float32)
        changed = group_steps.changes(np.column_stack([measured, planted]), own.step, own.group, 39, rng)
        assert changed is not None
        found += bool(changed.p[-1] <= 0.05)
    assert found >= 6


@pytest.mark.parametrize("paid", [0.0, 1.0])
def test_empty_texts_are_told_as_paid_only_where_they_are(paid: float) -> None:
    """Nothing is paid but one text in forty, or the empty ones."""
    rng = np.random.default_rng(5)
    rows = []
    for row in written_texts.rollouts(None, 9, steps=30, prompts=4, truth=False):
        empty = row.step is not None and rng.random() < row.step / 30
        reward = paid if empty else float(rng.random() < 0.025)
        rows.append(replace(row, completion="" if empty else row.completion, reward=reward))
    named = [own.fault for own in exploits.exploits(reading.read(sample.of_rollouts(rows)))]
    assert (exploits.NOTHING in named) == bool(paid)


def named(rows: list[Rollout], name: str, columns: bool = False) -> list[Rollout]:
    """The rollouts with their reward under the name of a function, and their true score if `columns`."""
    return [replace(row, rewards={name: row.reward}, columns=row.columns if columns else {}) for row in rows]


@pytest.mark.parametrize("name", ["accuracy_reward", "correctness", "reward"])
def test_a_reward_that_trains_is_no_witness_of_itself(name: str) -> None:
    """Whatever its name: what is rewarded is told as by a reward without a name, and nothing holds."""
    sound = named(written_texts.rollouts(None, 9, steps=30, prompts=4), name)
    held, untested = claim(sound)
    assert held[0] == "excluded"
    assert untested[0] == "cannot tell"
    assert untested[1].startswith("Whether what is paid is right was not tested: ")
    assert "log a score that does not train" in untested[1]
    if name == "accuracy_reward":
        assert "accuracy_reward is the whole of the reward" in untested[1]
    gamed = named(written_texts.rollouts(written_texts.LOOPHOLES["magic word"], 5, steps=30), name)
    read = reading.read(sample.of_rollouts(gamed), draws=99)
    assert read.sample.truth == ""
    assert {habit.blind for habit in read.habits} == {None}
    assert all(status != "excluded" for status, _ in claim(gamed))
    told = answer.of_reading(read)
    assert any(why.startswith(f"{name.capitalize()} is the whole of the reward") for why in told.missing) == (
        name != "reward"
    )


def test_a_score_beside_a_reward_of_that_name_is_a_witness() -> None:
    """A column of its own clears what is sound; a function among several accuses and clears nothing."""
    rows = written_texts.rollouts(None, 9, steps=30, prompts=4)
    [(status, _)] = claim(named(rows, "accuracy_reward", columns=True))
    assert status == "excluded"
    several = [replace(row, rewards={"accuracy_reward": row.reward, "style": 0.0}, columns={}) for row in rows]
    with_style = [replace(row, reward=row.reward + 0.1 * (len(str(row.completion)) % 2)) for row in several]
    own = sample.of_rollouts(with_style)
    assert (own.truth, own.trained) == ("accuracy_reward", "accuracy_reward")
    assert own.witness.startswith("accuracy_reward is part of the reward")
