"""Tables as text: cells between bars, as a notebook's table is pasted into an issue, or columns that line up by spaces.

    Step | Training Loss | reward | rewards / format_reward / mean          step  loss  reward  clipped_ratio
    -- | -- | -- | --                                                       1     0     0.2     1.0
    1 | 0.000000 | 0.250000 | 0.100000                                      2     0     0.3     1.0

Text around a table is passed over. Of several tables that have a reward, the one with the most cells is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grposcope.logs.columns import ColumnBuilder, RawLog
from grposcope.logs.formats.console import clean, printed_number
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile, first_few
from grposcope.logs.hints import Hints

FEWEST_COLUMNS = 3
"""Columns of a table without bars: two words and two numbers may be anything."""

FEWEST_ROWS = 2
"""Rows of numbers that a table without bars has."""

ABSENT = ("", "no log", "-", "–", "—", "n/a")
"""Cells without a value, in lower case."""

_RULE = re.compile(r"[\s|:+-]*-[\s|:+-]*")
_NAME = re.compile(r"[A-Za-z_][\w ./()%-]*")


@dataclass
class _TextTable:
    """Names of the columns, the rows below them with their lines, and lines of another number of cells."""

    names: list[str]
    rows: list[tuple[int, list[str]]]
    odd: list[int]

    @property
    def has_reward(self) -> bool:
        """Whether a column is named for a reward, and there is a row below it."""
        return any("reward" in name.lower() for name in self.names) and bool(self.rows)


def _recognises(file: LogFile) -> bool:
    """Whether the beginning of a text has such a table with a column of a reward."""
    if file.shape != "text":
        return False
    lines = file.head.decode("utf-8", "replace").split("\n")
    return any(table.has_reward for table in _tables(enumerate(lines, 1)))


def _read(file: LogFile, hints: Hints) -> RawLog:
    """The rows of the largest table with a reward; lines of another number of cells are left out with a note."""
    found = [table for table in _tables((line, text) for line, text, _ in file.lines()) if table.has_reward]
    table = max(found, key=lambda table: len(table.names) * len(table.rows))
    notes = file.notes
    if len(found) > 1:
        notes.append(f"{len(found)} tables have rewards; the one with the most cells was read")
    if table.odd:
        notes.append(f"{len(table.odd)} lines with another number of cells than {len(table.names)} were left out: "
                     f"{first_few(table.odd)}")  # fmt: skip
    builder = ColumnBuilder()
    for line, cells in table.rows:
        values = {
            name: text if (value := printed_number(text)) is None else value
            for name, text in zip(table.names, cells, strict=True)
            if text.lower() not in ABSENT
        }
        builder.row(line, values)
    return RawLog(file.path, builder, notes=notes)


def _tables(lines: Iterator[tuple[int, str]]) -> Iterator[_TextTable]:
    """Every table of a text, by its numbered lines."""
    header: list[str] = []
    table: _TextTable | None = None
    ruled = False
    for line, text in lines:
        text = clean(text).strip()
        cells = _cells(text)
        if _RULE.fullmatch(text) and "|" in text:
            ruled = bool(header)
            continue
        if table is not None and len(cells) == len(table.names) and _numeric(cells):
            table.rows.append((line, cells))
            continue
        if table is not None and cells and "|" in text and printed_number(cells[0]) is not None:
            table.odd.append(line)
            continue
        if table is not None:
            yield table
            table = None
        if header and len(cells) == len(header) and _numeric(cells) and (ruled or "|" not in text):
            table = _TextTable(_names(header), [(line, cells)], [])
            header, ruled = [], False
            continue
        header, ruled = (cells, False) if _is_header(cells, "|" in text) else ([], False)
    if table is not None:
        yield table


def _cells(text: str) -> list[str]:
    """The cells of a line: between bars, else between spaces."""
    if "|" in text:
        return [cell.strip().strip("*`") for cell in text.removeprefix("|").removesuffix("|").split("|")]
    return text.split()


def _is_header(cells: Sequence[str], bars: bool) -> bool:
    """Whether all cells are names; without bars a table has FEWEST_COLUMNS, of which the first counts."""
    if len(cells) < (2 if bars else FEWEST_COLUMNS) or not all(_NAME.fullmatch(cell) for cell in cells):
        return False
    return bars or cells[0].lower() in ("step", "steps", "iter", "iteration", "epoch", "update", "#")


def _numeric(cells: Sequence[str]) -> bool:
    """Whether the first cell is a number and the others are numbers, or have none."""
    absent = (printed_number(cell) is not None or cell.lower() in ABSENT for cell in cells)
    return printed_number(cells[0]) is not None and all(absent)


def _names(header: Sequence[str]) -> list[str]:
    """The names of the columns as a log has them: a notebook's table puts spaces around the slashes of keys."""
    names = [re.sub(r" */ *", "/", name) for name in header]
    names[0] = "step" if names[0].lower() == "step" else names[0]
    return [name if names.index(name) == k else f"{name} ({k + 1})" for k, name in enumerate(names)]


KIND = LogKind(_read, file=_recognises)
