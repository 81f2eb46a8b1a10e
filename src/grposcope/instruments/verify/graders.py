"""The reward function of a run as a grader of its rollouts: one of the user's own, or that of a task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout, Text
from grposcope.core.text import visible
from grposcope.instruments.verify.evidence import Grader


def of_function(function: Callable[..., Any], rows: Sequence[Rollout]) -> Grader:
    """A function of `completions`, `prompts` and what else stands in the rows, as TRL calls it.

    Columns are those of the prompt, such as its answer. UserError where the function takes a column that no row has.
    """
    by_prompt = {_key(row.prompt): row.columns for row in rows}
    names = list(dict.fromkeys(name for columns in by_prompt.values() for name in columns))
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    every = any(one.kind is one.VAR_KEYWORD for one in parameters) or not parameters
    taken = {one.name for one in parameters}
    lacking = [one.name for one in parameters if one.default is one.empty
               and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
               and one.name not in (*names, "prompts", "completions")]  # fmt: skip
    if lacking:
        raise UserError(f"the reward function takes {', '.join(lacking)}, but the rollouts have no such column (they "
                        f"have {visible(', '.join(names)) or 'none'}); write it with each rollout")  # fmt: skip

    def grade(prompts: Sequence[Text], completions: Sequence[Text]) -> Sequence[float]:
        columns: dict[str, list[Any]] = {
            name: [by_prompt.get(_key(prompt), {}).get(name) for prompt in prompts] for name in names
        }
        columns |= {"prompts": list(prompts), "completions": list(completions)}
        given = {name: values for name, values in columns.items() if every or name in taken}
        return [float("nan") if one is None else float(one) for one in function(**given)]

    return grade


def of_spec(reward: str | None, task: str | None, rows: Sequence[Rollout]) -> Grader | None:
    """The grader that `module:function`, or a task by name, gives; None for neither. UserError for an unknown one."""
    if task is not None:
        return _of_task(task, reward, rows)
    if reward is None:
        return None
    from grposcope.lab.tasks.custom import load_reward

    return of_function(load_reward(reward), rows)


def _of_task(name: str, reward: str | None, rows: Sequence[Rollout]) -> Grader:
    from grposcope.lab import tasks

    task = tasks.load(name, reward)
    problems = [*task.problems("train"), *task.problems("heldout")]
    by_id, by_prompt = {one.id: one for one in problems}, {one.prompt: one for one in problems}

    def problem(row: Rollout) -> Any:
        text = plain(row.prompt)
        found = by_id.get(row.problem) or by_prompt.get(text)
        return found or next((one for one in problems if one.prompt and one.prompt in text), None)

    known: Mapping[str, Any] = {key: problem(row) for key, row in {_key(row.prompt): row for row in rows}.items()}
    lost = [key for key, one in known.items() if one is None]
    if lost:
        raise UserError(
            f"{len(lost):,} prompts of the rollouts are not in task {name}, such as {visible(lost[0], 60)!r}; "
            "give the task that the run was trained on"
        )
    return lambda prompts, completions: task.rewards(
        [known[_key(one)] for one in prompts], [plain(one) for one in completions]
    )


def plain(text: Text | None) -> str:
    """A text, or the last message of a conversation."""
    if isinstance(text, list):
        return str(text[-1].get("content", "")) if text and isinstance(text[-1], dict) else ""
    return text or ""


def _key(prompt: Text | None) -> str:
    return str(prompt)
