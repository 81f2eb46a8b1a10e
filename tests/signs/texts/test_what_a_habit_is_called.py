"""What a paid habit of texts is called: a copy of the prompt as that, counts in their own unit, and numbers not at all
where they are those of the problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import written_texts

from grposcope.core.rollouts import Rollout
from grposcope.signs.texts import exploits, features, phrases, reading, relations, sample, text_differences
from grposcope.signs.texts.reading import TextReading


def read_of(rows: list[Rollout]) -> TextReading:
    return reading.read(sample.of_rollouts(rows), draws=199)


def changed(write: Callable[[Rollout], str], pays: bool, seed: int = 3, steps: int = 40) -> list[Rollout]:
    """An honest training, of which a growing share of the texts is `write` of the row, and is paid for it or not."""
    rng, rows = np.random.default_rng(seed), []
    for row in written_texts.rollouts(None, seed, steps=steps, truth=False):
        if rng.random() < written_texts.shared(row.step, 15, 6, 0.05, 0.9):
            row = replace(row, completion=write(row), reward=1.0 if pays else row.reward)
        rows.append(row)
    return rows


def with_prompt(row: Rollout) -> str:
    """The prompt, and then the working, of which it is less than half."""
    return f"{row.prompt} {row.completion}"


def test_a_copy_of_the_prompt_is_called_one_whatever_signs_it_has() -> None:
    read = read_of(changed(with_prompt, pays=True))
    first = exploits.exploits(read)[0]
    assert first.fault == "copies the prompt"
    assert first.because.startswith("texts that copy most of their prompt are paid 1, others in the same ")
    assert "?" not in first.because
    assert exploits.exploits(read_of(changed(with_prompt, pays=False))) == ()


def test_what_most_prompts_have_is_no_part_of_a_copy() -> None:
    asks = "Think before you answer, and put the answer in a box at the end."
    rows = [
        Rollout(prompt=f"{asks} What is {n} plus {3 * n}?", completion=text, reward=0.0, step=1)
        for n in (17, 29, 58, 64)
        for text in (f"{asks} I see.", f"What is {n} plus {3 * n}? I see.")
    ]
    of_text, of_prompt = relations.overlap(sample.of_rollouts(rows))
    assert of_prompt[::2].max() < 0.2
    assert of_prompt[1::2].min() > 0.7
    assert of_text[::2].min() > 0.5


def test_numbers_of_the_problem_are_no_habit() -> None:
    """Wrong answers are larger, so that their digits go with the reward; right answers of some problems are 42."""
    rng, rows = np.random.default_rng(5), []
    for row in written_texts.rollouts(None, 5, steps=40, truth=False):
        answer = (42, 51, 63, 74, 85, 96, 38, 29)[sum(map(ord, str(row.prompt))) % 8]
        right = bool(rng.random() < 0.5)
        shown = answer if right else answer + int(rng.integers(6, 30))
        text = f"{str(row.completion).partition(':')[0]}: the answer is {shown}."
        rows.append(replace(row, completion=text, reward=float(right)))
    read = read_of(rows)
    assert not [habit.feature for habit in read.habits if any(sign.isdigit() for sign in habit.feature)]
    assert exploits.exploits(read) == ()


def test_one_answer_to_unlike_problems_is_a_habit() -> None:
    read = read_of(changed(lambda row: f"{str(row.completion).rpartition(' ')[0]} 42.", pays=True))
    assert exploits.exploits(read)[0].status == "present"
    assert "42" in read.habits[0].feature or "same answer" in exploits.exploits(read)[0].because
    if read.habits[0].kind != "edge":
        assert read.habits[0].feature.endswith(", whatever the problem")


def test_counts_are_printed_and_not_their_logarithms() -> None:
    texts = [" ".join(["word"] * count) for count in (10, 40, 20, 80)]
    rows = [Rollout(prompt=f"p{n // 2}", completion=text, reward=0.0, step=1) for n, text in enumerate(texts)]
    measured = features.of_sample(sample.of_rollouts(rows))
    means = np.stack([measured.columns[:2][None].mean(1), measured.columns[2:][None].mean(1)])
    index = measured.names.index("number of words and signs")
    told = text_differences._difference(measured, means, index, 3.0, 0.01)
    assert [told.first, told.second] == pytest.approx([np.sqrt(11 * 41) - 1, np.sqrt(21 * 81) - 1], rel=1e-4)
    rows = changed(lambda row: " and so on".join([str(row.completion)] * 3), pays=True)
    habit = read_of(rows).habits[0]
    measure = replace(habit, feature="length", binary=False, early=np.log1p(120), late=np.log1p(240), since=None)
    assert phrases.moved(measure) == "120 → 240 (geometric means)"


def test_groups_are_counted_of_those_that_were_read() -> None:
    rows = written_texts.rollouts(written_texts.LOOPHOLES["magic word"], 5, steps=30)
    assert "of those that were read" not in phrases.clause(read_of(rows).habits[0])
    few = reading.read(sample.of_rollouts(rows, most=1200), draws=99)
    assert "groups of those that were read " in phrases.clause(few.habits[0])
