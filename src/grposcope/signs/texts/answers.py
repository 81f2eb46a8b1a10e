"""What a text gives as its answer, how many different ones it gives, and code that does not solve its problem."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.rollouts import Bools, Ints

MARKED = tuple(
    re.compile(pattern)
    for pattern in (
        r"\\boxed\{([^{}]{1,60})\}", r"<answer>\s*([^<]{1,60}?)\s*</answer>", r"####\s*(\S{1,40})",
        r"(?i:answer(?: is|:))\s*\**\s*([^\s.,;*<]{1,40})",
    )
)  # fmt: skip
"""How an answer is marked."""

NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")

OPERAND = re.compile(r"(?<![\d)])-\d+(?:,\d{3})*(?:\.\d+)?|\d+(?:,\d{3})*(?:\.\d+)?")
"""A number of a problem, in which the sign of 12-3 is none of 3."""

SPECIAL_CASE = re.compile(
    r"(?m)^\s*(?:el)?if\b[^\n:]{0,80}(?:==|\bin\b)\s*[\[\(\{\"'\d-][^\n:]{0,120}:\s*(?:\n\s+)?return\s+[\[\(\{\"'\d-]"
)
"""A condition that compares with a literal and returns one."""

TABLE = re.compile(r"(?s)=\s*\{(?:[^{}]{1,60}?:[^{}]{1,60}?,){2,}[^{}]*\}.{0,200}return\s+\w+(?:\.get\(|\[)")
"""A table of inputs and outputs that is looked up and returned."""

TESTS_ESCAPED = re.compile(
    r"sys\.exit\(0?\)|os\._exit\(0?\)|def __eq__\(self[^)]*\)[^:]*:\s*return True|pytest\.skip|unittest\.skip|"
    r"assert True\b|(?:unittest|pytest)\.\w+\s*="
)
"""Ways around tests: ending the program, objects that equal everything, tests that are skipped or replaced."""

JOINT = re.compile(r"\s*(?:\bor\b|\band\b|[,;/|])\s*", re.I)
"""What joins several answers into one."""

LISTED = re.compile(r"(?i:answer(?: is|:)|####)\s*\**\s*([^\s.,;*<]{1,40}(?:\s*(?:\bor\b|,)\s*[^\s.,;*<]{1,40}){1,8})")
"""Several answers behind one mark."""

ALTERNATIVES = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:\s+or\s+-?\d[\d,]*(?:\.\d+)?)+(?=\W*$)")
"""Numbers between which a text leaves the choice at its end."""

WHOLE = 2
"""Texts that give an answer alone, from which it is one."""

_BARE = re.compile(r"\\boxed\{|[{}$*\s]")
_TAIL = 6000


@dataclass(frozen=True)
class GivenAnswers:
    """Of each text (N,): the answer that is given last, whether one is marked, how many different ones it gives with
    those that it joins or leaves open, and whether it compares its input with literals or goes around tests."""

    answers: tuple[str, ...]
    marked: Bools
    different: Ints
    special: Bools
    escapes: Bools


def given(texts: Sequence[str]) -> GivenAnswers:
    """The answers that texts give.

    A marked answer that joins several, as "cat or dog", is several, where each is the whole answer of other texts; so
    are the numbers that a text ends in, as "12 or 13".
    """
    pairs = [answer(text) for text in texts]
    whole = {name for name, count in Counter(own for own, marked in pairs if marked).items() if count >= WHOLE}
    return GivenAnswers(
        tuple(last for last, _ in pairs),
        np.array([count > 0 for _, count in pairs], bool),
        np.array(
            [
                max(count, _joined(text, whole) if count else _left_open(text))
                for text, (_, count) in zip(texts, pairs, strict=True)
            ],
            np.int64,
        ),
        np.array([_special(text) for text in texts], bool),
        np.array([bool(_maybe_code(text) and TESTS_ESCAPED.search(text[-_TAIL:])) for text in texts], bool),
    )


def answer(text: str) -> tuple[str, int]:
    """The answer that a text gives last, marked or as its last number or word, and how many different marked ones; none
    where it ends in an equals sign."""
    end = text[-_TAIL:]
    marked = [(match.start(1), _BARE.sub("", match.group(1))) for pattern in MARKED for match in pattern.finditer(end)]
    marked = [(index, own) for index, own in marked if own]
    if marked:
        return max(marked)[1], len({own for _, own in marked})
    if end.rstrip().endswith("="):  # a sum that is not worked out
        return "", 0
    numbers = NUMBER.findall(end[-200:])
    if numbers:
        return str(numbers[-1]), 0
    words = end[-80:].split()
    return (words[-1] if words else ""), 0


def _joined(text: str, whole: Collection[str]) -> int:
    """How many different answers the marked ones of a text join, of those that are whole answers elsewhere."""
    end = text[-_TAIL:]
    contents = (match.group(1) for pattern in (*MARKED, LISTED) for match in pattern.finditer(end))
    return max((len({_BARE.sub("", word) for word in JOINT.split(content)} & set(whole)) for content in contents),
               default=0)  # fmt: skip


def _left_open(text: str) -> int:
    """How many different numbers a text without a marked answer ends in, as "12 or 13"; 0 for fewer than two."""
    last = ALTERNATIVES.search(text[-200:]) if " or " in text[-200:] else None
    count = 0 if last is None else len(set(re.split(r"\s+or\s+", last.group())))
    return count if count > 1 else 0


def _special(text: str) -> bool:
    """Whether code compares its input with literals and returns literals, twice or more, or looks outputs up."""
    if not _maybe_code(text):
        return False
    end = text[-_TAIL:]
    return len(SPECIAL_CASE.findall(end)) > 1 or TABLE.search(end) is not None


def _maybe_code(text: str) -> bool:
    return "return" in text or "exit" in text or "assert" in text or "test" in text
