"""A reward function of verl: the outcome of arithmetic and, where asked for, rewards of its steps."""

from __future__ import annotations

from typing import Any

from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.tasks.base import Problem

TASK = Arithmetic()


def outcome(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
    """1 for the right answer."""
    prompt = extra_info["problem"]
    return TASK.reward(Problem(prompt, prompt, ground_truth), solution_str)


def steps(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> dict[str, Any]:
    """The number of right steps, and which they are."""
    prompt = extra_info["problem"]
    labelled = TASK.steps(Problem(prompt, prompt, ground_truth), solution_str)
    rewards = [[step.end, float(step.correct)] for step in labelled]
    return {"score": sum(reward for _, reward in rewards), "step_rewards": rewards}
