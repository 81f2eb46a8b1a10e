"""An answer as text for the terminal, and plots drawn with characters."""

from __future__ import annotations

import re
import shutil
import sys

import plotext

from grposcope.core.answer import Answer, Table
from grposcope.core.text import table, visible

LONGEST = 4000
"""Characters of a paragraph or a cell."""

FOLDED = 12
"""Rows that are printed of a table which the page shows folded."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def text(answer: Answer) -> str:
    """The answer in words, then its numbers and its tables; figures are for the page."""
    parts = [visible(paragraph, LONGEST) for paragraph in answer.paragraphs]
    if answer.numbers:
        rows = [(one.name, one.shown, one.detail) for one in answer.numbers]
        parts.append(table([tuple(visible(cell, LONGEST) for cell in row) for row in rows], indent="  "))
    parts += [of_table(one) for one in answer.tables]
    return "\n\n".join(parts)


def of_table(one: Table) -> str:
    """A table with its title above and its caption below; of a folded one the first rows, as many as a screen shows."""
    shown = one.rows[:FOLDED] if one.folded else one.rows
    rows = [tuple(visible(cell, LONGEST) for cell in row) for row in (one.header, *shown)]
    left = len(one.rows) - len(shown)
    more = f"  … {left:,} further rows are on the page" if left else ""
    return "\n".join(part for part in (one.title, table(rows, indent="  "), more, one.caption) if part)


def plot_text(title: str, xlabel: str) -> str:
    """Text of the current plotext figure, at most 100 columns wide, without colours unless on a terminal."""
    plotext.plot_size(min(shutil.get_terminal_size().columns, 100), 18)
    plotext.theme("clear")
    plotext.title(title)
    plotext.xlabel(xlabel)
    text = str(plotext.build())
    return text if sys.stdout.isatty() else _COLOUR.sub("", text)
