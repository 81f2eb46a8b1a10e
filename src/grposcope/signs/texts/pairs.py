"""Which texts to read: pairs that differ in what was found, of one group, or an early and a late one of a prompt."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from grposcope.core.rollouts import Bools, Floats
from grposcope.signs.texts.habits import tenths
from grposcope.signs.texts.sample import TextSample

COUNT = 5

COMPARED = 600
"""Characters of each text that are compared, around the first difference."""

_PIECES = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True)
class Span:
    """A piece of a text, and whether the other text of the pair lacks it."""

    text: str
    differs: bool


@dataclass(frozen=True)
class TextPair:
    """Two texts for a prompt. how: “same group”, or “early and late”. step, reward and spans of each: `without` lacks
    what was found, `having` has it. Places: of the rollouts in the sample."""

    prompt: str
    how: Literal["same group", "early and late"]
    places: tuple[int, int]
    steps: tuple[int, int]
    rewards: tuple[float, float]
    without: tuple[Span, ...]
    having: tuple[Span, ...]


def to_read(sample: TextSample, column: Floats, count: int = COUNT) -> tuple[TextPair, ...]:
    """The pairs to read of what a column (N,) shows: of the latest groups with both, then early and late twins."""
    has = _high(column)
    pairs = [(first, second, "same group") for first, second in _siblings(sample, has, count)]
    seen = {sample.prompt[first] for first, _, _ in pairs}
    twins = [(first, second, "early and late") for first, second in _twins(sample, has)
             if sample.prompt[first] not in seen]  # fmt: skip
    every = [*pairs, *twins[: max(count - len(pairs), 0)]]
    return tuple(_pair(sample, first, second, how) for first, second, how in every)  # type: ignore[arg-type]


def _high(column: Floats) -> Bools:
    """Which texts have what a column shows: 1, or for a measure more than the middle one."""
    values = np.unique(column)
    if len(values) <= 2:
        return np.asarray(column >= values[-1]) & (len(values) > 1)
    return np.asarray(column > np.median(column))


def _siblings(sample: TextSample, has: Bools, count: int) -> list[tuple[int, int]]:
    """Of the latest groups with both: the text without that has the lowest reward, and the one with the highest; one
    pair of a prompt before two."""
    order = np.lexsort((np.arange(len(sample)), sample.group))
    starts = np.flatnonzero(np.diff(sample.group[order], prepend=-1))
    groups = [rows for rows in np.split(order, starts[1:]) if 0 < has[rows].sum() < len(rows)]
    groups.sort(key=lambda rows: int(sample.step[rows[0]]), reverse=True)
    reward = np.nan_to_num(sample.reward, nan=-np.inf)
    prompts: set[int] = set()
    first: list[tuple[int, int]] = []
    rest: list[tuple[int, int]] = []
    for rows in groups:
        without, having = rows[~has[rows]], rows[has[rows]]
        pair = int(without[np.argmin(reward[without])]), int(having[np.argmax(reward[having])])
        (rest if int(sample.prompt[pair[0]]) in prompts else first).append(pair)
        prompts.add(int(sample.prompt[pair[0]]))
    return [*first, *rest][:count]


def _twins(sample: TextSample, has: Bools) -> list[tuple[int, int]]:
    """Early texts without and late texts with, of one prompt each."""
    early, late = tenths(sample)
    if not sample.stepped:
        return []
    before = {int(sample.prompt[row]): int(row) for row in np.flatnonzero(early & ~has)}
    after = {int(sample.prompt[row]): int(row) for row in np.flatnonzero(late & has)}
    return [(before[prompt], after[prompt]) for prompt in after if prompt in before]


def _pair(sample: TextSample, first: int, second: int, how: Literal["same group", "early and late"]) -> TextPair:
    without, having = spans(sample.texts[first], sample.texts[second])
    return TextPair(
        sample.prompts[first], how, (first, second), (int(sample.step[first]), int(sample.step[second])),
        (float(sample.reward[first]), float(sample.reward[second])), without, having,
    )  # fmt: skip


def spans(first: str, second: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Two texts in pieces, those that the other lacks marked; of long texts COMPARED characters around the first
    difference, and the ends."""
    first, second = _window(first, second)
    a, b = _PIECES.findall(first), _PIECES.findall(second)
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    unmatched: list[Span] = []
    right: list[Span] = []
    for what, i, j, k, m in matcher.get_opcodes():
        if j > i:
            unmatched.append(Span("".join(a[i:j]), what != "equal"))
        if m > k:
            right.append(Span("".join(b[k:m]), what != "equal"))
    return _joined(unmatched), _joined(right)


def _joined(spans: list[Span]) -> tuple[Span, ...]:
    """Spans of which neighbours that differ are one, blanks between them among them."""
    made: list[Span] = []
    for index, span in enumerate(spans):
        blank = not span.text.strip() and 0 < index < len(spans) - 1 and made[-1].differs and spans[index + 1].differs
        own = Span(span.text, span.differs or blank)
        if made and made[-1].differs == own.differs:
            made[-1] = Span(made[-1].text + own.text, own.differs)
        else:
            made.append(own)
    return tuple(made)


def _window(first: str, second: str) -> tuple[str, str]:
    same = next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
    begin = max(0, same - COMPARED // 4)
    return _cut(first, begin), _cut(second, begin)


def _cut(text: str, begin: int) -> str:
    before = "…" if begin else ""
    if len(text) - begin <= COMPARED:
        return before + text[begin:]
    return f"{before}{text[begin : begin + COMPARED * 3 // 4]} … {text[-COMPARED // 4 :]}"
