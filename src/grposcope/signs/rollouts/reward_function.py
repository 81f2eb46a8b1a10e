"""A reward function as a grader of rollouts, called as TRL calls it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout, Text
from grposcope.core.text import visible
from grposcope.signs.rollouts.evidence import Grader


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
    every = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters) or not parameters
    taken = {parameter.name for parameter in parameters}
    lacking = [parameter.name for parameter in parameters if parameter.default is parameter.empty
               and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
               and parameter.name not in (*names, "prompts", "completions")]  # fmt: skip
    if lacking:
        raise UserError(f"the reward function takes {', '.join(lacking)}, but the rollouts have no such column (they "
                        f"have {visible(', '.join(names)) or 'none'}); write it with each rollout")  # fmt: skip

    def grade(prompts: Sequence[Text], completions: Sequence[Text]) -> Sequence[float]:
        columns: dict[str, list[Any]] = {
            name: [by_prompt.get(_key(prompt), {}).get(name) for prompt in prompts] for name in names
        }
        columns |= {"prompts": list(prompts), "completions": list(completions)}
        arguments = {name: values for name, values in columns.items() if every or name in taken}
        return [float("nan") if reward is None else float(reward) for reward in function(**arguments)]

    return grade


def _key(prompt: Text | None) -> str:
    return str(prompt)
