"""Tasks: problems to answer, and verifiers that grade the answers.

base           Task, Problem, Step, grade, the split by a hash, reading of options and of JSON lines
arithmetic     chains of sums in which every written step can be verified
hidden_table   sums of letters whose numbers have to be asked for, a turn each
gsm8k          grade-school word problems
benchmarks     maths benchmarks from a file or the hub, for evaluation
reasoning_gym  any task of the reasoning-gym package
custom         problems from a file of your own and a reward function of your own
hub            rows of data sets of the Hugging Face hub
grading        maths answers compared by math-verify
limits         stopping a grader that runs away

A task is named by `name` or `name:argument`:

    arithmetic                              or arithmetic:steps=3,largest=9,ops=+-,limit=99,size=5000
    hidden_table                            or hidden_table:letters=2,cost=0.02,size=2000
    gsm8k                                   from the hub, or gsm8k:PATH
    benchmarks:PATH                         for evaluation; benchmarks:PATH,train=true to train on it
    benchmarks:OWNER/NAME                   the same from the hub, with config=… and split=… behind it
    reasoning_gym:NAME                      or reasoning_gym:NAME,size=1000,seed=0,graded=true,key=value
    jsonl:PATH                              with a reward function module:function, or graded by each line's `answer`
"""

from __future__ import annotations

import difflib

from grposcope.core.errors import UserError
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.tasks.base import Problem, Step, Task, grade
from grposcope.lab.tasks.benchmarks import Benchmark
from grposcope.lab.tasks.custom import Custom
from grposcope.lab.tasks.gsm8k import GSM8K
from grposcope.lab.tasks.hidden_table import HiddenTable
from grposcope.lab.tasks.reasoning_gym import ReasoningGym

__all__ = ["Problem", "Step", "Task", "grade", "load"]

TASKS: dict[str, type[Task]] = {
    "arithmetic": Arithmetic,
    "gsm8k": GSM8K,
    "benchmarks": Benchmark,
    "reasoning_gym": ReasoningGym,
    "jsonl": Custom,
    "hidden_table": HiddenTable,
}
"""Name on the command line -> task."""


def load(spec: str, reward: str | None = None) -> Task:
    """The task that `name[:argument]` names; reward is `module:function`, for tasks that take one.

    Raises UserError for an unknown name or option, or a file that cannot be used.
    """
    check(spec, reward)
    name, _, argument = spec.strip().partition(":")
    return TASKS[name].parse(argument, reward)


def check(spec: str, reward: str | None = None) -> None:
    """UserError for a name that is no task's, and for a reward function that the task does not take."""
    name = spec.strip().partition(":")[0]
    if name not in TASKS:
        close = difflib.get_close_matches(name, TASKS, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise UserError(f"there is no task {name!r}{hint}; the tasks are {', '.join(TASKS)}")
    if reward is not None and not TASKS[name].takes_reward:
        takers = " or ".join(task.form for task in TASKS.values() if task.takes_reward)
        raise UserError(f"a reward function goes with {takers}; the task {name} has its own reward")
