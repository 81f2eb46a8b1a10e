"""Problems from a JSONL file of your own, graded by a reward function of your own.

A line has a `prompt` (or `question`, or `problem`) and, if you like, an `answer`, an `id` and any
other fields. The reward function has the signature of TRL's: it is called once for a batch with
lists, `prompts=`, `completions=` (both texts) and one for every further field of the file, and
returns one number per completion.

    def reward(completions, answer, **columns):
        return [float(a in c) for c, a in zip(completions, answer)]

Without a reward function the answers are graded by math-verify, so every line needs an `answer`.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from grposcope.core.errors import UserError
from grposcope.lab.tasks import grading
from grposcope.lab.tasks.base import Problem, Split, Task, as_text, needed, number, raised_in, read_rows, split_by_hash
from grposcope.maths.aggregation import checked_weights

Reward = Callable[..., Sequence[float]]

PROMPTS = ("prompt", "question", "problem")
CALLED_WITH = ("prompts", "completions")
"""Lists that a reward function gets besides those of the fields, as in TRL."""


class Custom(Task):
    """The problems of one JSONL file, 10 % of them held out by a hash of the prompt.

    reward: the reward function; without one, 1 for an answer equal to the reference answer, else 0.
    """

    form = "jsonl:PATH"
    takes_reward = True

    @classmethod
    def parse(cls, argument: str, reward: str | None = None) -> Custom:
        """The problems of the file `argument`, graded by the function that `reward` names, if any."""
        loaded = None if reward is None else _load_rewards(reward)
        return cls(needed(argument, cls.form), loaded[0][1] if loaded and len(loaded) == 1 else loaded)

    def __init__(self, path: str, reward: Reward | Sequence[tuple[str, Reward, float]] | None = None):
        """reward: a function, or several with their names and weights; by default the answers are graded."""
        several = reward if isinstance(reward, Sequence) else ()
        self.functions = {name: function for name, function, _ in several}
        self.components = tuple(self.functions)
        self.weights = tuple(weight for *_, weight in several)
        self.path = Path(path).expanduser()
        self.function: Reward | None = self._sum if several else cast("Reward | None", reward)
        self.name = f"jsonl:{self.path.name}"
        if reward is None:
            grading.engine()
            self.instruction = grading.INSTRUCTION
        self._problems = tuple(
            _problem(row, f"{self.path}, line {number}", str(number), graded=reward is None)
            for number, row in read_rows(self.path, required=(PROMPTS,))
        )
        for function in self.functions.values() or ([] if self.function is None else [self.function]):
            _check_call(function, self._problems, self.path)

    def _sum(self, **columns: list[Any]) -> list[float]:
        """The weighted sum of several rewards; a reward that is no number makes it none."""
        parts = []
        for name, function in self.functions.items():
            values = list(function(**_wanted(function, dict(columns))))
            if len(values) != len(columns["completions"]):
                raise UserError(
                    f"the reward {name} returned {len(values)} values for {len(columns['completions'])} completions; "
                    "return one number per completion, in order"
                )
            parts.append([number(value) for value in values])
        return [math.fsum(w * r for w, r in zip(self.weights, row, strict=True)) for row in zip(*parts, strict=True)]

    def component(self, name: str) -> Custom:
        """The task with one of its rewards."""
        alone = copy.copy(self)
        alone.function, alone.functions, alone.components, alone.weights = self.functions[name], {}, (), ()
        alone.name = f"{self.name} ({name})"
        return alone

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of the split, in the order of the file."""
        return split_by_hash(self._problems, split)

    def reward(self, problem: Problem, completion: str) -> float:
        """Reward of one completion."""
        return float(self.rewards([problem], [completion])[0])

    def answer_in(self, problem: Problem, completion: str) -> str | None:
        """What math-verify reads as the answer; None with a reward function, which does not say."""
        return grading.answer_in(problem.answer, completion) if self.function is None else None

    def rewards(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        """Rewards of the batch from the reward function; without one, 1 where the answer is right, else 0."""
        if self.function is None:
            return [float(grading.equal(p.answer, c)) for p, c in zip(problems, completions, strict=True)]
        names = dict.fromkeys(name for problem in problems for name in problem.fields)
        columns = {name: [problem.fields.get(name) for problem in problems] for name in names}
        columns |= {"prompts": [problem.prompt for problem in problems], "completions": list(completions)}
        returned = self.function(**_wanted(self.function, columns))
        return [value.item() if hasattr(value, "item") else value for value in returned]


def _load_rewards(spec: str) -> list[tuple[str, Reward, float]]:
    """Names, functions and weights of `module:function[=weight],…`; a part without a colon is of the module before it.

    UserError for names that come twice, weights that are no numbers or all 0, and as `load_reward`.
    """
    rewards: list[tuple[str, Reward, float]] = []
    module = ""
    for word in spec.split(","):
        text, equals, weight = word.strip().partition("=")
        module, name = text.rpartition(":")[::2] if ":" in text else (module, text)
        try:
            value = float(weight) if equals else 1.0
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UserError(f"reward {word.strip()}: the weight {weight!r} is not a finite number; write {text}=0.5")
        rewards.append((name, load_reward(f"{module}:{name}"), value))
    names = [name for name, *_ in rewards]
    if len(set(names)) < len(names):
        raise UserError(f"reward {spec}: a name is used twice ({', '.join(names)}); every reward needs one of its own")
    checked_weights([weight for *_, weight in rewards], names)
    return rewards


def load_reward(spec: str) -> Reward:
    """The function that `module:function` or `path/to/file.py:function` names; modules of the current folder count.

    Importing runs the module. Raises UserError where there is no such module, file or function.
    """
    where, colon, name = spec.rpartition(":")
    if not colon or not where or not name:
        raise UserError(f"reward {spec}: write module:function or file.py:function")
    module = _from_file(Path(where).expanduser(), spec) if where.endswith(".py") else _from_name(where, spec)
    function = getattr(module, name, None)
    if function is None:
        public = {key: value for key, value in vars(module).items() if not key.startswith("_")}
        functions = ", ".join(key for key, value in public.items() if inspect.isfunction(value))
        raise UserError(f"reward {spec}: {where} has no {name!r}; its functions are {functions or 'none'}")
    if not callable(function):
        raise UserError(f"reward {spec}: {name!r} is a {type(function).__name__}, not a function; name a function")
    return function


def _problem(row: Mapping[str, Any], where: str, identity: str, graded: bool) -> Problem:
    key = next(name for name in PROMPTS if name in row)
    prompt = row[key]
    if not isinstance(prompt, str) or not prompt.strip():
        raise UserError(f"{where}: {key!r} should be non-empty text, not {str(prompt)[:40]!r}; correct the line")
    answer = as_text(row.get("answer"))
    if graded and not answer:
        raise UserError(f"{where} has no 'answer' to grade by; add one, or give a reward function")
    rest = {name: value for name, value in row.items() if name != key}
    return Problem(as_text(row.get("id")) or identity, prompt, answer, rest)


def _check_call(function: Reward, problems: Sequence[Problem], path: Path) -> None:
    """UserError for a function that needs what it is not given."""
    arguments = [*CALLED_WITH, *dict.fromkeys(name for problem in problems for name in problem.fields)]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built in: nothing is known of it
        return
    try:
        signature.bind(**_wanted(function, {name: [] for name in arguments}))
    except TypeError as error:
        raise UserError(
            f"reward {getattr(function, '__name__', 'function')}{signature}: {error}; it is called once per batch "
            f"with these lists of {path}, by name: {', '.join(arguments)}"
        ) from None


def _wanted(function: Reward, columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns a function can take: all if it has **columns, else those it names."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return columns
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return columns
    return {name: values for name, values in columns.items() if name in parameters}


def _from_name(name: str, spec: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserError(
                f"reward {spec}: there is no module {name!r} here or among the installed ones; "
                "run from its folder or name its file, file.py:function"
            ) from None
        raise UserError(f"reward {spec}: {name} imports {error.name}, which is missing; install it") from error
    except (Exception, SystemExit) as error:
        raise _broken(spec, name, error) from error


def _from_file(path: Path, spec: str) -> ModuleType:
    if not path.is_file():
        raise UserError(f"reward {spec}: there is no file {path}; give the path of a Python file")
    name = f"_reward_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise UserError(f"reward {spec}: {path} cannot be imported; give the path of a Python file")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _broken(spec, str(path), error) from error
    return module


def _broken(spec: str, what: str, error: BaseException) -> UserError:
    reason = " ".join(str(error).split())
    where = raised_in(error)
    return UserError(f"reward {spec}: importing {what} raised {type(error).__name__}: {reason}{where}; correct it")
