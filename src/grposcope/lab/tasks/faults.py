"""Rewards that fail on some rollouts: what becomes of those, by a policy.

    fail   the run ends, and the first such rollout is named
    zero   the rollout's reward is 0
    drop   the rollout leaves its group: its reward is NaN, and it is in no mean

A reward fails that raises, takes too long, or is no finite number. One that fails on every rollout of a batch, or
returns another number of rewards than there are rollouts, is broken and ends the run under every policy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Literal

from grposcope.core.capabilities import UNEVEN, WHOLE_GROUPS, Lack, Part
from grposcope.core.errors import UserError
from grposcope.lab.tasks.base import Problem, Task, grade, number, raised_in
from grposcope.lab.tasks.limits import OutOfTime, time_limit

ErrorPolicy = Literal["fail", "zero", "drop"]
POLICIES: dict[str, Part] = {
    "fail": Part("reward_errors fail"),
    "zero": Part("reward_errors zero"),
    "drop": Part(
        "reward_errors drop",
        "use reward_errors zero",
        needs=frozenset({UNEVEN}),
        lacks={WHOLE_GROUPS: Lack("leaves some", "")},
    ),
}
"""Policy -> what it needs of a run and takes from it."""

VALUES: dict[str, float] = {"zero": 0.0, "drop": math.nan}
"""Policy -> the reward of a rollout whose own failed."""


def graded(
    task: Task, problems: Sequence[Problem], completions: Sequence[str], seconds: float, policy: ErrorPolicy
) -> tuple[list[float], list[str]]:
    """Rewards of the completions, and what happened to those whose reward failed, a clause each.

    seconds: how long the batch may take, 0 for no limit; where it fails, every rollout is graded alone, and may take a
    quarter of that. UserError under the policy "fail", and where every rollout fails or single ones use up twice the
    time of the batch.
    """
    if policy == "fail":
        return grade(task, problems, completions, seconds), []
    values, said = singly(
        lambda: task.rewards(problems, completions),
        lambda i: task.rewards([problems[i]], [completions[i]])[0],
        [f"rollout {i} (problem {problem.id})" for i, problem in enumerate(problems)],
        seconds,
        f"the reward of task {task.name}",
    )
    return [VALUES[policy] if math.isnan(value) else value for value in values], said


def singly(
    together: Callable[[], Sequence[object]],
    alone: Callable[[int], object],
    names: Sequence[str],
    seconds: float,
    what: str,
) -> tuple[list[float], list[str]]:
    """Rewards, NaN where they fail, and a clause for each that failed.

    together: rewards of all; alone: of one, asked where `together` fails. names: of the rollouts. what: is graded.
    """
    try:
        with time_limit(seconds):
            rewards: Sequence[object] = list(together())
        if len(rewards) != len(names):
            raise UserError(
                f"{what} returned {len(rewards)} values for {len(names)} rollouts; return one number per completion, "
                "in order"
            )
        reasons = {i: f"is {value!r}" for i, value in enumerate(rewards) if not math.isfinite(number(value))}
    except UserError:
        raise
    except (Exception, SystemExit):
        rewards, reasons = _one_by_one(alone, names, seconds, what)
    if len(reasons) == len(names):
        raise UserError(f"{what} fails on all {len(names)} rollouts: on {names[0]} it {reasons[0]}; correct it")
    values = [math.nan if i in reasons else number(value) for i, value in enumerate(rewards)]
    return values, [f"{names[i]}: {reason}" for i, reason in reasons.items()]


def _one_by_one(
    alone: Callable[[int], object], names: Sequence[str], seconds: float, what: str
) -> tuple[list[object], dict[int, str]]:
    """Rewards of each rollout graded alone, None where that fails, and the reason by rollout."""
    rewards: list[object] = []
    reasons: dict[int, str] = {}
    began = time.monotonic()
    for i in range(len(names)):
        if seconds and time.monotonic() - began > 2 * seconds:
            raise UserError(
                f"{what} is too slow: of {i} rollouts tried one at a time {len(reasons)} failed or took longer than "
                f"{seconds / 4:g} s, first {names[next(iter(reasons), 0)]}; correct it, or raise reward_timeout"
            )
        value: object = None
        try:
            with time_limit(seconds / 4):
                value = alone(i)
            if not math.isfinite(number(value)):
                reasons[i] = f"is {value!r}"
        except OutOfTime:
            reasons[i] = f"took longer than {seconds / 4:g} s"
        except (Exception, SystemExit) as error:
            reasons[i] = f"raised {type(error).__name__}: {str(error)[:200]}{raised_in(error)}"
        rewards.append(value)
    return rewards, reasons
