"""Base class of tasks (problems to answer and a verifier that grades the answers), and how tasks read their input.

A task of your own is a subclass with `problems` and `reward`; a line in `lab.tasks.TASKS` gives it a name on the
command line.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from grposcope.core.capabilities import STEP_ENDS, STEP_MARK, TURNS, Lack, Part
from grposcope.core.errors import UserError
from grposcope.core.files import json_lines
from grposcope.lab.tasks.limits import OutOfTime, time_limit

Split = Literal["train", "heldout"]


@dataclass(frozen=True)
class Problem:
    """One question: a stable id, the prompt text, the reference answer, and any further fields."""

    id: str
    prompt: str
    answer: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One verified step of a completion: the characters [start, end) and whether they are right.

    They include what closes the step, such as a line break, since only then it is known to be over. A step that
    nothing but the end of the completion closes has its end one character behind the text.
    """

    start: int
    end: int
    correct: bool


@dataclass(frozen=True)
class Turn:
    """What an environment answers to a turn of the policy.

    observation: text that the policy reads next; it is never trained on. reward: of this turn. done: the episode is
    over. why: it is over, a word of `core.rollouts.STOPS`.
    """

    observation: str = ""
    reward: float = 0.0
    done: bool = False
    why: str = "environment"


class Task:
    """Base class of all tasks.

    name:        how the task appears in records.
    instruction: put before the prompt (as a system message) for models with a chat template;
                 models without one see the prompt alone.
    max_tokens:  a completion length that suits the task.
    labels_steps: True when `steps` is implemented, so that per-step credit can be used.
    step_mark:   the text that closes a step, where one does, so that trees can branch at steps.
    form:        how the task is named on the command line, such as "gsm8k[:PATH]".
    takes_reward: True when a reward function of the user's own can replace the task's.
    max_turns:   turns that the policy may take; above 1, `start` and `step` are the environment that answers them, and
                 the reward is the sum of those of the turns.
    turn_end:    the text of one token with which the policy ends a turn; the end of text ends one too.
    components: names of the rewards, where there are several, which `component` gives; their sum with `weights` is the
                 reward.
    """

    name: str = "task"
    instruction: str = ""
    max_tokens: int = 256
    labels_steps: bool = False
    step_mark: str = ""
    form: str = ""
    takes_reward: bool = False
    max_turns: int = 1
    turn_end: str = ""
    components: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    @property
    def weighted(self) -> dict[str, float]:
        """Weights of the rewards by name; empty where there is one."""
        return dict(zip(self.components, self.weights, strict=True))

    @classmethod
    def parse(cls, argument: str, reward: str | None = None) -> Task:
        """The task that `name:argument` names; reward is `module:function`, given only if `takes_reward`.

        Tasks that take an argument override this. Raises UserError for an argument that cannot be used.
        """
        if argument:
            raise UserError(f"the task {cls.name} takes no argument, and {argument!r} was given; leave it out")
        return cls()

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of a split, always the same ones in the same order."""
        raise NotImplementedError

    def reward(self, problem: Problem, completion: str) -> float:
        """Reward of one completion."""
        raise NotImplementedError

    def difficulty(self, problem: Problem) -> float:
        """How hard the task takes a problem to be, in a unit of its own; NaN where it has no idea.

        By default the number in the problem's field `difficulty`. Forecasts of success rates are made from it.
        """
        return number(problem.fields.get("difficulty"))

    def rewards(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        """Rewards of a batch; override where grading is cheaper in bulk."""
        return [self.reward(p, c) for p, c in zip(problems, completions, strict=True)]

    def component(self, name: str) -> Task:
        """The task with the reward of that name alone; only where there are `components`."""
        raise NotImplementedError

    def answer_in(self, problem: Problem, completion: str) -> str | None:
        """What of a completion is graded as its answer; "" where the grader can read none, None where nobody knows.

        A completion without an answer that can be read earns no reward, and evaluations count it apart. Override this
        where the verifier can tell.
        """
        return None

    def start(self, problem: Problem, seed: int) -> Any:
        """The state that an episode begins in; only where there are turns. Rollouts of a group have one seed."""
        raise NotImplementedError

    def step(self, problem: Problem, state: Any, said: str) -> Turn:
        """The environment's answer to what the policy said in a turn, its end included; it may change the state."""
        raise NotImplementedError

    def anchor(self, state: Any) -> str:
        """A key of a state: rollouts of a group whose keys are equal are in one state; "" where nobody knows."""
        return ""

    def branch(self, state: Any, seed: int) -> Any:
        """A copy of a state that an episode can go on from; one with random numbers draws others from the seed."""
        return copy.deepcopy(state)

    def steps(self, problem: Problem, completion: str) -> list[Step]:
        """The verified steps of one completion, in order; only when `labels_steps`."""
        raise NotImplementedError


def part(task: Task) -> Part:
    """What the task has not, of what a run may need of tasks."""
    capabilities = {
        STEP_ENDS: (task.labels_steps, "labels no steps"),
        STEP_MARK: (task.step_mark, "has no such text"),
        TURNS: (task.max_turns > 1, "has one turn"),
    }
    lacks = {
        capability: Lack(why, "use another task") for capability, (there, why) in capabilities.items() if not there
    }
    return Part(f"task {task.name}", lacks=lacks)


def grade(task: Task, problems: Sequence[Problem], completions: Sequence[str], seconds: float = 0) -> list[float]:
    """Rewards of the completions, one finite number each.

    seconds: how long the batch may take, 0 for no limit. Raises UserError, naming the rollout, if the task returns
    something else, raises, leaves the program or takes longer.
    """
    try:
        with time_limit(seconds):
            rewards = list(task.rewards(problems, completions))
    except UserError:
        raise
    except OutOfTime:
        where = _first_failing(task, problems, completions, seconds)
        raise UserError(
            f"the reward of task {task.name} took longer than {seconds:g} s for {len(completions)} rollouts "
            f"({where}); correct it, or raise reward_timeout (0 for no limit)"
        ) from None
    except (Exception, SystemExit) as error:
        where = _first_failing(task, problems, completions, seconds)
        raise UserError(
            f"the reward of task {task.name} raised {type(error).__name__}: {error}{raised_in(error)} ({where})"
        ) from error
    if len(rewards) != len(completions):
        raise UserError(
            f"the reward of task {task.name} returned {len(rewards)} values for {len(completions)} rollouts; "
            "return one number per completion, in order"
        )
    numbers = [number(value) for value in rewards]
    for index, (finite, value) in enumerate(zip(numbers, rewards, strict=True)):
        if math.isfinite(finite):
            continue
        raise UserError(
            f"the reward of task {task.name} is {value!r} for rollout {index} (problem {problems[index].id}); "
            "return a finite number for every completion"
        )
    return numbers


def number(value: Any) -> float:
    """The value as a float; NaN if it is not a number, and text is not, even if it spells one."""
    try:
        return math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def raised_in(error: BaseException) -> str:
    """File and line where an exception of the user's code was raised, as " in FILE, line N"; empty where not known.

    Of the calls that led to it, the last one outside of installed packages counts.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    own = [frame for frame in frames if not {"site-packages", "grposcope"} & set(Path(frame.filename).parts)]
    last = (own or frames)[-1:]
    return f" in {last[0].filename}, line {last[0].lineno}" if last else ""


def _first_failing(task: Task, problems: Sequence[Problem], completions: Sequence[str], seconds: float) -> str:
    """Description of the first rollout whose grading fails when it is graded alone, if one does.

    A rollout may take a quarter of what the batch may take, in seconds, and all of them together as much as the batch.
    """
    try:
        with time_limit(seconds):
            for index, (problem, completion) in enumerate(zip(problems, completions, strict=True)):
                try:
                    with time_limit(seconds / 4):
                        task.rewards([problem], [completion])
                except (Exception, SystemExit):
                    return f"rollout {index}, problem {problem.id}, completion {completion[:60]!r}"
    except OutOfTime:
        return "every single rollout is slow"
    return "no single rollout fails when graded alone"


def is_heldout(text: str, percent: int = 10) -> bool:
    """Whether a problem with this text belongs to the held-out split, which a hash of the text decides."""
    return _digest(text)[0] * 100 < percent * 256


def split_by_hash(problems: Sequence[Problem], split: Split) -> tuple[Problem, ...]:
    """The problems of a split; about 10 % are held out, by a hash of the prompt.

    Problems with the same prompt fall on the same side, and adding problems moves none of the
    others. Of two prompts or more at least one is on each side, whatever their hashes; a single
    prompt is for training.
    """
    prompts = {problem.prompt for problem in problems}
    heldout = {prompt for prompt in prompts if is_heldout(prompt)}
    if len(heldout) in (0, len(prompts)):
        heldout = {min(prompts, key=_digest)} if len(prompts) > 1 else set()
    return tuple(problem for problem in problems if (problem.prompt in heldout) == (split == "heldout"))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def options(text: str, task: str) -> dict[str, str]:
    """`key=value,key=value` as a dict; a comma inside a value is one that no `key=` follows."""
    named = {}
    for pair in filter(None, re.split(r",(?=\w+=)", text)):
        key, equals, value = pair.partition("=")
        if not equals or not value:
            raise UserError(f"{task}: {pair!r} is not an option; write key=value, separated by commas")
        named[key.strip()] = value.strip()
    return named


def needed(argument: str, form: str) -> str:
    """The argument; UserError if it is empty."""
    if not argument:
        raise UserError(f"the task needs an argument: {form}")
    return argument


def read_rows(
    path: str | PathLike[str], required: Sequence[str | tuple[str, ...]] = ()
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number (from 1) and object of every line that is not blank, read as they are asked for; gzip is recognised.

    required: fields that every object must have; a tuple of names means that one of them will do.

    Raises UserError where the file cannot be read, is empty, or has a line that is no such object.
    """
    empty = True
    for number, row in json_lines(Path(path), remedy="write one JSON object a line"):
        _check_row(row, required, f"{path}, line {number}")
        empty = False
        yield number, row
    if empty:
        raise UserError(f"{path} is empty; it should hold one JSON object a line")


def as_text(value: Any) -> str:
    """A JSON value as the text of an answer: 27.0 is "27", null is "", a list is joined by commas."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list):
        return ", ".join(as_text(element) for element in value)
    return str(value).strip()


def _check_row(row: Mapping[str, Any], required: Sequence[str | tuple[str, ...]], where: str) -> None:
    """UserError for a row that lacks a required field, or whose text no tokenizer can encode."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UserError(
            f"{where}: holds half of a surrogate pair (\\ud…), which is not text; correct the line"
        ) from None
    for names in required:
        names = (names,) if isinstance(names, str) else names
        if not any(name in row for name in names):
            wanted = " or ".join(repr(name) for name in names)
            raise UserError(
                f"{where} has no field {wanted}; its fields are {', '.join(row) or 'none'}; add or rename it"
            )
