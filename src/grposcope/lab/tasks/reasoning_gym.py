r"""Procedural tasks of the reasoning-gym package (arXiv 2505.24760), by name: `reasoning_gym:chain_sum`.

Its scores are graded: "The answer is 169." earns 0.118 where "169" earns 1. So the answer is
taken out of the completion first, and the reward is 1 for a full score and 0 for any other,
unless `graded=true` asks for the score itself.

The answer is the text after the last `####` (to the end), in the last `\boxed{}` or in the last
`<answer>` tags, whichever comes last; without such a mark, as many of the last lines as the
reference answer has.

Item i of seed s is item i − 1 of seed s + 1, so held-out problems come from a far-away
seed and those whose prompt occurs in training are dropped. And some scorers evaluate the answer as
Python or SymPy code: for those, text that is no plain formula or list is refused before it is scored.

In release 0.1.25 the items of isomorphic_strings, polynomial_multiplication, ransom_note and
word_ladder depend on PYTHONHASHSEED as well as on the seed: set it to have the same ones again.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from types import ModuleType
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.installing import install
from grposcope.lab.tasks.base import Problem, Split, Task, needed, options
from grposcope.lab.tasks.grading import TAIL, marked
from grposcope.lab.tasks.limits import runaway, time_limit

_SEED_DISTANCE = 1_000_000  # between the seeds of the two splits, hence the most problems in one
_FUNCTIONS = {"sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh"}
_FUNCTIONS |= {"exp", "log", "ln", "sqrt", "Abs", "pi"}


def _is_sum(text: str) -> bool:
    """Whether the text holds only digits, + - * / and brackets."""
    return re.fullmatch(r"[\d\s+\-*/().]*", text) is not None


def _is_formula(text: str) -> bool:
    """Whether the text holds only digits, operators, brackets, single letters and the usual functions."""
    names = re.findall(r"[^\W\d]\w*", text)
    plain = re.fullmatch(r"[\w\s+\-*/^().,]*", text, re.ASCII) is not None and not re.search(r"\.\s*[A-Za-z_]", text)
    return plain and all(name in _FUNCTIONS or (len(name) == 1 and name.isalpha()) for name in names)


def _is_list(text: str) -> bool:
    """Whether the text holds only words, digits, quotes and square brackets, so that nothing in it can be called."""
    return re.fullmatch(r"[\w\s,\[\]'\"#-]*", text) is not None


_EVALUATED: Mapping[str, Callable[[str], bool]] = {
    "binary_matrix": _is_list,
    "countdown": _is_sum,
    "intermediate_integration": _is_formula,
    "n_queens": _is_list,
    "polynomial_multiplication": _is_formula,
    "puzzle24": _is_sum,
    "simple_integration": _is_formula,
    "spiral_matrix": _is_list,
    "string_insertion": _is_list,
}
"""Tasks whose scorer evaluates the answer, and what an answer must look like there."""


class ReasoningGym(Task):
    """Problems of one reasoning-gym task: `size` for training and at most `heldout` held out.

    graded: reward with the score, from 0 to 1, rather than with 1 for a full score and else 0.
    config: the fields of the task's own configuration, such as min_terms for chain_sum.
    """

    instruction = (
        "Think briefly, then write #### and after it the final answer alone, in exactly the form that is asked for."
    )
    max_tokens = 512
    form = "reasoning_gym:NAME"

    @classmethod
    def parse(cls, argument: str, reward: str | None = None) -> ReasoningGym:
        """The task `NAME,key=value,…`; keys that are no parameters belong to the task's own configuration."""
        name, _, rest = needed(argument, cls.form).partition(",")
        values = {key: _value(text) for key, text in options(rest, f"reasoning_gym:{name}").items()}
        for key, kind in (("size", int), ("heldout", int), ("seed", int), ("graded", bool)):
            if key in values and type(values[key]) is not kind:
                wanted = "true or false" if kind is bool else "a whole number"
                raise UserError(f"reasoning_gym:{name}: {key}={values[key]} should be {wanted}")
        return cls(name, **values)

    def __init__(
        self, task: str, size: int = 1000, heldout: int = 200, seed: int = 0, graded: bool = False, **config: Any
    ):
        for label, value in (("size", size), ("heldout", heldout)):
            if not 1 <= value <= _SEED_DISTANCE:
                raise UserError(f"reasoning_gym:{task}: {label}={value} is outside 1 … {_SEED_DISTANCE}")
        self.task, self.size, self.heldout, self.seed = task, size, heldout, seed
        self.graded, self.config = graded, config
        self.name = ",".join([f"reasoning_gym:{task}", *(f"{key}={value}" for key, value in config.items())])
        self._dataset = _create_dataset(task, {**config, "seed": seed, "size": size})

    @cache  # noqa: B019 - a task lives as long as the process
    def problems(self, split: Split) -> Sequence[Problem]:
        """The items of the seed in order; held out are those of another seed whose prompt is not in training."""
        if split == "train":
            return tuple(_problem(row, f"train-{n}") for n, row in enumerate(self._dataset))
        trained = {problem.prompt for problem in self.problems("train")}
        other = _create_dataset(self.task, {**self.config, "seed": self.seed + _SEED_DISTANCE, "size": self.heldout})
        problems = (_problem(row, f"heldout-{n}") for n, row in enumerate(other))
        heldout = tuple({p.prompt: p for p in problems if p.prompt not in trained}.values())
        if not heldout:
            raise UserError(
                f"{self.name}: all problems occur in training; use a smaller size or a harder configuration"
            )
        return heldout

    def reward(self, problem: Problem, completion: str) -> float:
        """The score of the extracted answer; 0 for text that its scorer cannot read or must not evaluate."""
        score = self._score(problem, completion)
        if score is None:
            return 0.0
        return score if self.graded else float(score >= 1.0)

    def answer_in(self, problem: Problem, completion: str) -> str:
        """The extracted answer; "" for text that its scorer cannot read or must not evaluate."""
        return "" if self._score(problem, completion) is None else _answer(problem, completion)

    def _score(self, problem: Problem, completion: str) -> float | None:
        """The score of the extracted answer; None for text that its scorer cannot read or must not evaluate."""
        answer = _answer(problem, completion)
        readable = _EVALUATED.get(self.task)
        if readable and (runaway(answer) or not readable(answer)):
            return None
        try:
            with time_limit():
                return float(self._dataset.score_answer(answer, dict(problem.fields)))
        except Exception:  # out of time, or text not of the form expected: many scorers raise on it
            return None


def _value(text: str) -> Any:
    """A number, true, false or a list as JSON spells it, else the text itself."""
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except ValueError:
        return text


def _extracted(completion: str, lines: int = 1) -> str:
    """The marked answer of a completion, or its last lines that are not blank."""
    text = marked(completion)
    if text is not None:
        return text
    written = [line.rstrip() for line in completion[-TAIL:].splitlines() if line.strip()]
    return "\n".join(written[-lines:]).strip()


def _answer(problem: Problem, completion: str) -> str:
    return _extracted(completion, lines=problem.answer.count("\n") + 1)


def _problem(row: Mapping[str, Any], identity: str) -> Problem:
    """An item as a problem; puzzles with many solutions have no reference answer."""
    return Problem(identity, row["question"], str(row["answer"] if row["answer"] is not None else ""), row)


def _create_dataset(task: str, config: dict[str, Any]) -> Any:
    """The dataset, or a UserError naming the tasks or fields that come close."""
    gym = _gym()
    datasets = gym.factory.DATASETS
    if task not in datasets:
        close = difflib.get_close_matches(task, datasets, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(close)}?" if close else f"the names are {', '.join(sorted(datasets))}"
        raise UserError(f"reasoning_gym has no task {task!r}; {hint}")
    options = {field.name for field in fields(datasets[task][1])}
    unknown = sorted(set(config) - options)
    if unknown:
        names = ", ".join(sorted(options - {"seed", "size"} | {"seed", "size", "heldout", "graded"}))
        raise UserError(f"reasoning_gym:{task} has no option {unknown[0]!r}; its options are {names}")
    try:
        return gym.create_dataset(task, **config)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"reasoning_gym:{task} refuses its configuration: {reason}; change the options") from error


def _gym() -> ModuleType:
    try:
        import reasoning_gym
    except ImportError:
        raise UserError(f"reasoning_gym tasks need the reasoning-gym package; {install('reasoning')}") from None
    return reasoning_gym
