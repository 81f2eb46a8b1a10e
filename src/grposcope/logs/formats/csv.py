"""CSV and TSV files with a header, among them charts exported from the W&B page."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import WRITTEN_NAN
from grposcope.core.text import visible
from grposcope.logs.columns import RUNS, ColumnBuilder, RawLog
from grposcope.logs.formats.console import printed_number
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile, first_few
from grposcope.logs.hints import Hints, UndecidedError
from grposcope.logs.text_numbers import written_number

DELIMITERS = ",\t;"
"""Characters between fields, the likeliest first."""

TOGETHER = 2048
"""Number of rows that are converted at a time."""


def _recognises(file: LogFile) -> bool:
    """Whether the first two lines of a text have the same number of fields, with commas, tabs or semicolons between."""
    lines = [line for line in file.head.decode("utf-8", "replace").split("\n")[:3] if line.strip()]
    if file.shape != "text" or len(lines) < 2:
        return False
    try:
        counts = [[len(cells) for cells in csv.reader(lines[:2], delimiter=mark)] for mark in DELIMITERS]
    except csv.Error:
        return False
    return any(len(count) == 2 and count[0] == count[1] > 1 for count in counts)


def header_alone(file: LogFile) -> list[str]:
    """The names in a text of one line that is a header; empty for other texts."""
    lines = [line for line in file.head.decode("utf-8", "replace").split("\n")[:3] if line.strip()]
    if file.shape != "text" or len(lines) != 1:
        return []
    names = [name.strip() for name in re.split("[,\t;]", lines[0])]
    whole = len(names) > 1 and all(re.fullmatch(r"[A-Za-z_][\w/.@-]*", name) for name in names)
    return names if whole else []


def _read(file: LogFile, hints: Hints) -> RawLog:
    """The rows of the file; lines with another number of fields than the header are left out with a note."""
    builder = ColumnBuilder()
    delimiter = _delimiter(file)
    semicolons = delimiter == ";"
    rows = _cells(file, delimiter)
    _, header = next(rows, (0, []))
    names = [name.strip() for name in header]
    chart = _exported(file.path, names, hints.run)
    if chart is not None:
        names = list(chart.values())
    if len(set(names)) < len(names) or not all(names):
        names = [name or f"column {k + 1}" for k, name in enumerate(names)]
        names = [name if names.index(name) == k else f"{name} ({k + 1})" for k, name in enumerate(names)]
    odd: list[int] = []
    batch: list[tuple[int, list[str]]] = []
    for line, cells in rows:
        if not any(cells):
            continue
        if len(cells) != len(header):
            odd.append(line)
            continue
        batch.append((line, cells if chart is None else [cells[k] for k in chart]))
        if len(batch) >= TOGETHER:
            _convert(builder, names, batch, semicolons)
            batch = []
    _convert(builder, names, batch, semicolons)
    if odd:
        file.notes.append(f"{len(odd)} lines do not have {len(header)} fields and were left out: {first_few(odd)}")
    return RawLog(file.path, builder, notes=file.notes, numbered=chart is not None)


_EXPORTED = re.compile(r"(?P<run>.+?) - (?P<metric>.+?)(?P<bound>__MIN|__MAX)?")
_AXES = ("Step", "_step", "train/global_step", "Relative Time (Process)", "Wall Time", "step", "global_step")


def _exported(path: Path, header: list[str], run: int | None = None) -> dict[int, str] | None:
    """Column -> name without the run's, of a chart exported from the W&B page; None for other tables.

    Columns with the extremes over what the chart smoothed keep their endings __MIN and __MAX. Of several runs, those of
    the run number `run` (from 1, by name); UndecidedError where none is named.
    """
    if len(header) < 2 or header[0] not in _AXES:
        return None
    matches = {k: match for k, name in enumerate(header) if k and (match := _EXPORTED.fullmatch(name))}
    if len(matches) < len(header) - 1:
        return None
    runs = sorted({match["run"] for match in matches.values()})
    if len(runs) > 1 and (run is None or not 1 <= run <= len(runs)):
        some = ", ".join(f"{k} {visible(name, 40)}" for k, name in enumerate(runs[:6], 1))
        raise UndecidedError(f"{path}: a chart of {len(runs)} runs ({some})", "run")
    chosen = runs[(run or 1) - 1]
    names = {k: match["metric"] + (match["bound"] or "") for k, match in matches.items() if match["run"] == chosen}
    return {0: header[0], **names}


def _delimiter(file: LogFile) -> str:
    """The character between fields; UserError where the text has none."""
    first = file.head.decode("utf-8", "replace").split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=first.count)
    if delimiter not in first:
        raise UserError(f"{file.path} is not a log in a known format; docs/readers.md lists the formats")
    return delimiter


def _cells(file: LogFile, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each row; UserError where the text is not a table."""
    places = [0]

    def texts() -> Iterator[str]:
        for line, text, _ in file.lines():
            places[0] = line
            yield text + "\n"

    try:
        for cells in csv.reader(texts(), delimiter=delimiter):
            yield places[0], cells
    except csv.Error as error:
        raise UserError(
            f"{file.path}, line {places[0]}: the line does not fit the table ({error}); export the file again"
        ) from None


def _convert(
    builder: ColumnBuilder, names: list[str], batch: list[tuple[int, list[str]]], decimal_commas: bool
) -> None:
    if not batch:
        return
    lines = np.array([line for line, _ in batch], np.int64)
    columns, texts = {}, {}
    for k, name in enumerate(names):
        cells = [row[k].strip() for _, row in batch]
        if decimal_commas and any("," in cell for cell in cells):
            cells = _with_points(cells)
        try:
            columns[name] = np.array([cell or "nan" for cell in cells], np.float64)
            for row in np.flatnonzero(np.isnan(columns[name])):
                columns[name][row] = WRITTEN_NAN if cells[row] else math.nan
        except ValueError:
            values = [_number(name, cell) if cell else float("nan") for cell in cells]
            if any(value is not None and cell for value, cell in zip(values, cells, strict=True)):
                columns[name] = np.array([float("nan") if value is None else value for value in values])
            texts[name] = [cell if value is None else None for cell, value in zip(cells, values, strict=True)]
    builder.block(lines, columns, texts)


def _number(name: str, cell: str) -> float | None:
    """A cell as a number; None for a text, and for the name of a run."""
    printed = printed_number(cell)
    return written_number(cell) if printed is None and name not in RUNS else printed


def _with_points(cells: list[str]) -> list[str]:
    """Cells of a table whose fields have semicolons between them, decimal commas as points where all are numbers."""
    pointed = [cell.replace(",", ".") if cell.count(",") == 1 else cell for cell in cells]
    return pointed if all(not cell or printed_number(cell) is not None for cell in pointed) else cells


KIND = LogKind(_read, file=_recognises, generic=True)
