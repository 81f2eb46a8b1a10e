"""JSON lines into a frame: in bulk by Arrow where a piece is all numbers, line by line where it is not.

A line that is no JSON object is left out with a note that names it. Nothing but the numbers is held.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from grposcope.errors import UserError
from grposcope.runs.frame import Frame
from grposcope.runs.table import Floats, Ints
from grposcope.runs.text import Source

_DEEPEST = 64  # brackets in a line
_SAMPLE = 24  # lines of a piece whose keys are learnt before Arrow reads it
_CELLS = 1 << 23  # values of a piece

Block = tuple[Ints, dict[str, Floats]]


def fill(source: Source, frame: Frame, unwrap: str = "") -> None:
    """Every line of the file as a row of the frame; the fields of the object `unwrap`, if named, as its own.

    UserError if most lines are no JSON objects.
    """
    bad: list[int] = []
    keys: dict[str, Any] = {}
    with ThreadPoolExecutor(2) as threads:
        for number, piece, block in _ahead(threads, source.pieces(), keys, unwrap):
            if block is not None:
                frame.block(*block)
            else:
                _by_line(source, frame, number, piece, unwrap, bad, keys)
    if len(bad) > len(frame):
        raise UserError(f"{source.path}, line {bad[0]}: not a JSON object, as most lines; give a file of JSON lines")
    if bad:
        shown = ", ".join(map(str, bad[:5])) + (", …" if len(bad) > 5 else "")
        source.notes.append(f"{len(bad)} lines are no JSON objects and were left out: {shown}")


def _ahead(
    threads: ThreadPoolExecutor, pieces: Iterator[tuple[int, bytes]], keys: dict[str, Any], unwrap: str
) -> Iterator[tuple[int, bytes, Block | None]]:
    """Pieces in order with their columns, the next ones parsed meanwhile (Arrow leaves Python to run)."""
    waiting: deque[tuple[int, bytes, Future[Block | None]]] = deque()
    for number, piece in pieces:
        learn(keys, (loaded(line) for line in piece.split(b"\n", _SAMPLE)[:_SAMPLE]))
        waiting.append((number, piece, threads.submit(_in_bulk, number, piece, _schema(keys), unwrap)))
        if len(waiting) > 2:
            first, data, done = waiting.popleft()
            yield first, data, done.result()
    for first, data, done in waiting:
        yield first, data, done.result()


def learn(keys: dict[str, Any], rows: Iterable[Mapping[str, Any] | None]) -> None:
    """Adds the keys of rows and whether each is an object, a truth value or a number; None for what is neither."""
    for row in rows:
        for key, value in (row or {}).items():
            if isinstance(value, dict):
                inner = keys.setdefault(key, {})
                if isinstance(inner, dict):
                    learn(inner, [value])
                else:
                    keys[key] = None
            elif value is not None:
                kind = bool if isinstance(value, bool) else float if isinstance(value, int | float) else None
                keys[key] = kind if keys.setdefault(key, kind) is kind else None
            else:
                keys.setdefault(key, float)


def _schema(keys: Mapping[str, Any]) -> pa.Schema | None:
    """What Arrow has to expect; None if something is no number."""
    fields = _fields(keys)
    return None if fields is None else pa.schema(fields)


def _fields(keys: Mapping[str, Any]) -> list[pa.Field] | None:
    found = []
    for key, kind in keys.items():
        if kind is None:
            return None
        if isinstance(kind, dict):
            inner = _fields(kind)
            if inner is None:
                return None
            found.append(pa.field(key, pa.struct(inner)))
        else:
            found.append(pa.field(key, pa.bool_() if kind is bool else pa.float64()))
    return found


def _in_bulk(number: int, piece: bytes, schema: pa.Schema | None, unwrap: str) -> Block | None:
    """The columns of a piece; None if it holds more than numbers under known keys, or anything is odd about it."""
    if schema is None or not piece.endswith(b"\n") or not _shallow(piece):
        return None
    rows = piece.count(b"\n")
    if rows * _width(schema) > _CELLS:
        return None
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=len(piece) + 1)
    parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    try:
        table = pyarrow.json.read_json(pa.BufferReader(piece), read_options=read, parse_options=parse)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError):
        return None
    if table.num_rows != rows:  # several objects in a line
        return None
    columns: dict[str, Floats] = {}
    if not _leaves(table.to_batches()[0] if table.num_rows else None, "", unwrap, columns):
        return None
    return np.arange(number, number + rows), columns


def _width(fields: Any) -> int:
    return sum(_width(field.type) if pa.types.is_struct(field.type) else 1 for field in fields)


def _shallow(piece: bytes) -> bool:
    """Whether every line is an object by itself with few brackets in it: Arrow dies of deep nesting."""
    text = np.frombuffer(piece, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    starts = np.append(0, ends[:-1] + 1)
    if (text[starts] != ord("{")).any() or (text[np.maximum(ends - 1, 0)] != ord("}")).any():
        return False
    opening = np.flatnonzero((text | 0x20) == ord("{"))  # { and [ differ in that bit only
    return int(np.diff(np.searchsorted(opening, ends), prepend=0).max()) <= _DEEPEST


def _leaves(holder: Any, prefix: str, unwrap: str, columns: dict[str, Floats]) -> bool:
    """Adds the numbers in a record batch or struct array; False if something in it is no number."""
    if holder is None:
        return False
    fields = holder.schema if isinstance(holder, pa.RecordBatch) else holder.type
    for k in range(len(fields) if isinstance(holder, pa.RecordBatch) else fields.num_fields):
        name = fields.field(k).name
        values = holder.column(k) if isinstance(holder, pa.RecordBatch) else holder.field(k)
        key = prefix + name
        if pa.types.is_struct(values.type):
            if not _leaves(values, "" if key == unwrap else f"{key}/", unwrap, columns):
                return False
            continue
        if pa.types.is_boolean(values.type) or pa.types.is_null(values.type):
            values = values.cast(pa.float64())
        elif not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
            return False
        if key in columns:
            return False
        columns[key] = values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    return True


def _by_line(
    source: Source, frame: Frame, number: int, piece: bytes, unwrap: str, bad: list[int], keys: dict[str, Any]
) -> None:
    ended = piece.endswith(b"\n")
    parts = piece.split(b"\n")
    if ended:
        parts.pop()
    for k, part in enumerate(parts):
        row = loaded(part)
        if row is not None:
            if len(keys) < _CELLS >> 10:
                learn(keys, [row])
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
