"""Rewards of steps find the tokens that end them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from grposcope.core.errors import UserError
from grposcope.engines.verl.estimators import MARK, all_estimators
from grposcope.engines.verl.token_rewards import check, pop, token_rewards

PIECES = ["13", "-", "4", "=", "9", ""]
"""A completion 13-4=9 and its end-of-text token, which is not spelled."""


def text_of(ids: Sequence[int]) -> str:
    return "".join(PIECES[i] for i in ids)


def placed(given: dict[str, Any], score: float) -> list[float]:
    return token_rewards(given, score, range(6), text_of)


def test_a_step_ends_on_the_token_that_completes_it() -> None:
    assert placed({"step_rewards": [[5, 1.0], [7, 1.0]]}, 2.0) == [0, 0, 0, 1, 0, 1]
    assert placed({"step_rewards": [[1, 0.5]]}, 0.5) == [0.5, 0, 0, 0, 0, 0]  # within a token


def test_steps_of_reward_zero_are_marked_and_the_sum_is_the_score() -> None:
    assert placed({"step_rewards": [[5, 0.0], [6, 0]]}, 0.0) == [-2 * MARK, 0, 0, MARK, MARK, 0]
    assert placed({"step_rewards": [[5, 0.0]]}, 1.0) == [0, 0, 0, MARK, 0, 1]
    assert placed({"step_rewards": [[5, 0.1], [6, 0.2]]}, 0.3)[-1] == 0  # no step of rounding errors
    for score in (0.0, 1.0):
        assert float(torch.tensor(placed({"step_rewards": [[3, 0.0], [5, 0.0]]}, score)).sum()) == score


def test_what_balances_marks_is_no_step() -> None:
    """The group of two: one right step after a wrong one, and two wrong ones."""
    rewards = torch.tensor([placed({"step_rewards": [[3, 0.0], [5, r]]}, r) for r in (1.0, 0.0)])
    credit = all_estimators()["grposcope_steps"](rewards, torch.ones(2, 6), ["a", "a"])[0]
    torch.testing.assert_close(credit, torch.tensor([[1.0, 1, 1, 1, 0, 0], [-1, -1, -1, -1, 0, 0]]))
    process = all_estimators()["grposcope_process"](rewards, torch.ones(2, 6), ["a", "a"])[0]
    r, w = 0.75 / (0.5 + 1e-4), -0.25 / (0.5 + 1e-4)  # four steps, one of which is right
    expected = torch.tensor([[w + r, w + r, r, r, 0, 0], [2 * w, 2 * w, w, w, 0, 0]])
    torch.testing.assert_close(process, expected)


def test_values_become_differences_that_end_with_the_outcome() -> None:
    assert placed({"step_values": [[5, 0.75]]}, 1.0) == [0, 0, 0, 0.75, 0, 0.25]
    assert placed({"step_values": [[3, 0.5], [5, 0.5]]}, 0.5) == [0, 0.5, 0, MARK, 0, MARK]


def test_credit_of_values_from_end_to_end() -> None:
    """V̂_0 of a rollout is the other's outcome."""
    rewards = torch.tensor([placed({"step_values": [[5, 0.75]]}, 1.0), placed({"step_values": [[2, 0.25]]}, 0.0)])
    credit = all_estimators()["grposcope_values"](rewards, torch.ones(2, 6), ["a", "a"])[0]
    expected = [[0.75, 0.75, 0.75, 0.75, 0.25, 0.25], [-0.75, -0.25, -0.25, -0.25, -0.25, -0.25]]
    torch.testing.assert_close(credit, torch.tensor(expected))


def test_fields_of_steps_are_taken_out() -> None:
    info = {"acc": 1.0, "step_rewards": [[1, 1.0]]}
    assert pop(info) == {"step_rewards": [[1, 1.0]]}
    assert info == {"acc": 1.0}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"step_rewards": [], "step_values": []}, "either step_rewards or step_values"),
        ({"step_rewards": 3}, "should be a list"),
        ({"step_rewards": [1.0, 2.0]}, "should be a list"),
        ({"step_values": [["a", 2.0]]}, "should be a list"),
        ({"step_rewards": [[1, float("nan")]]}, "of step 1 is nan"),
    ],
)
def test_what_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        placed(given, 1.0)


def test_an_estimator_that_sums_does_not_read_steps() -> None:
    with pytest.raises(UserError, match=r"algorithm.adv_estimator=grpo sums .* use grposcope_steps"):
        check("grpo")
    check("grposcope_process")
