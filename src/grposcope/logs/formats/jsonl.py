"""JSON lines into rows, parsed by the standard library, which also takes NaN and Infinity as Python writes them.

A line that is not a JSON object is left out with a note that names it. Only the numbers are held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grposcope.core.errors import UserError
from grposcope.logs.columns import ColumnBuilder, RawLog
from grposcope.logs.formats.log_file import LogFile, LogKind, first_few, json_row
from grposcope.logs.hints import Hints


def read(file: LogFile, hints: Hints, unwrap: str = "") -> RawLog:
    """Every line of the file as a row; the fields of the object `unwrap`, if named, as fields of the row itself.

    UserError if most lines are not JSON objects.
    """
    rows = ColumnBuilder()
    for line, row in objects(file):
        rows.row(line, unwrapped(row, unwrap))
    return RawLog(file.path, rows, notes=file.notes)


def objects(file: LogFile) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every line, one by one; what is not an object is left out as in `read`."""
    bad: list[int] = []
    count = 0
    for number, piece in file.pieces():
        for line, row in _parsed(file, number, piece, bad):
            count += 1
            yield line, row
    _report(file, bad, count)


def unwrapped(row: dict[str, Any], key: str) -> Mapping[str, Any]:
    """A row with the fields of its object `key` as its own."""
    inner = row.get(key) if key else None
    if not isinstance(inner, dict):
        return row
    return {**{name: value for name, value in row.items() if name != key}, **inner}


def _parsed(file: LogFile, number: int, piece: bytes, bad: list[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every line of a piece; numbers of other lines go to `bad`."""
    *parts, rest = piece.split(b"\n")
    for k, part in enumerate([*parts, rest] if rest else parts):
        row = json_row(part)
        if row is not None:
            yield number + k, row
        elif part.strip(b"\0 \t\r\xef\xbb\xbf"):
            if k == len(parts):
                file.notes.append(f"{file.path.name}, line {number + k}: the last line is unfinished and was left out")
            else:
                bad.append(number + k)


def _report(file: LogFile, bad: list[int], good: int) -> None:
    """Note the lines that were left out; UserError if they are the most."""
    if len(bad) > good:
        raise UserError(f"{file.path}, line {bad[0]}: not a JSON object, as most lines; give a file of JSON lines")
    if bad:
        file.notes.append(f"{file.path.name}: {len(bad)} lines are no JSON objects and were left out: {first_few(bad)}")


def read_document(file: LogFile, hints: Hints) -> RawLog:
    """One JSON document: a list of objects, or an object of lists of one length."""
    content, rows = file.document, ColumnBuilder()
    if isinstance(content, dict):
        lists = {key: values for key, values in content.items() if isinstance(values, list) and values}
        if not lists or len({len(values) for values in lists.values()}) > 1:
            raise UserError(f"{file.path}: a JSON object without lists of one length; give the trainer's log")
        content = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    entries = [row for row in content if isinstance(row, dict)]
    for place, row in enumerate(entries, 1):
        rows.row(place, row)
    left_out = len(content) - len(entries)
    notes = [f"{left_out} entries are no objects and were left out"] if left_out else []
    return RawLog(file.path, rows, notes=notes, place="entry")


LINES = LogKind(read, file=lambda file: file.shape == "json lines", generic=True)
DOCUMENT = LogKind(read_document, file=lambda file: file.shape == "json document", generic=True)
