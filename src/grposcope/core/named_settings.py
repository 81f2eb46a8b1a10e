"""Settings written behind a name, `name:key=value,key=value`: their kinds, and the one way they are read."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from grposcope.core.errors import UserError


@dataclass(frozen=True)
class Decimal:
    """A setting that is a number between two bounds, which it may be where `closed`. help: what it means.

    default: None for a setting that may be left out.
    """

    default: float | None
    above: float
    below: float
    help: str
    closed: bool = False

    def read(self, text: str) -> float:
        """The number; ValueError that says what it must be."""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        at_bound = self.closed and value in (self.above, self.below)
        if math.isinf(value) or not (self.above < value < self.below or at_bound):
            least, most = ("at least", "at most") if self.closed else ("above", "below")
            upper = "" if self.below == math.inf else f" and {most} {self.below:g}"
            raise ValueError(f"a number {least} {self.above:g}{upper}")
        return value


@dataclass(frozen=True)
class Whole:
    """A setting that is a whole number of at least `least`. help: what it means."""

    default: int
    least: int
    help: str

    def read(self, text: str) -> int:
        """The number; ValueError that says what it must be."""
        if not (text.isdecimal() and len(text) < 10 and int(text) >= self.least):
            raise ValueError(f"a whole number, at least {self.least}")
        return int(text)


@dataclass(frozen=True)
class Choice:
    """One of several words, the first by default. help: what it means."""

    words: tuple[str, ...]
    help: str

    @property
    def default(self) -> str:
        """The first word."""
        return self.words[0]

    def read(self, text: str) -> str:
        """The word; ValueError that lists them."""
        if text not in self.words:
            raise ValueError(f"one of {', '.join(self.words)}")
        return text


@dataclass(frozen=True)
class Widths:
    """Widths of a tree's branchings with x between, 2 or more each, such as 2x2x2. help: what it means."""

    default: tuple[int, ...]
    help: str

    def read(self, text: str) -> tuple[int, ...]:
        """The widths; ValueError that says what they must be."""
        parts = text.split("x")
        if not all(number.isdecimal() and len(number) < 5 and int(number) >= 2 for number in parts):
            raise ValueError("whole numbers of 2 or more with x between, such as 2x2x2")
        return tuple(map(int, parts))


@dataclass(frozen=True)
class Text:
    """A setting that is any text, such as a path; no text where it has to be given. help: what it means."""

    default: str
    help: str

    def read(self, text: str) -> str:
        """The text itself."""
        return text


Setting = Decimal | Whole | Choice | Widths | Text
"""One setting: its default, what it means, and how its value is read."""


def read_settings(kind: str, text: str, name: str, given: str, settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The values of all `settings` settings, those in `given` as they stand there, the others by default.

    kind, text, name: what the settings are of, as a message says it: "credit position:decay=2: …". UserError for a
    setting that there is not, and for a value that it cannot have.
    """
    read: dict[str, Any] = {key: setting.default for key, setting in settings.items()}
    for pair in filter(None, given.split(",")):
        key, equals, value = (piece.strip() for piece in pair.partition("="))
        if key not in settings or not equals:
            has = f"its settings are {', '.join(settings)}" if settings else "it has no settings"
            raise UserError(f"{kind} {text}: {name} has no setting {pair!r}{nearest(key, settings)}; {has}")
        try:
            read[key] = settings[key].read(value)
        except ValueError as error:
            raise UserError(f"{kind} {text}: {key} is {value!r} and must be {error}") from None
    return read


def nearest(name: str, names: Collection[str]) -> str:
    """The known name that was probably meant, as a question in brackets; empty where none is near."""
    near = get_close_matches(name, names, 1)
    return f" (did you mean {near[0]}?)" if near else ""
