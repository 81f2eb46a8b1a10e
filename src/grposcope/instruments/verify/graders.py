"""The reward function of a run as a grader of its rollouts: one of the user's own, or that of a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout, Text
from grposcope.core.text import visible
from grposcope.signs.rollouts.evidence import Grader, UnansweredError
from grposcope.signs.rollouts.reward_function import of_function

SECONDS = 60.0
"""How long a reward function may take for a batch of rollouts."""


def bounded(grader: Grader, seconds: float = SECONDS) -> Grader:
    """The grader with a time limit, where the system has one (`lab.tasks.limits`). One that did not answer is not asked
    again; UnansweredError then, and in its place."""
    from grposcope.lab.tasks.limits import OutOfTime, time_limit

    late: list[str] = []

    def grade(prompts: Sequence[Text], completions: Sequence[Text]) -> Sequence[float]:
        if late:
            raise UnansweredError(late[0])
        try:
            with time_limit(seconds):
                return grader(prompts, completions)
        except OutOfTime:
            late.append(
                f"the reward function has not answered within {seconds:g} s for {len(completions):,} rollouts; give it "
                "a time limit of its own, or fewer rollouts"
            )
            raise UnansweredError(late[0]) from None

    return grade


def of_spec(reward: str | None, task: str | None, rows: Sequence[Rollout]) -> Grader | None:
    """The grader that `module:function`, or a task by name, gives; None for neither. UserError for an unknown one."""
    if task is not None:
        return bounded(_of_task(task, reward, rows))
    if reward is None:
        return None
    from grposcope.lab.tasks.custom import load_reward

    return bounded(of_function(load_reward(reward), rows))


def _of_task(name: str, reward: str | None, rows: Sequence[Rollout]) -> Grader:
    from grposcope.lab import tasks

    task = tasks.load(name, reward)
    problems = [*task.problems("train"), *task.problems("heldout")]
    by_id, by_prompt = {problem.id: problem for problem in problems}, {problem.prompt: problem for problem in problems}

    def problem(row: Rollout) -> Any:
        text = _plain(row.prompt)
        found = by_id.get(row.problem) or by_prompt.get(text)
        return found or next((problem for problem in problems if problem.prompt and problem.prompt in text), None)

    problems_by_key: Mapping[str, Any] = {
        key: problem(row) for key, row in {_key(row.prompt): row for row in rows}.items()
    }
    lost = [key for key, problem in problems_by_key.items() if problem is None]
    if lost:
        raise UserError(
            f"{len(lost):,} prompts of the rollouts are not in task {name}, such as {visible(lost[0], 60)!r}; "
            "give the task that the run was trained on"
        )
    return lambda prompts, completions: task.rewards(
        [problems_by_key[_key(prompt)] for prompt in prompts], [_plain(completion) for completion in completions]
    )


def _plain(text: Text | None) -> str:
    """A text, or the last message of a conversation."""
    if isinstance(text, list):
        return str(text[-1].get("content", "")) if text and isinstance(text[-1], dict) else ""
    return text or ""


def _key(prompt: Text | None) -> str:
    return str(prompt)
