"""Rewards of steps on the tokens that end them, as estimators of steps read them.

A reward function returns beside its `score` either

    step_rewards: [[end, reward], …]    what each step is worth by itself
    step_values:  [[end, value], …]     the expected outcome after each step, for grposcope_values

where `end` is the number of characters of the completion up to and including the step. The last token gets what is left
of the score, so that the rewards of a rollout always sum to its score.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grposcope.core.errors import UserError
from grposcope.engines.verl.estimators import MARK, NOTHING, PREFIX, steps_credit

REWARDS, VALUES = "step_rewards", "step_values"


def _readers() -> tuple[str, ...]:
    """Advantage estimators that read where a reward stands; all others of verl sum them."""
    return (*(PREFIX + name for name in steps_credit()), "gae", "reinforce_plus_plus", "optimal_token_baseline")


def pop(info: dict[str, Any]) -> dict[str, Any]:
    """Take the fields of steps out of what a reward function returned."""
    return {name: info.pop(name) for name in (REWARDS, VALUES) if name in info}


def check(estimator: str) -> None:
    """UserError where no estimator would read the rewards of steps."""
    if estimator not in _readers():
        raise UserError(
            f"algorithm.adv_estimator={estimator} sums the rewards of a rollout, so the rewards of its steps are not "
            f"used; use {PREFIX}steps, or take {REWARDS} out of what the reward function returns"
        )


def token_rewards(
    extra_info: Mapping[str, Any], score: float, ids: Sequence[int], text_of: Callable[[Sequence[int]], str]
) -> list[float]:
    """The reward of every token of `ids` (T). given: one of the two fields. text_of: decodes tokens.

    A step ends on the first token with which the text is at least `end` characters long, on the last one for an `end`
    behind the text. UserError for both fields, or for steps that are no pairs of an end and a finite number.
    """
    if len(extra_info) != 1:
        raise UserError(f"a reward function returns either {REWARDS} or {VALUES}, not both")
    (name, steps), total = next(iter(extra_info.items())), 0.0
    rewards = [0.0] * len(ids)
    for number, (end, amount) in enumerate(_pairs(name, steps), 1):
        if not math.isfinite(amount):
            raise UserError(f"{name} of step {number} is {amount}; every step needs a finite number")
        change = amount - total if name == VALUES else amount
        total += change
        index = bisect_left(range(len(ids) - 1), end, key=lambda t: len(text_of(ids[: t + 1])))
        rewards[index] = (rewards[index] + change) or MARK
    rest = score - total
    if name == VALUES or not math.isclose(score, total, rel_tol=1e-6, abs_tol=1e-9):
        rewards[-1] = (rewards[-1] + rest) or MARK
    return _balanced(rewards)


def _balanced(rewards: list[float]) -> list[float]:
    """Rewards whose marks, if nothing else, are left in the sum, with a token in front that takes them off again.

    A rollout of score 0 then has exactly 0, so that equal scores are equal.
    """
    sum_of_rewards = math.fsum(rewards)
    if 0 < sum_of_rewards < NOTHING and 0.0 in rewards:
        rewards[rewards.index(0.0)] = -sum_of_rewards
    return rewards


def _pairs(name: str, steps: Any) -> list[tuple[int, float]]:
    try:
        pairs = sorted((int(end), float(amount)) for end, amount in steps)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{name} of the reward function should be a list of [characters up to the end of the step, number], got "
            f"{str(steps)[:80]!r}"
        ) from error
    return pairs
