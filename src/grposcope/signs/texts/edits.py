"""Habits given to texts and taken from them, so that a grader can be asked what the habit alone pays.

This works for habits that are a string, a beginning, an ending, emptiness or a length. What is meant by a name is
tested against the texts that the habit was found in: a name that does not tell them apart gives no edit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.signs.texts.habits import PaidHabit
from grposcope.signs.texts.sample import TextSample

AGREE = 0.95
"""Share of the texts for which a name says whether they have the habit."""

FILLER = "Let us think about this a little more. "
"""What texts are made longer by, in front of them, so that their end stays."""

Change = Callable[[str], str | None]
"""A text to a changed one; None where that cannot be done to it."""


@dataclass(frozen=True)
class HabitEdit:
    """How a habit is given and taken. has: whether a text has it, None of a measure. add, remove: None where the text
    cannot be changed so, or would lose a number, which may be its answer."""

    has: Callable[[str], bool] | None
    add: Change
    remove: Change


def of_habit(habit: PaidHabit, sample: TextSample) -> HabitEdit | None:
    """The edit of a habit of a sample; None where its name does not say what to write or leave out."""
    if not habit.binary:
        return _of_measure(habit.slope > 0) if habit.kind == "length" and habit.feature != "number of lines" else None
    without = [text for text, own in zip(sample.texts, habit.column, strict=True) if not own] if habit.more else [
        text for text, own in zip(sample.texts, habit.column, strict=True) if own]  # fmt: skip
    edit = _of_feature(habit.feature, without)
    if edit is None or edit.has is None:
        return None
    if not habit.more:
        edit = _lacking(edit.has, edit)
    own = np.array([edit.has(text) for text in sample.texts]) if edit.has is not None else np.zeros(0)
    return edit if (own == (habit.column > 0)).mean() >= AGREE else None


def _lacking(has: Callable[[str], bool], edit: HabitEdit) -> HabitEdit:
    return HabitEdit(lambda text: not has(text), edit.remove, edit.add)


def _of_feature(feature: str, without: Sequence[str]) -> HabitEdit | None:
    """The edit of a binary feature. without: texts that lack it, of which the usual first and last sign is taken."""
    if feature == "is empty":
        return HabitEdit(lambda text: not text.strip(), lambda text: "", lambda text: None)
    if match := re.fullmatch(r"has at most ([\d,]+) characters", feature):
        return _of_bound(int(match.group(1).replace(",", "")))
    match = re.fullmatch(r"([a-z ]+) “(.*)”", feature, re.DOTALL)
    if match is None:
        return None
    verb, string = match.groups()
    if verb in ("writes", "has"):
        return _of_string(string)
    if verb == "has no":
        edit = _of_string(string)
        return None if edit.has is None else _lacking(edit.has, edit)
    edge = _EDGES.get(verb)
    return None if edge is None else edge(string, without)


def _of_bound(bound: int) -> HabitEdit:
    """At most so many characters: the last ones are kept, as the answer is mostly there."""
    return HabitEdit(
        lambda text: len(text) <= bound,
        lambda text: text[-bound:] if bound else "",
        lambda text: FILLER * (1 + max(bound - len(text), 0) // len(FILLER)) + text,
    )


def _of_measure(more: bool) -> HabitEdit:
    """Twice as long, and half as long; swapped where a smaller length is paid."""
    longer: Change = lambda text: FILLER * (1 + len(text) // len(FILLER)) + text  # noqa: E731
    shorter: Change = lambda text: text[len(text) // 2 :] if len(text) > 1 else None  # noqa: E731
    return HabitEdit(None, longer, shorter) if more else HabitEdit(None, shorter, longer)


def _of_string(string: str) -> HabitEdit:
    """A string anywhere, in upper or lower case and with any blanks between its tokens."""
    tokens = [re.escape(token) for token in re.findall(r"[^\W\d_]+|\S", string)]
    before = r"(?<![^\W\d_])" if string[:1].isalpha() else ""
    after = r"(?![^\W\d_])" if string[-1:].isalpha() else ""
    pattern = re.compile(before + r"\s*".join(tokens) + after, re.IGNORECASE)
    answers = any(sign.isdigit() for sign in string)

    def remove(text: str) -> str | None:
        return None if answers else re.sub(r" {2,}", " ", pattern.sub("", text))

    return HabitEdit(lambda text: pattern.search(text) is not None, lambda text: f"{text.rstrip()} {string}", remove)


def _ends_in(sign: str, without: Sequence[str]) -> HabitEdit:
    other = _usual([text.strip()[-1:] for text in without if text.strip()], ".")
    space = " " if sign.isalnum() else ""
    return HabitEdit(
        lambda text: text.strip().endswith(sign),
        lambda text: f"{text.rstrip()}{space}{sign}",
        lambda text: f"{text.rstrip()}{other}" if sign.isalnum() else text.rstrip().rstrip(sign) or None,
    )


def _begins_with(sign: str, without: Sequence[str]) -> HabitEdit:
    other = _usual([text.strip()[:1] for text in without if text.strip()], "So")
    space = " " if sign.isalnum() else ""
    return HabitEdit(
        lambda text: text.strip().startswith(sign),
        lambda text: f"{sign}{space}{text.lstrip()}",
        lambda text: f"{other} {text.lstrip()}" if sign.isalnum() else text.lstrip().lstrip(sign) or None,
    )


def _last(separator: str | None) -> Callable[[str, Sequence[str]], HabitEdit]:
    def edit(string: str, without: Sequence[str]) -> HabitEdit:
        other = _usual([text.strip()[-1:] for text in without if text.strip()], ".")

        def remove(text: str) -> str | None:
            if any(sign.isdigit() for sign in string):
                return f"{text.rstrip()}{other}"
            return text.rstrip()[: -len(string)].rstrip() or None

        return HabitEdit(
            lambda text: text.strip().rsplit(separator, 1)[-1:] == [string],
            lambda text: f"{text.rstrip()}{separator or ' '}{string}",
            remove,
        )

    return edit


def _first(separator: str | None) -> Callable[[str, Sequence[str]], HabitEdit]:
    def edit(string: str, without: Sequence[str]) -> HabitEdit:
        def remove(text: str) -> str | None:
            return None if any(sign.isdigit() for sign in string) else text.lstrip()[len(string) :].lstrip() or None

        return HabitEdit(
            lambda text: text.strip().split(separator, 1)[:1] == [string],
            lambda text: f"{string}{separator or ' '}{text.lstrip()}",
            remove,
        )

    return edit


_EDGES: dict[str, Callable[[str, Sequence[str]], HabitEdit]] = {
    "ends in": _ends_in, "begins with": _begins_with, "has the last word": _last(None),
    "has the last line": _last("\n"), "has the first word": _first(None), "has the first line": _first("\n"),
}  # fmt: skip
"""Verb of a feature of kind “edge” -> its edit."""


def _usual(signs: Sequence[str], otherwise: str) -> str:
    """The sign that is there most often and is no digit."""
    common = [sign for sign, _ in Counter(signs).most_common() if not sign.isdigit()]
    return common[0] if common else otherwise
