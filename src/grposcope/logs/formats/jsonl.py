"""JSON lines into rows, parsed by orjson after the first piece of a file where it is installed, else by the standard
library, which also takes NaN and Infinity as Python writes them.

A line that is not a JSON object is left out with a note that names it. Only the numbers are held in memory. Rewards in
a list, one of each rollout, become their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.files import json_number
from grposcope.logs.columns import ColumnBuilder, RawLog, flat
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile, fast_json_row, first_few, json_row
from grposcope.logs.hints import Hints
from grposcope.logs.kept_rows import GrowingHints, KeptFile, KeptRows
from grposcope.logs.keys import is_reward

Parser = Callable[[bytes], "dict[str, Any] | None"]

AVERAGED = "each row logs a list of rewards; their mean is used"


def read(file: LogFile, hints: Hints, unwrap: str = "") -> RawLog:
    """Every line of the file as a row; the fields of the object `unwrap`, if named, as fields of the row itself.

    UserError if most lines are not JSON objects.
    """
    grown = _grown(file, hints.kept, unwrap) if isinstance(hints, GrowingHints) and type(file) is LogFile else None
    if grown is not None:
        return grown
    rows = ColumnBuilder()
    for line, row in objects(file):
        if unwrap or not rows.numbers(line, row):
            rows.row(line, averaged(unwrapped(row, unwrap), file.notes))
    return RawLog(file.path, rows, notes=file.notes)


def _grown(file: LogFile, files: KeptRows, unwrap: str) -> RawLog | None:
    """The same log with only what was appended parsed; None where its rows are not kept."""

    def values(kept: KeptFile, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return averaged(unwrapped(dict(row), unwrap), kept.notes)

    found = files.read(file.path, json_row, values, unwrap)
    if found is None:
        return None
    kept, rest = found
    rows, bad = kept.rows.copy(), list(kept.bad)
    file.notes += kept.notes
    for line, row in _parsed(file, kept.lines + 1, rest, bad, json_row):
        rows.row(line, averaged(unwrapped(row, unwrap), file.notes))
    _report(file, bad, len(rows))
    return RawLog(file.path, rows, notes=file.notes)


def objects(file: LogFile) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every line, one by one; what is not an object is left out as in `read`."""
    bad: list[int] = []
    count = 0
    parse: Parser = json_row
    for number, piece in file.pieces():
        for line, row in _parsed(file, number, piece, bad, parse):
            count += 1
            yield line, row
        parse = fast_json_row  # a short log does not wait for its import
    _report(file, bad, count)


def unwrapped(row: dict[str, Any], key: str) -> Mapping[str, Any]:
    """A row with the fields of its object `key` as its own."""
    inner = row.get(key) if key else None
    if not isinstance(inner, dict):
        return row
    return {**{name: value for name, value in row.items() if name != key}, **inner}


def averaged(row: Mapping[str, Any], notes: list[str]) -> Mapping[str, Any]:
    """The row with the mean of every list of rewards in its place, which `notes` then say."""
    if list not in map(type, row.values()):
        return row
    lists = {key: value for key, value in row.items() if isinstance(value, list) and value and is_reward(key)}
    means = {key: sum(numbers) / len(numbers) for key, value in lists.items() if (numbers := _numbers(value))}
    if not means:
        return row
    if AVERAGED not in notes:
        notes.append(AVERAGED)
    return {**row, **means}


def _numbers(values: list[Any]) -> list[float]:
    """The numbers of a list; empty where one of its values is none."""
    numbers = [json_number(value) for value in values]
    return [number for number in numbers if number is not None] if None not in numbers else []


def _parsed(
    file: LogFile, number: int, piece: bytes, bad: list[int], parse: Parser
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every line of a piece; numbers of other lines go to `bad`."""
    *parts, rest = piece.split(b"\n")
    for k, part in enumerate([*parts, rest] if rest else parts):
        row = parse(part)
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
        raise UserError(
            f"{file.path}, line {bad[0]}: most lines are not JSON objects, this one included; give a file of JSON lines"
        )
    if bad:
        file.notes.append(f"{file.path.name}: {len(bad)} lines are not JSON and were left out: {first_few(bad)}")


def read_document(file: LogFile, hints: Hints) -> RawLog:
    """One JSON document: a list of objects, or an object of lists of one length, or with one list of objects in it."""
    content, rows = file.document, ColumnBuilder()
    if isinstance(content, dict):
        content = _rows_of(content)
    if content is None:
        raise UserError(f"{file.path}: a JSON object without lists of one length; give the trainer's log")
    notes: list[str] = []
    entries = [row for row in content if isinstance(row, dict)]
    for place, row in enumerate(entries, 1):
        rows.row(place, averaged(flat(row), notes))
    left_out = len(content) - len(entries)
    if left_out:
        notes.append(f"{left_out} entries are not objects and were left out")
    return RawLog(file.path, rows, notes=notes, place="entry")


def _rows_of(content: dict[str, Any]) -> list[Any] | None:
    """The rows of an object: its lists side by side, or its only list of objects; None where there are neither."""
    lists = {key: values for key, values in content.items() if isinstance(values, list) and values}
    of_objects = [values for values in lists.values() if all(isinstance(value, dict) for value in values)]
    if len({len(values) for values in lists.values()}) == 1:
        return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    return of_objects[0] if len(of_objects) == 1 else None


LINES = LogKind(read, shapes=("json lines",), generic=True)
DOCUMENT = LogKind(read_document, shapes=("json document",), generic=True)
