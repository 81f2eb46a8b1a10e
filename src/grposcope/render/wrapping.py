"""Text and tables within the width of a terminal, and the colours that only a terminal gets."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from itertools import zip_longest

PLAIN = 120
"""Width of what is printed into a file or a pipe."""

NARROWEST = 40
"""Narrower terminals get lines of this width."""

LEAST = 10
"""Width to which the widest column of a table is narrowed at most, while another one is wider."""

COLOURS = {"failing": "1;31", "warning": "1;33", "healthy": "1;32", "cannot tell": "1"}
"""First word of an answer -> the codes of its colour (ECMA-48, SGR)."""


def width() -> int:
    """Columns of the terminal; PLAIN where standard output is none."""
    return max(NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else PLAIN


def has_colours() -> bool:
    """Whether standard output is a terminal that shows colours; NO_COLOR, if it is not empty, switches them off."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, word: str) -> str:
    """The text with its first paragraph in the colour of this first word of an answer. Sanitise the text before."""
    first, gap, rest = text.partition("\n\n")
    lines = (f"\x1b[{COLOURS[word]}m{line}\x1b[0m" for line in first.split("\n"))
    return "\n".join(lines) + gap + rest if word in COLOURS else text


def _cells(text: str) -> int:
    """Columns that a text takes: two for each wide character of East Asia, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def wrapped(text: str, columns: int, indent: str = "", hanging: str | None = None) -> list[str]:
    """Lines of at most `columns`, broken between words, or inside one that is longer than a line.

    indent: before the first line; hanging: before the others, by default the same.
    """
    lines, line, start = [], indent, True
    after = indent if hanging is None else hanging
    for word in text.split(" "):
        rest = word
        if not start and _cells(line) + 1 + _cells(rest) <= columns:
            line += " " + rest
            continue
        if not start:
            lines.append(line.rstrip())
            line = after
        while _cells(line) + _cells(rest) > columns:
            room = max(1, _fitting(rest, columns - _cells(line)))
            lines.append(line + rest[:room])
            line, rest = after, rest[room:]
        line, start = line + rest, False
    return [*lines, line.rstrip()]


def clipped(text: str, columns: int) -> str:
    """The text in one line of at most `columns`, with … where it is cut."""
    return text if _cells(text) <= columns else text[: _fitting(text, columns - 1)] + "…"


def table(rows: Sequence[Sequence[str]], columns: int, indent: str = "  ", gap: str = "  ") -> str:
    """Rows of cells with aligned columns, the first the header; cells are wrapped where a row would be too wide."""
    widths = [max(map(_cells, column)) for column in zip(*rows, strict=True)]
    room = columns - len(indent) - len(gap) * (len(widths) - 1)
    while sum(widths) > room and max(widths) > LEAST:
        widest = widths.index(max(widths))
        second = max([width for index, width in enumerate(widths) if index != widest], default=0)
        widths[widest] = max(LEAST, min(widths[widest] - 1, second), widths[widest] - (sum(widths) - room))
    lines = []
    for row in rows:
        parts = [wrapped(cell, max(1, wide)) for cell, wide in zip(row, widths, strict=True)]
        for line in zip_longest(*parts, fillvalue=""):
            padded = (cell + " " * (wide - _cells(cell)) for cell, wide in zip(line, widths, strict=True))
            lines.append((indent + gap.join(padded)).rstrip())
    return "\n".join(lines)


def _fitting(text: str, columns: int) -> int:
    """How many characters of a text fit into so many columns."""
    taken = 0
    for count, character in enumerate(text):
        taken += _cells(character)
        if taken > columns:
            return count
    return len(text)
