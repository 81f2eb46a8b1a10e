"""An answer as text for the terminal, and plots drawn with characters."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence

import plotext

from grposcope.core.answer import Answer, Table
from grposcope.core.text import table, visible
from grposcope.render import wrapping

LONGEST = 4000
"""Characters of a paragraph or a cell."""

FOLDED = 12
"""Rows that are printed of a table which the page shows folded."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def text(answer: Answer, width: int | None = None, whole: bool = False) -> str:
    """The answer in words, then its numbers and its tables; figures are for the page.

    width: that no line exceeds; None for the width of the terminal, and in a file or a pipe for lines as long as they
    are. whole: print all rows of tables that the page shows folded.
    """
    if width is None and sys.stdout.isatty():
        width = wrapping.width()
    parts = [_paragraph(visible(paragraph, LONGEST), width) for paragraph in answer.paragraphs]
    if answer.numbers:
        parts.append(_rows([(number.name, number.shown, number.detail) for number in answer.numbers], width))
    parts += [_of_table(table, width, whole) for table in answer.tables]
    return "\n\n".join(parts)


def _of_table(table: Table, width: int | None = None, whole: bool = False) -> str:
    """A table with its title above and its caption below.

    Of a folded one the first rows, as many as a screen shows, unless the `whole` is wanted.
    """
    shown = table.rows[:FOLDED] if table.folded and not whole else table.rows
    unshown = len(table.rows) - len(shown)
    more = f"  … {unshown:,} more row{'s' * (unshown > 1)} on the page and in the JSON document" if unshown else ""
    parts = (table.title, _rows((table.header, *shown), width), more, _paragraph(table.caption, width))
    return "\n".join(block for block in parts if block)


def screen(
    head: Sequence[str],
    middle: Sequence[Sequence[Sequence[str]]],
    tail: Sequence[str],
    more: str,
    width: int,
    most: int,
) -> str:
    """What fits on a screen of `most` lines: the head, as much of the middle as there is room for, and the tail.

    head: paragraphs, the first set apart from the others. middle: groups of blocks of lines, the most important first;
    in a group the first line of each block is kept before the further lines of any. Lines that begin with spaces are
    indented by them; a no-break space is printed as a space at which no line ends. tail: a line each, cut at the width.
    more: the last line, which says where the rest is; {left} in it becomes the number of blocks for which there was no
    room, in words.
    """
    first, *others = [_paragraph(visible(paragraph, LONGEST), width) for paragraph in head]
    top = "\n".join([first, *(["", *others] if others else [])]).split("\n")
    bottom = [wrapping.clipped(visible(line, LONGEST), width) for line in tail]
    room = most - len(top) - len(bottom) - 3  # two blank lines, and the last line
    shown: list[str] = []
    remaining = 0
    for group in middle:
        fitting = _kept([[_indented(visible(line, LONGEST), width) for line in block] for block in group], room)
        remaining += len(group) - len(fitting)
        shown += [line.replace("\u00a0", " ") for block in fitting for line in block]
        room -= sum(map(len, fitting))
    last = wrapping.clipped(
        more.format(left=f"{remaining} more remark{'s' * (remaining > 1)}, " if remaining else ""), width
    )
    return "\n".join([*top, *(["", *shown] if shown else []), "", *bottom, last])


def _kept(blocks: Sequence[Sequence[list[str]]], room: int) -> list[list[str]]:
    """The blocks that have room, each a list of lines; the first part of each comes before the others of any."""
    fitting: list[list[str]] = []
    for begin, *_ in blocks:
        if len(begin) > room:
            break
        fitting.append(begin)
        room -= len(begin)
    for index, (_, *rest) in enumerate(blocks[: len(fitting)]):
        lines = [line for row in rest for line in row]
        if len(lines) <= room:
            fitting[index] = fitting[index] + lines
            room -= len(lines)
    return fitting


def _indented(text: str, width: int) -> list[str]:
    indent = text[: len(text) - len(text.lstrip(" "))]
    return wrapping.wrapped(text.lstrip(" "), width, indent, indent + "  ")


def _paragraph(text: str, width: int | None) -> str:
    return text if width is None else "\n".join(wrapping.wrapped(text, width))


def _rows(rows: Sequence[Sequence[str]], width: int | None) -> str:
    shown = [tuple(visible(cell, LONGEST) for cell in row) for row in rows]
    return table(shown, indent="  ") if width is None else wrapping.table(shown, width)


def plot_text(title: str, xlabel: str) -> str:
    """Text of the current plotext figure, at most 100 columns wide, without colours unless on a terminal."""
    plotext.plot_size(min(shutil.get_terminal_size().columns, 100), 18)
    plotext.theme("clear")
    plotext.title(title)
    plotext.xlabel(xlabel)
    text = str(plotext.build())
    return text if sys.stdout.isatty() else _COLOUR.sub("", text)
