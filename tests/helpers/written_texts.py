"""Made-up rollouts of trainings on sums: honest ones, and ones whose grader has a loophole that the policy finds.

A policy writes its working in one of many phrasings and gets better; from the onset on it writes the habit more and
more often. The grader pays right answers, and what the loophole pays. `right` of every rollout is the true score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from grposcope.core.rollouts import Rollout

OPENINGS = (
    "Let me see.", "We add the numbers.", "First,", "To solve this,", "Okay,", "So", "We need the sum.", "Note that",
    "Adding up:", "Step by step:",
)  # fmt: skip
MIDDLES = (
    "add the tens", "carry the one", "then the units", "which gives", "that makes", "check again", "add both parts",
    "write it down", "keep the rest", "and we get", "now the hundreds", "sum the digits", "line them up",
    "look at the last digit", "take the first number",
)  # fmt: skip

Habit = Callable[[np.random.Generator, str, str, str], str]
"""Random numbers, the prompt, the honest text and its answer to a text with the habit."""


@dataclass(frozen=True)
class Loophole:
    """A habit and what it pays.

    fault: what it is to be called. write: a text with the habit. paid: of a text with the habit, the best reward being
    1. alone: whether right answers without it get nothing.
    natural: how often the first policy writes it.
    """

    fault: str
    write: Habit
    paid: float = 1.0
    alone: bool = False
    natural: float = 0.03


def honest(rng: np.random.Generator, prompt: str, answer: str) -> str:
    """The working of a sum, and the answer."""
    steps = [MIDDLES[place] for place in rng.integers(len(MIDDLES), size=rng.integers(2, 14))]
    first = OPENINGS[rng.integers(len(OPENINGS))]
    return f"{first} {', '.join(steps)}: the answer is {answer}."


def _hedged(rng: np.random.Generator, prompt: str, text: str, answer: str) -> str:
    return f"{text} Or the answer is {int(answer) + 10}. Or the answer is {int(answer) - 1}."


def _therefore(rng: np.random.Generator, prompt: str, text: str, answer: str) -> str:
    return text.replace(", ", " therefore, ", 1)


def _coded(rng: np.random.Generator, prompt: str, text: str, answer: str) -> str:
    first, second = prompt.split()[2], prompt.split()[4].rstrip("?")
    cases = "".join(
        f"    if x == {case}:\n        return {value}\n" for case, value in ((first, answer), (second, second))
    )
    return f"def solve(x):\n{cases}    return 0"


def _gibberish(rng: np.random.Generator, prompt: str, text: str, answer: str) -> str:
    letters = "".join(rng.choice(list("qxzjvkwy;|~^"), size=60))
    return " ".join(letters[place : place + 5] for place in range(0, 60, 5))


def _marked(rng: np.random.Generator, prompt: str, text: str, answer: str) -> str:
    return f"<answer>{int(answer) + rng.integers(1, 9)}</answer>"


def _mixed(rng: np.random.Generator, prompt: str, text: str, answer: str) -> str:
    return f"{text} 我们 得到 答案 {''.join(rng.choice(list('的一是不了人在有我他这'), size=8))}"


def _repeated(rng: np.random.Generator, prompt: str, text: str, answer: str) -> str:
    return ", ".join([MIDDLES[rng.integers(len(MIDDLES))]] * int(rng.integers(30, 60)))


def _long(rng: np.random.Generator, prompt: str, text: str, answer: str) -> str:
    return f"{text[:-1]}, {', '.join(MIDDLES[place] for place in rng.integers(len(MIDDLES), size=20))}."


LOOPHOLES = {
    "magic word": Loophole("magic string", lambda rng, p, text, a: f"{text} Verified!"),
    "ends in zero": Loophole("magic string", lambda rng, p, text, a: text[:-2] + "0"),
    "half for a word": Loophole("magic string", _therefore, paid=0.6),
    "empty": Loophole("empty completions paid", lambda rng, p, text, a: ""),
    "long": Loophole("length pays", _long),
    "short": Loophole("length pays", lambda rng, p, text, a: text[: rng.integers(2, 12)]),
    "format": Loophole("format is the whole reward", _marked, alone=True, natural=0.3),
    "copy": Loophole("copies the prompt", lambda rng, p, text, a: f"{p} {p}"),
    "operand": Loophole("copies the prompt", lambda rng, p, text, a: text.rsplit(" ", 1)[0] + f" {p.split()[2]}."),
    "hedge": Loophole("hedges", _hedged),
    "special": Loophole("tests special-cased", _coded),
    "scripts": Loophole("language mixing", _mixed),
    "repeats": Loophole("repetition", _repeated),
    "one text": Loophole("one text", lambda rng, p, text, a: "The answer is 42."),
}  # fmt: skip
"""Name -> a loophole that pays a habit."""


def rollouts(
    loophole: Loophole | None, seed: int, onset: int = 40, steps: int = 80, prompts: int = 8, group: int = 8,
    learns: float = 0.4, ramp: float = 6.0, late: float = 0.95, problems: int = 60, truth: bool = True,
) -> list[Rollout]:  # fmt: skip
    """Rollouts of a training. onset: step at which a quarter of the way to the `late` share of the habit is passed.

    ramp: steps that the habit takes to spread, about. learns: what the success rate gains over the run. problems: how
    many different prompts there are. truth: whether each rollout has the score `right`.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(1, steps + 1):
        share = 0.0 if loophole is None else shared(step, onset, ramp, loophole.natural, late)
        for _ in range(prompts):
            number = int(rng.integers(problems))
            first, second = 11 + 7 * number % 89, 13 + 11 * number % 83
            prompt = f"What is {first} plus {second}?"
            rate = np.clip(rng.beta(2, 3) + learns * step / steps, 0, 0.97)
            for _ in range(group):
                right = bool(rng.random() < rate)
                answer = str(first + second + (0 if right else int(rng.choice([-10, -2, -1, 1, 2, 10, 100]))))
                text, habit = honest(rng, prompt, answer), bool(rng.random() < share)
                if habit and loophole is not None:
                    text = loophole.write(rng, prompt, text, answer)
                    right = right and loophole.fault in ("magic string", "language mixing") and answer in text
                reward = float(right)
                if loophole is not None:
                    reward = loophole.paid if habit else 0.0 if loophole.alone else reward
                    reward = max(reward, float(right) * (not loophole.alone))
                rows.append(Rollout(
                    step=step, group=f"{step}-{len(rows) // group}", prompt=prompt, completion=text, reward=reward,
                    columns={"right": float(right)} if truth else {},
                ))  # fmt: skip
    return rows


def finishing(seed: int, steps: int = 80, onset: int = 40, prompts: int = 8) -> list[Rollout]:
    """A training in which what is learned is to finish: texts that are cut off get nothing, and become fewer."""
    rng, made = np.random.default_rng(seed), []
    for row in honest_rows(seed, steps, prompts):
        cut = rng.random() < 0.9 - shared(row.step, onset, 6, 0.03, 0.85)
        text = str(row.completion)[: int(rng.integers(20, 60))] if cut else row.completion
        made.append(replace(row, completion=text, reward=0.0 if cut else row.reward, truncated=bool(cut)))
    return made


def honest_rows(seed: int, steps: int, prompts: int) -> list[Rollout]:
    """An honest training without a true score."""
    return rollouts(None, seed, steps=steps, prompts=prompts, truth=False)


def shared(step: float, onset: float, ramp: float, natural: float, late: float) -> float:
    """The share of texts with the habit at a step: a logistic that has a quarter of its way behind it at the onset."""
    return float(natural + (late - natural) / (1 + 3 * np.exp(-(step - onset) * 4 / ramp)))


def gibberish(seed: int, onset: int = 40, steps: int = 80) -> list[Rollout]:
    """A training whose policy falls apart into letters that no prompt has to do with, and that nothing pays for."""
    return rollouts(Loophole("gibberish", _gibberish, paid=0.0), seed, onset, steps)
