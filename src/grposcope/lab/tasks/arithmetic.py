"""Chains of sums in which every written step can be verified.

A problem is an expression such as `3+8-5+7=`; the answer rewrites it one operation at a time,
`11-5+7=6+7=13`. Each segment between equals signs is a step, and it is right when it has the
value of the segment before it with fewer operations. The outcome is right when the last integer
of the completion is the value of the expression. Outcome and per-step rewards therefore exist
on the same rollouts.
"""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from grposcope.core.errors import UserError
from grposcope.lab.tasks.base import Problem, Split, Step, Task, is_heldout, options

_EXPRESSION = re.compile(r"-?\d{1,9}(?:[+\-*]\d{1,9})*")
_INTEGER = re.compile(r"-?\d+")
_TOKEN = re.compile(r"\d+|[+\-*]")


def _value(expression: str) -> int | None:
    """Value of integers joined by + - * (usual precedence), or None if it is not such an expression."""
    if not _EXPRESSION.fullmatch(expression):
        return None
    sign = -1 if expression.startswith("-") else 1
    tokens = _TOKEN.findall(expression.removeprefix("-"))
    total, term = 0, sign * int(tokens[0])
    for operator, operand in zip(tokens[1::2], tokens[2::2], strict=True):
        if operator == "*":
            term *= int(operand)
        else:
            total, term = total + term, int(operand) * (1 if operator == "+" else -1)
    return total + term


def _operations(expression: str) -> int:
    """Number of operators in the expression, without a leading sign."""
    return sum(c in "+-*" for c in expression.removeprefix("-"))


def _solution(expression: str) -> list[str]:
    """The expressions after each step, when the first operation (products first) is done repeatedly."""
    written = []
    while _operations(expression):
        tokens = _TOKEN.findall(expression.removeprefix("-"))
        at = tokens.index("*") if "*" in tokens else 1
        negative = "-" if expression.startswith("-") and at == 1 else ""
        result = _value(negative + "".join(tokens[at - 1 : at + 2]))
        lead = "-" if expression.startswith("-") and at > 1 else ""
        expression = lead + "".join([*tokens[: at - 1], str(result), *tokens[at + 2 :]])
        written.append(expression)
    return written


class Arithmetic(Task):
    """Expressions of `steps` operations: a first number up to `limit`, then operands up to `largest`.

    All results along the way lie in 0 … `limit`.

    steps, largest, ops and limit are the difficulty; `size` is the number of training problems.
    Held-out problems are chosen by a hash of their text, so they never occur in training.
    """

    instruction = (
        "Work out the expression by rewriting it, doing one operation at a time. "
        "Write only the rewritten expressions, separated by =. For example, 4+5-2= becomes 9-2=7"
    )
    labels_steps = True
    step_mark = "="
    form = "arithmetic[:key=value,…]"

    @classmethod
    def parse(cls, argument: str, reward: str | None = None) -> Arithmetic:
        """The task with the options `steps=3,largest=9,…`, its parameters by name."""
        named, names = options(argument, "arithmetic"), list(inspect.signature(cls).parameters)
        for key, text in named.items():
            if key not in names:
                raise UserError(f"arithmetic has no option {key!r}; its options are {', '.join(names)}")
            if key != "ops" and not re.fullmatch(r"-?\d{1,18}", text):
                raise UserError(f"arithmetic: {key}={text} should be a whole number")
        values: dict[str, Any] = {key: text if key == "ops" else int(text) for key, text in named.items()}
        return cls(**values)

    def __init__(self, steps: int = 3, largest: int = 9, ops: str = "+-", limit: int = 99, size: int = 5_000):
        if not 1 <= steps <= 20:
            raise UserError(f"arithmetic: steps={steps} is outside 1 … 20")
        if not 1 <= largest <= limit <= 999_999:
            raise UserError(f"arithmetic: need 1 ≤ largest ≤ limit ≤ 999999, got largest={largest}, limit={limit}")
        if not ops or set(ops) - set("+-*"):
            raise UserError(f"arithmetic: ops={ops!r} must be made of + - *")
        if size < 1:
            raise UserError(f"arithmetic: size={size} must be at least 1")
        self.length, self.largest, self.ops, self.limit, self.size = steps, largest, ops, limit, size
        self.name = f"arithmetic:steps={steps},largest={largest},ops={ops},limit={limit}"
        self.max_tokens = sum(3 * (remaining + 1) + 1 for remaining in range(steps)) + 4

    @cache  # noqa: B019 - a task lives as long as the process
    def problems(self, split: Split) -> Sequence[Problem]:
        """Distinct problems: `size` for training and at most 1,000 held out, fewer if there are no more."""
        wanted = self.size if split == "train" else min(self.size, 1000)
        rng = random.Random(f"{self.name}/{split}")
        distinct: dict[str, Problem] = {}
        misses = 0
        while len(distinct) < wanted and misses < 300:
            expression = self._expression(rng)
            prompt = f"{expression}="
            misses += 1
            if expression and prompt not in distinct and is_heldout(prompt) == (split == "heldout"):
                distinct[prompt] = Problem(prompt, prompt, str(_value(expression)))
                misses = 0
        if not distinct:
            raise UserError(f"{self.name} has no {split} problems; use more steps, a larger limit or other ops")
        return tuple(distinct.values())

    def reward(self, problem: Problem, completion: str) -> float:
        """1 if the last integer written is the answer, else 0."""
        return float(self.answer_in(problem, completion) == problem.answer)

    def answer_in(self, problem: Problem, completion: str) -> str:
        """The last integer behind the last equals sign."""
        return next(reversed(_INTEGER.findall(completion.rsplit("=", 1)[-1])), "")

    def difficulty(self, problem: Problem) -> float:
        """Operations of the expression, counted twice where the result has other tens than what it is made from."""
        expression = problem.prompt.rstrip("=")
        written = [expression, *_solution(expression)]
        tens = [int(_TOKEN.findall(text)[0]) // 10 for text in written]
        return _operations(expression) + sum(a != b for a, b in pairwise(tens))

    def steps(self, problem: Problem, completion: str) -> list[Step]:
        """A step per segment, the `=` that closes it included; right if its value is that of the one before and it has
        fewer operations.
        """
        labelled, start, before = [], 0, problem.prompt.rstrip("=")
        for segment in completion.split("="):
            text = segment.strip()
            answer = _value(text)
            correct = answer is not None and answer == _value(before) and _operations(text) < _operations(before)
            end = start + len(segment) + 1
            labelled.append(Step(start, end, correct))
            start, before = end, text
        return labelled

    def _expression(self, rng: random.Random) -> str:
        """A random expression whose every prefix has its value in 0 … limit, or "" at a dead end."""
        expression = str(rng.randint(1, self.limit))
        for _ in range(self.length):
            for _ in range(20):
                longer = f"{expression}{rng.choice(self.ops)}{rng.randint(1, self.largest)}"
                if 0 <= (_value(longer) or 0) <= self.limit:
                    expression = longer
                    break
            else:
                return ""
        return expression
