"""Rewards that fail on some rollouts, under every policy, and those that are broken."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest

from grposcope.core.errors import UserError
from grposcope.lab.tasks.base import Problem, Task
from grposcope.lab.tasks.faults import graded

PROBLEMS = [Problem(f"p{i}", "?") for i in range(4)]


def task(reward: Callable[[str], object]) -> Task:
    class Fragile(Task):
        name = "fragile"

        def reward(self, problem: Problem, completion: str) -> float:
            return reward(completion)  # type: ignore[return-value]

    return Fragile()


def raises_on_b(completion: str) -> float:
    if completion == "b":
        raise ValueError("no b, please")
    return len(completion) / 2


def test_zero_and_drop_keep_the_other_rewards() -> None:
    values, said = graded(task(raises_on_b), PROBLEMS, ["a", "b", "ccc", ""], 5, "zero")
    assert values == [0.5, 0.0, 1.5, 0.0]
    assert len(said) == 1
    assert said[0].startswith("rollout 1 (problem p1): raised ValueError: no b, please in ")
    values, _ = graded(task(raises_on_b), PROBLEMS, ["a", "b", "ccc", ""], 5, "drop")
    assert values[0::2] == [0.5, 1.5]
    assert math.isnan(values[1])


def test_fail_names_the_rollout_and_the_line() -> None:
    with pytest.raises(
        UserError,
        match=r"raised ValueError: no b, please in .*test_reward_errors\.py, line \d+ \(rollout 1, problem p1",
    ):
        graded(task(raises_on_b), PROBLEMS, ["a", "b", "ccc", ""], 5, "fail")


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "0.5", 10**400])
def test_what_is_no_finite_number_has_failed(value: object) -> None:
    values, said = graded(task(lambda c: value if c == "b" else 1.0), PROBLEMS, ["a", "b", "c", "d"], 5, "zero")
    assert values == [1, 0, 1, 1]
    assert said[0].startswith("rollout 1 (problem p1): is ")


def test_a_rollout_that_hangs_is_cut_off_and_named() -> None:
    def reward(completion: str) -> float:
        if completion == "b":
            time.sleep(30)
        return 1.0

    values, said = graded(task(reward), PROBLEMS, ["a", "b", "c", "d"], 0.4, "zero")
    assert values == [1, 0, 1, 1]
    assert said == ["rollout 1 (problem p1): took longer than 0.1 s"]
    with pytest.raises(
        UserError, match=r"took longer than 0.4 s for 4 rollouts \(rollout 1, problem p1, completion 'b'"
    ):
        graded(task(reward), PROBLEMS, ["a", "b", "c", "d"], 0.4, "fail")


def test_a_program_exit_is_no_way_out() -> None:
    def reward(completion: str) -> float:
        if completion == "b":
            raise SystemExit(3)
        return 1.0

    assert graded(task(reward), PROBLEMS, ["a", "b", "c", "d"], 0, "zero")[0] == [1, 0, 1, 1]


def test_a_reward_that_fails_everywhere_is_broken() -> None:
    with pytest.raises(
        UserError, match=r"task fragile fails on all 4 rollouts: on rollout 0 \(problem p0\) it raised ZeroDiv"
    ):
        graded(task(lambda c: 1 / 0), PROBLEMS, ["a", "b", "c", "d"], 5, "drop")

    class Short(Task):
        name = "short"

        def rewards(self, problems: object, completions: object) -> list[float]:
            return [1.0]

    with pytest.raises(UserError, match="returned 1 value for 4 rollouts"):
        graded(Short(), PROBLEMS, ["a", "b", "c", "d"], 5, "drop")


@pytest.mark.slow
def test_many_that_hang_end_the_run_in_time() -> None:
    began = time.monotonic()
    problems = [Problem(f"p{i}", "?") for i in range(100)]
    with pytest.raises(UserError, match=r"is too slow.* first rollout 0"):
        graded(task(lambda c: time.sleep(30)), problems, ["a"] * 100, 0.4, "zero")
    assert time.monotonic() - began < 20  # not 100 × 30
