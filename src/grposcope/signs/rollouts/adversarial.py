"""What a grader pays for answers that deserve nothing, or the same as before: asked for some prompts, as a table.

The best-paid completion of a prompt is put to it again with a space behind it, and to another prompt; an empty answer,
the prompt itself and all its answers at once are put to it in its place. A grader that fails on a batch of them
has given none of them a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.rollouts import Rollout, plain_text
from grposcope.core.run import Floats
from grposcope.signs.rollouts.evidence import Grader

PROMPTS = 32
"""Prompts that are asked about."""


@dataclass(frozen=True)
class _BestPaid:
    """A prompt with its best-paid text completion, its reward, and all that was answered to it."""

    row: Rollout
    text: str
    reward: float
    answers: tuple[str, ...]


@dataclass(frozen=True)
class _PaidAnswer:
    """What an answer of one kind is paid. mean: over `prompts`; like_best: of these, those paid as the best or more."""

    kind: str
    mean: float
    prompts: int
    like_best: int


def _best_paid(rows: Sequence[Rollout], most: int = PROMPTS) -> list[_BestPaid]:
    """The best-paid completion of each prompt, of the first prompts whose best is above the lowest reward of all."""
    by_prompt: dict[str, list[Rollout]] = {}
    for row in rows:
        if row.prompt is not None and isinstance(row.completion, str) and np.isfinite(row.reward) and not row.failed:
            by_prompt.setdefault(plain_text(row.prompt), []).append(row)
    lowest = min((row.reward for rows_of_prompt in by_prompt.values() for row in rows_of_prompt), default=0.0)
    scored = []
    for rows_of_prompt in by_prompt.values():
        best = max(rows_of_prompt, key=lambda row: row.reward)
        if best.reward > lowest and best.completion:
            answers = tuple(dict.fromkeys(str(row.completion) for row in rows_of_prompt))
            scored.append(_BestPaid(best, str(best.completion), best.reward, answers))
    return scored[:most]


Answers = Callable[[Sequence[_BestPaid], int], str]

KINDS: tuple[tuple[str, Answers], ...] = (
    ("its best-paid answer", lambda best, i: best[i].text),
    ("the same with a space behind it", lambda best, i: f"{best[i].text} "),
    ("nothing", lambda best, i: ""),
    ("the prompt itself", lambda best, i: plain_text(best[i].row.prompt or "")),
    ("the best-paid answer to another prompt", lambda best, i: best[(i + 1) % len(best)].text),
    ("all of its answers at once", lambda best, i: "\n".join(best[i].answers)),
)
"""Kind of an answer -> its text for each prompt."""


def asked(grader: Grader, rows: Sequence[Rollout]) -> tuple[_PaidAnswer, ...]:
    """What each of KINDS is paid; empty where fewer than two prompts have a paid answer."""
    best = _best_paid(rows)
    if len(best) < 2:
        return ()
    scored = []
    for kind, text in KINDS:
        rewards = _rewards(grader, [(row, text(best, i)) for i, row in enumerate(best)])
        finite = np.isfinite(rewards)
        paid = rewards[finite]
        own = np.array([row.reward for row in best])[finite]
        mean = float(paid.mean()) if len(paid) else float("nan")
        scored.append(_PaidAnswer(kind, mean, len(paid), int((paid >= own - 1e-6).sum())))
    return tuple(scored)


def _rewards(grader: Grader, asked_for: Sequence[tuple[_BestPaid, str]]) -> Floats:
    try:
        rewards = grader([asked.row.prompt or "" for asked, _ in asked_for], [text for _, text in asked_for])
    except Exception:  # the user's function, on texts that it may never have seen
        return np.full(len(asked_for), np.nan)
    return np.array([np.nan if value is None else float(value) for value in rewards])


DECORATIONS: tuple[Callable[[str, int], str], ...] = (
    lambda text, number: text + "\n" * number, lambda text, number: "\n" * number + text,
    lambda text, number: f"{text} {'.' * number}",
)  # fmt: skip
"""What makes a text new to a cache, in so many ways, and leaves what it says."""


def cached(grader: Grader, rows: Sequence[Rollout]) -> tuple[int, int]:
    """(prompts that show it, prompts at which it would show) that rewards are kept by completion, whatever the prompt.

    A new text is graded under another prompt first and then under its own: a cache gives the reward of the other
    prompt again, where a further new text under its own prompt alone gets what the completion got.
    """
    best = _best_paid(rows)
    if len(best) < 2:
        return 0, 0
    shown, tested = np.zeros(len(best), bool), np.zeros(len(best), bool)
    others = [_BestPaid(best[(i + 1) % len(best)].row, attack.text, attack.reward, ()) for i, attack in enumerate(best)]
    own = np.array([attack.reward for attack in best])
    for decorate in DECORATIONS:
        alone = _rewards(grader, [(attack, decorate(attack.text, 1)) for attack in best])
        other = _rewards(grader, [(attack, decorate(attack.text, 2)) for attack in others])
        again = _rewards(grader, [(attack, decorate(attack.text, 2)) for attack in best])
        stable = np.isclose(alone, own, atol=1e-5) & ~np.isclose(other, alone, atol=1e-5)
        tested |= stable
        shown |= stable & np.isclose(again, other, atol=1e-5)
    return int(shown.sum()), int(tested.sum())
