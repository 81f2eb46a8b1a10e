"""Texts whose marked answer is the one that the data set has beside the prompt, and what they are paid."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from grposcope.core.finding import Finding, Sign, fact
from grposcope.core.rollouts import Rollout
from grposcope.core.text import visible
from grposcope.signs.answers import pays_for_answers
from grposcope.signs.texts import answers
from grposcope.signs.texts.sample import is_readable, written

REFERENCES = (
    "answer", "solution", "ground_truth", "gold", "gold_answer", "label", "target", "reference", "reference_answer",
    "final_answer", "gts",
)  # fmt: skip
"""Columns of a data set that have the right answer, of which the first that is there is taken."""

FEW = 20
"""Right texts below which nothing is said."""

UNPAID = 0.95
"""Share of the right texts that have the least score there is, from which on they are not paid."""

FOLLOWS = ("never paid", "starved", "empty steps", "zero loss", "no learning", "constant reward", "no baseline")
"""Faults that follow where right answers are not paid."""

REMEDY = (
    "grade one right text by hand with its row of the data set, and print what the grader takes for its answer: give "
    "the rubric the parser of the marks that the prompt asks for, and the answer in the form that it compares"
)

_LAST = re.compile(r"####\s*(.+?)\s*$", re.S)
_SIGNS = re.compile(r"[\s$,%*\\{}]|\\text|\.0*$")


def unpaid(rows: Sequence[Rollout]) -> Finding | None:
    """That texts which end in the right answer have the least score of all, by the score of answers where there is one,
    else by the reward; None where it is not so, or where fewer than FEW are known to be right."""
    right = [row for row in rows if is_readable(row) and not row.dropped and not row.failed and _is_right(row)]
    for name in _scores(rows):
        scores = [_score(row, name) for row in right]
        every = [value for row in rows if math.isfinite(value := _score(row, name))]
        if len(scores) < FEW or not every:
            continue
        least = sum(value <= min(every) for value in scores)
        if least < UNPAID * len(scores):
            return None
        if min(every) == max(every) > 0:
            return None  # all are paid alike, and the right ones with them
        called = visible(name, 40) if name else "the reward"
        of_all = f", as {'every' if min(every) == max(every) else 'the least'} text has"
        because = (
            f"{least:,} of {len(scores):,} texts that mark the answer of the data set as theirs have {called} = "
            f"{min(every):g}{of_all}: the grader does not find the answer in them, or asks for something else first"
        )
        first = next(row for row in right if _score(row, name) <= min(every))
        evidence = (Sign(f"right texts with {called} = {min(every):g}", float(least), where=first.where),)
        brief = f"{least:,} of {len(scores):,} right answers are not paid"
        return fact(True, because, evidence, fault="right answers unpaid", brief=brief,
                    explains=FOLLOWS, remedy=REMEDY)  # fmt: skip
    return None


def _scores(rows: Sequence[Rollout]) -> Iterator[str]:
    """Names of the rewards that pay for right answers; the empty one, of the whole reward, where there is none."""
    names = dict.fromkeys(name for row in rows for name in row.rewards if pays_for_answers(name))
    yield from names or ("",)


def _score(row: Rollout, name: str) -> float:
    return row.rewards.get(name, math.nan) if name else row.reward


def _is_right(row: Rollout) -> bool:
    """Whether the answer that a text marks last is the one of the data set, as a number where both are."""
    reference = next((row.columns[name] for name in REFERENCES if row.columns.get(name) not in (None, "")), None)
    if reference is None or isinstance(reference, list | dict) or row.completion is None:
        return False
    due = str(reference)
    due = match[1] if (match := _LAST.search(due)) else due
    last, marked = answers.answer(written(row.completion))
    return bool(marked) and _plain(last) == _plain(due) != ""


def _plain(answer: str) -> str:
    """An answer without signs that graders leave out, a number in one form."""
    bare = _SIGNS.sub("", answer.strip().rstrip(".")).casefold()
    try:
        return f"{float(bare):.10g}"
    except ValueError:
        return bare
