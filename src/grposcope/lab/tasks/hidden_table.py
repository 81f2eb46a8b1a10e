"""Sums of letters whose numbers the policy has to ask for: a task of several turns for the smallest models.

A problem is a sum of letters such as `b+d=`. In a turn the policy asks for one letter, `?b;`, and the environment
answers with its number, `4`; or it gives the sum, `11;`, which ends the episode. A right sum is paid 1 and every
question costs a little, so that asking for what is needed and no more is best. Anything else ends the episode too.
Which number a letter has is fixed by the problem and the seed of the episode, and cannot be guessed from the prompt:
a policy that stops asking is right one time in twenty.
"""

from __future__ import annotations

import inspect
import random
import re
import string
from collections.abc import Sequence
from functools import cache
from typing import Any

from grposcope.core.errors import UserError
from grposcope.lab.tasks.base import Problem, Split, Task, Turn, is_heldout, options

_WHOLE, _DECIMAL = re.compile(r"\d{1,9}"), re.compile(r"\d?\.?\d{1,6}")
_QUESTION, _ANSWER = re.compile(r"\?([a-z]);?"), re.compile(r"(\d{1,3});?")


class _HiddenNumbers:
    """The numbers of the letters of an episode, and those that were asked for so far, in order."""

    def __init__(self, numbers: dict[str, int]):
        self.numbers = numbers
        self.asked: list[str] = []


class HiddenTable(Task):
    """Sums of `letters` letters out of ten; a question costs `cost`.

    size: problems for training; those held out are chosen by a hash of their text.
    """

    instruction = (
        "Find the sum. Ask for the number of a letter with ?b; and give the sum with 11; when you know all numbers"
    )
    turn_end = ";"
    form = "hidden_table[:key=value,…]"

    @classmethod
    def parse(cls, argument: str, reward: str | None = None) -> HiddenTable:
        """The task with the options `letters=2,cost=0.02,size=2000`."""
        named, names = options(argument, "hidden_table"), list(inspect.signature(cls).parameters)
        for key, text in named.items():
            if key not in names:
                raise UserError(f"hidden_table has no option {key!r}; its options are {', '.join(names)}")
            if not (_DECIMAL if key == "cost" else _WHOLE).fullmatch(text):
                kind = "number" if key == "cost" else "whole number"
                raise UserError(f"hidden_table: {key}={text} should be a {kind}")
        values: dict[str, Any] = {key: float(text) if key == "cost" else int(text) for key, text in named.items()}
        return cls(**values)

    def __init__(self, letters: int = 2, cost: float = 0.02, size: int = 2_000):
        if not 1 <= letters <= 4:
            raise UserError(f"hidden_table: letters={letters} is outside 1 … 4")
        if not 0 <= cost < 1:
            raise UserError(f"hidden_table: cost={cost:g} must be at least 0 and below 1")
        if size < 1:
            raise UserError(f"hidden_table: size={size} must be at least 1")
        self.letters, self.cost, self.size = letters, cost, size
        self.name = f"hidden_table:letters={letters},cost={cost:g}"
        self.max_turns = letters + 3
        self.max_tokens = 4 * self.max_turns + 4

    @cache  # noqa: B019 - a task lives as long as the process
    def problems(self, split: Split) -> Sequence[Problem]:
        """`size` problems for training and at most 200 held out; one sum may come several times, with other numbers."""
        wanted = self.size if split == "train" else min(self.size, 200)
        rng = random.Random(f"hidden_table/{self.letters}/{split}")
        made: list[Problem] = []
        while len(made) < wanted:
            prompt = "+".join(rng.choice(string.ascii_lowercase[:10]) for _ in range(self.letters)) + "="
            name = f"{prompt}{len(made)}"
            if is_heldout(name) == (split == "heldout") or rng.random() < 0.01:
                made.append(Problem(name, prompt))
        return tuple(made)

    def start(self, problem: Problem, seed: int) -> _HiddenNumbers:
        """The numbers 0 … 9 of the ten letters, drawn for this problem and seed."""
        rng = random.Random(f"{problem.id}/{seed}")
        return _HiddenNumbers({letter: rng.randrange(10) for letter in string.ascii_lowercase[:10]})

    def step(self, problem: Problem, state: _HiddenNumbers, said: str) -> Turn:
        """The number of the letter that was asked for, or the end of the episode."""
        if question := _QUESTION.fullmatch(said):
            letter = question[1]
            if letter not in state.numbers:
                return Turn(done=True, reward=-self.cost)
            state.asked.append(letter)
            return Turn(str(state.numbers[letter]), -self.cost)
        if answer := _ANSWER.fullmatch(said):
            return Turn(done=True, reward=float(int(answer[1]) == self.total(problem, state)))
        return Turn(done=True)

    def total(self, problem: Problem, state: _HiddenNumbers) -> int:
        """The sum of a problem in this state."""
        return sum(state.numbers[letter] for letter in problem.prompt.rstrip("=").split("+"))

    def anchor(self, state: _HiddenNumbers) -> str:
        """The letters that are known, whatever the order in which they were asked for, after a question mark."""
        return "?" + "".join(sorted({*state.asked}))

    def value(self, problem: Problem, state: _HiddenNumbers) -> float:
        """The reward of the best policy from here: it asks for every letter that it needs and does not know."""
        unknown = {*problem.prompt.rstrip("=").split("+")} - {*state.asked}
        return 1 - self.cost * len(unknown)

    def reward(self, problem: Problem, completion: str) -> float:
        """No completion can be graded without its episode."""
        raise UserError("hidden_table is graded by its environment; draw its rollouts with the turns of the task")
