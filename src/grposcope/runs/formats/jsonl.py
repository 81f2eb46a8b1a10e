"""JSON lines into a frame: a piece of the file at a time by its layout, line by line where it cannot be.

A line that is no JSON object is left out with a note that names it. Nothing but the numbers is held.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from grposcope.errors import UserError
from grposcope.runs.columns import Frame
from grposcope.runs.formats import json_templates
from grposcope.runs.formats.json_templates import Table
from grposcope.runs.formats.source import Source

PIECE = 2 << 20
"""Bytes that are converted at a time: more would be no faster."""


def fill(source: Source, frame: Frame, unwrap: str = "") -> None:
    """Every line of the file as a row of the frame; the fields of the object `unwrap`, if named, as its own.

    UserError if most lines are no JSON objects.
    """
    bad: list[int] = []
    with ThreadPoolExecutor(2) as threads:
        for number, piece, table in _ahead(threads, source.pieces(PIECE), unwrap):
            if table is not None:
                frame.block(np.arange(number, number + piece.count(b"\n")), table.columns, table.texts)
            else:
                _by_line(source, frame, number, piece, unwrap, bad)
    if len(bad) > len(frame):
        raise UserError(f"{source.path}, line {bad[0]}: not a JSON object, as most lines; give a file of JSON lines")
    if bad:
        shown = ", ".join(map(str, bad[:5])) + (", …" if len(bad) > 5 else "")
        source.notes.append(f"{len(bad)} lines are no JSON objects and were left out: {shown}")


def _ahead(
    threads: ThreadPoolExecutor, pieces: Iterator[tuple[int, bytes]], unwrap: str
) -> Iterator[tuple[int, bytes, Table | None]]:
    """Pieces in order with their tables, the next ones converted meanwhile (in compiled code, side by side)."""
    waiting: deque[tuple[int, bytes, Future[Table | None]]] = deque()
    for number, piece in pieces:
        waiting.append((number, piece, threads.submit(_in_bulk, piece, unwrap)))
        if len(waiting) > 1:
            first, data, done = waiting.popleft()
            yield first, data, done.result()
    for first, data, done in waiting:
        yield first, data, done.result()


def _in_bulk(piece: bytes, unwrap: str) -> Table | None:
    """A piece as columns; None if it holds more than numbers and short texts, or anything is odd about it."""
    return json_templates.table(piece, unwrap) if piece.endswith(b"\n") else None


def _by_line(source: Source, frame: Frame, number: int, piece: bytes, unwrap: str, bad: list[int]) -> None:
    ended = piece.endswith(b"\n")
    parts = piece.split(b"\n")
    if ended:
        parts.pop()
    for k, part in enumerate(parts):
        row = loaded(part)
        if row is not None:
            frame.row(number + k, unwrapped(row, unwrap))
        elif part.strip(b"\0 \t\r\xef\xbb\xbf"):
            if not ended and k == len(parts) - 1:
                source.notes.append(
                    f"{source.path.name}, line {number + k}: the last line is unfinished and was left out"
                )
            else:
                bad.append(number + k)


def loaded(line: bytes) -> dict[str, Any] | None:
    """A line as a JSON object; None if it is none."""
    try:
        row = json.loads(line.strip(b"\0 \t\r\xef\xbb\xbf").decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def unwrapped(row: dict[str, Any], key: str) -> Mapping[str, Any]:
    """A row with the fields of its object `key` as its own."""
    inner = row.get(key) if key else None
    if not isinstance(inner, dict):
        return row
    return {**{name: value for name, value in row.items() if name != key}, **inner}
