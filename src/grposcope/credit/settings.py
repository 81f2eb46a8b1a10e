"""Kinds of settings that a source of credit may have, each read from the text after `key=`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Decimal:
    """A number strictly between two bounds. help: what it means."""

    default: float
    above: float
    below: float
    help: str

    def read(self, text: str) -> float:
        """The number; ValueError that says what it must be."""
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not self.above < value < self.below:
            raise ValueError(f"a number above {self.above:g} and below {self.below:g}")
        return value


@dataclass(frozen=True)
class Whole:
    """A whole number of at least `least`. help: what it means."""

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
        if not all(part.isdecimal() and len(part) < 5 and int(part) >= 2 for part in parts):
            raise ValueError("whole numbers of 2 or more with x between, such as 2x2x2")
        return tuple(map(int, parts))


Setting = Decimal | Whole | Choice | Widths
"""A setting: `default`, `help`, and `read`, which makes a value of a text or raises ValueError."""
