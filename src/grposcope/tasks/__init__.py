"""Tasks: problems to answer, and verifiers that grade the answers.

base           what a task is: Task, Problem, Step, grade
arithmetic     chains of sums in which every written step can be verified
gsm8k          grade-school word problems
benchmarks     maths benchmarks from a file, for evaluation
reasoning_gym  any task of the reasoning-gym package
custom         problems from a file of your own and a reward function of your own
grading        maths answers compared by math-verify
jsonl, splits, limits   reading lines, dividing problems, stopping a grader that runs away

A task is named by `name` or `name:argument`:

    arithmetic                              or arithmetic:steps=3,largest=9,ops=+-,limit=99,size=5000
    gsm8k                                   from the hub, or gsm8k:PATH
    benchmarks:PATH                         for evaluation; benchmarks:PATH,train=true to train on it
    reasoning_gym:NAME                      or reasoning_gym:NAME,size=1000,seed=0,graded=true,key=value
    jsonl:PATH                              with --reward module:function, or graded by each line's `answer`
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Callable
from typing import Any

from grposcope.errors import UserError
from grposcope.tasks.arithmetic import Arithmetic
from grposcope.tasks.base import Problem, Step, Task, grade
from grposcope.tasks.benchmarks import Benchmark
from grposcope.tasks.custom import Custom, load_reward
from grposcope.tasks.gsm8k import GSM8K
from grposcope.tasks.reasoning_gym import ReasoningGym

__all__ = ["Problem", "Step", "Task", "grade", "load"]


def load(spec: str, reward: str | None = None) -> Task:
    """The task that `name[:argument]` names; reward is `module:function`, for jsonl tasks only.

    Raises UserError for an unknown name or option, or a file that cannot be used.
    """
    name, _, argument = spec.strip().partition(":")
    if name not in _TASKS:
        close = difflib.get_close_matches(name, _TASKS, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UserError(f"there is no task {name!r}; {hint}The tasks are {', '.join(_TASKS)}")
    if reward is not None and name != "jsonl":
        raise UserError(f"--reward goes with jsonl:PATH; the task {name} has its own reward")
    return _TASKS[name](argument, reward)


def _arithmetic(argument: str, _: str | None) -> Task:
    given, known = _options(argument, "arithmetic"), list(inspect.signature(Arithmetic).parameters)
    for key, value in given.items():
        if key not in known:
            raise UserError(f"arithmetic has no option {key!r}; its options are {', '.join(known)}")
        if key != "ops" and not re.fullmatch(r"-?\d{1,18}", value):
            raise UserError(f"arithmetic: {key}={value} should be a whole number")
    values: dict[str, Any] = {key: value if key == "ops" else int(value) for key, value in given.items()}
    return Arithmetic(**values)


def _benchmark(argument: str, _: str | None) -> Task:
    path = _needed(argument, "benchmarks:PATH")
    return Benchmark(path.removesuffix(",train=true"), train=path.endswith(",train=true"))


def _reasoning_gym(argument: str, _: str | None) -> Task:
    name, _, rest = _needed(argument, "reasoning_gym:NAME").partition(",")
    values = {key: _value(text) for key, text in _options(rest, f"reasoning_gym:{name}").items()}
    for key, kind in (("size", int), ("heldout", int), ("seed", int), ("graded", bool)):
        if key in values and type(values[key]) is not kind:
            wanted = "true or false" if kind is bool else "a whole number"
            raise UserError(f"reasoning_gym:{name}: {key}={values[key]} should be {wanted}")
    return ReasoningGym(name, **values)


def _gsm8k(argument: str, _: str | None) -> Task:
    return GSM8K(argument or None)


def _jsonl(argument: str, reward: str | None) -> Task:
    return Custom(_needed(argument, "jsonl:PATH"), None if reward is None else load_reward(reward))


_TASKS: dict[str, Callable[[str, str | None], Task]] = {
    "arithmetic": _arithmetic,
    "gsm8k": _gsm8k,
    "benchmarks": _benchmark,
    "reasoning_gym": _reasoning_gym,
    "jsonl": _jsonl,
}


def _options(text: str, task: str) -> dict[str, str]:
    """`key=value,key=value` as a dict; a comma inside a value is one that no `key=` follows."""
    options = {}
    for part in filter(None, re.split(r",(?=\w+=)", text)):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise UserError(f"{task}: {part!r} is no option; write key=value, with commas between")
        options[key.strip()] = value.strip()
    return options


def _value(text: str) -> Any:
    """A number, true, false or a list as JSON spells it, else the text itself."""
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except ValueError:
        return text


def _needed(argument: str, form: str) -> str:
    if not argument:
        raise UserError(f"the task needs an argument: {form}")
    return argument
