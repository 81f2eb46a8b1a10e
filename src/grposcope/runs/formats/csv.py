"""Tables of metrics of any making: JSON lines, a JSON list of rows, a JSON object of columns, CSV and TSV.

A row is a step. Which key is the step, which rows are evaluations and what the usual names mean is
settled in `assemble`; nothing else is assumed about the writer.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.errors import UserError
from grposcope.runs.columns import Frame
from grposcope.runs.formats import jsonl, wandb
from grposcope.runs.formats.source import Source, number
from grposcope.runs.normalize import Log, assemble
from grposcope.runs.run import Run

TOGETHER = 2048
"""Rows of a CSV file that are converted at a time."""


def read_jsonl(path: Path, given: Mapping[str, Any]) -> Run:
    """A file of JSON objects, one a line."""
    source, frame = Source(path), Frame()
    jsonl.fill(source, frame)
    return assemble(Log(path, frame, notes=source.notes, given=given))


def read_document(path: Path, content: Any, given: Mapping[str, Any]) -> Run:
    """A JSON list of objects, or an object of lists of one length."""
    frame = Frame()
    if isinstance(content, dict):
        lists = {key: values for key, values in content.items() if isinstance(values, list) and values}
        if not lists or len({len(values) for values in lists.values()}) > 1:
            raise UserError(f"{path}: a JSON object without lists of one length; give the trainer's log")
        content = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    rows = [row for row in content if isinstance(row, dict)]
    for place, row in enumerate(rows, 1):
        frame.row(place, row)
    notes = [f"{len(content) - len(rows)} entries are no objects and were left out"] if len(rows) < len(content) else []
    return assemble(Log(path, frame, notes=notes, given=given, place="entry"))


def read_csv(path: Path, given: Mapping[str, Any]) -> Run:
    """A CSV or TSV file with a header; also what the W&B page exports of a chart."""
    source, frame = Source(path), Frame()
    rows = _cells(source)
    _, header = next(rows, (0, []))
    names = wandb.exported(path, [name.strip() for name in header]) or [name.strip() for name in header]
    if len(set(names)) < len(names) or not all(names):
        names = [name or f"column {k + 1}" for k, name in enumerate(names)]
        names = [name if names.index(name) == k else f"{name} ({k + 1})" for k, name in enumerate(names)]
    odd: list[int] = []
    batch: list[tuple[int, list[str]]] = []
    for line, cells in rows:
        if not any(cells):
            continue
        if len(cells) != len(names):
            odd.append(line)
            continue
        batch.append((line, cells))
        if len(batch) >= TOGETHER:
            _convert(frame, names, batch)
            batch = []
    _convert(frame, names, batch)
    if odd:
        shown = ", ".join(map(str, odd[:5])) + (", …" if len(odd) > 5 else "")
        source.notes.append(f"{len(odd)} lines have not {len(names)} fields and were left out: {shown}")
    return assemble(Log(path, frame, notes=source.notes, given=given))


def _cells(source: Source) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each row; UserError where it is no text of a table."""
    places = [0]

    def texts() -> Iterator[str]:
        for line, text, _ in source.lines():
            places[0] = line
            yield text + "\n"

    first = source.head(1 << 14).split(b"\n", 1)[0]
    delimiter = max(",\t;", key=lambda mark: first.count(mark.encode()))
    if not first.count(delimiter.encode()):
        raise UserError(
            f"{source.path} is no run: it is a file of no kind that can be read; docs/readers.md lists them"
        )
    try:
        for cells in csv.reader(texts(), delimiter=delimiter):
            yield places[0], cells
    except csv.Error as error:
        raise UserError(f"{source.path}, line {places[0]}: not a table ({error}); export it again") from None


def _convert(frame: Frame, names: list[str], batch: list[tuple[int, list[str]]]) -> None:
    if not batch:
        return
    lines = np.array([line for line, _ in batch], np.int64)
    columns, texts = {}, {}
    for k, name in enumerate(names):
        cells = [row[k].strip() for _, row in batch]
        try:
            columns[name] = np.array([cell or "nan" for cell in cells], np.float64)
        except ValueError:
            values = [number(cell) if cell else float("nan") for cell in cells]
            if any(value is not None and cell for value, cell in zip(values, cells, strict=True)):
                columns[name] = np.array([float("nan") if value is None else value for value in values])
            texts[name] = [cell if value is None else None for cell, value in zip(cells, values, strict=True)]
    frame.block(lines, columns, texts)
