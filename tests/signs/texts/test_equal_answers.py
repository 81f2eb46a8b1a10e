"""Siblings that mark one answer, of which some are paid and some not: told where length and form do not tell why."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from grposcope.core.rollouts import Rollout
from grposcope.signs.texts import right_answers

GROUPS, SIZE = 20, 6

Paid = Callable[[np.random.Generator, bool, str], float]
"""The reward of a text, by whether it is right."""


def drawn(paid: Paid, close: str = "") -> list[Rollout]:
    """Texts of many lengths with a right or a wrong answer, as a reward pays for them; `close` ends some of them."""
    rng = np.random.default_rng(0)
    rows: list[Rollout] = []
    for group in range(GROUPS):
        for place in range(SIZE):
            right = bool(rng.random() < 0.6)
            words = "so " * int(rng.integers(5, 60))
            end = close if rng.random() < 0.5 else ""
            text = f"{words}the answer is \\boxed{{{group if right else 900 + place}}}.{end}"
            rows.append(
                Rollout(where=f"line {len(rows) + 1}", step=1 + group // 4, group=str(group),
                        prompt=f"What is {group}?", completion=text, reward=paid(rng, right, text),
                        columns={"answer": str(group)})
            )  # fmt: skip
    return rows


def lost(rng: np.random.Generator, right: bool, text: str) -> float:
    """A grader that is late for a third of the right ones."""
    return float(right and rng.random() > 0.33)


def test_equal_answers_of_a_late_grader_are_told() -> None:
    found = right_answers.unpaid(drawn(lost))
    assert found is not None
    assert (found.fault, found.status) == ("reward not repeatable", "present")
    assert "siblings that mark one answer in one form have the reward 0 and 1" in found.because
    assert found.brief.startswith("equal answers are graded differently in ")


@pytest.mark.parametrize(
    ("paid", "close"),
    [
        (lambda rng, right, text: float(right), ""),
        (lambda rng, right, text: float(right and len(text) < 100), ""),
        (lambda rng, right, text: float(right and text.endswith("</answer>")), "</answer>"),
        (lambda rng, right, text: right - len(text) / 1000, ""),
        (lambda rng, right, text: float(right and rng.random() > 0.33), "\n```python\nprint(1)\n```"),
    ],
    ids=["sound", "length", "form", "price of length", "code"],
)
def test_what_else_is_paid_for_is_no_grader_that_fails(paid: Paid, close: str) -> None:
    rows = drawn(paid, close)
    if "python" in close:
        rows = [row for row in rows if "```" in str(row.completion)]
    assert right_answers.unpaid(rows) is None


def test_a_reward_that_does_not_go_by_the_marked_answer_says_nothing() -> None:
    """As where a judge grades the way to the answer."""
    assert right_answers.unpaid(drawn(lambda rng, right, text: float(rng.random() < 0.5))) is None


def test_the_score_of_answers_is_looked_at_where_there_are_several() -> None:
    """A sum with another part says nothing by itself; a part that pays for answers does."""
    rows = drawn(lost)
    for other in ("correct", "style"):
        several = [
            Rollout(**{**vars(row), "rewards": {other: row.reward, "format": 1.0}, "reward": row.reward + 1.0})
            for row in rows
        ]
        assert (right_answers.unpaid(several) is not None) == (other == "correct")


def test_rollouts_that_a_limit_cut_or_that_failed_say_nothing() -> None:
    rows = [Rollout(**{**vars(row), "truncated": True}) for row in drawn(lost)]
    assert right_answers.unpaid(rows) is None
    rows = [Rollout(**{**vars(row), "failed": "late"}) for row in drawn(lost)]
    assert right_answers.unpaid(rows) is None
