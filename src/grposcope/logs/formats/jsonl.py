"""JSON lines into rows, parsed by orjson after the first piece of a file where it is installed, else by the standard
library, which also takes NaN and Infinity as Python writes them.

A line that is not a JSON object is left out with a note that names it. Only the numbers are held in memory. Rewards in
a list, one of each rollout, become their mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.files import json_number
from grposcope.logs.columns import ColumnBuilder, RawLog, flat
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile, fast_json_row, first_few, json_row
from grposcope.logs.hints import Hints
from grposcope.logs.kept_rows import GrowingHints, KeptFile, KeptRows
from grposcope.logs.keys import is_reward

AVERAGED = "each row logs a list of rewards; their mean is used"


def read(file: LogFile, hints: Hints, unwrap: str = "") -> RawLog:
    """Every line of the file as a row; the fields of the object `unwrap`, if named, as fields of the row itself.

    UserError if most lines are not JSON objects.
    """
    if isinstance(hints, GrowingHints) and file.content is None and (grown := _grown(file, hints.kept, unwrap)):
        return grown
    rows = ColumnBuilder()
    for line, row in objects(file):
        rows.row(line, _metrics_of(row, unwrap, file.notes))
    return RawLog(file.path, rows, notes=file.notes)


def _grown(file: LogFile, files: KeptRows, unwrap: str) -> RawLog | None:
    """The same log with only what was appended parsed; None where its rows are not kept."""

    def values(kept: KeptFile, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return _metrics_of(row, unwrap, kept.notes)

    found = files.read(file.path, json_row, values, unwrap)
    if found is None:
        return None
    kept, rest = found
    rows = kept.rows.copy()
    file.notes += kept.notes
    for line, row in objects(file, [(kept.lines + 1, rest)], kept.bad, len(rows)):
        rows.row(line, _metrics_of(row, unwrap, file.notes))
    return RawLog(file.path, rows, notes=file.notes)


def objects(
    file: LogFile, pieces: Iterable[tuple[int, bytes]] | None = None, bad: Sequence[int] = (), good: int = 0
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every line, one by one; what is not an object is left out as in `read`.

    pieces: of the file, all by default. bad, good: numbers of the lines before these that are no objects, and how many
    are.
    """
    bad, parse = list(bad), json_row
    for number, piece in file.pieces() if pieces is None else pieces:
        *parts, rest = piece.split(b"\n")
        for line, part in enumerate([*parts, rest] if rest else parts, number):
            if (row := parse(part)) is not None:
                good += 1
                yield line, row
            elif part.strip(b"\0 \t\r\xef\xbb\xbf"):
                if line < number + len(parts):
                    bad.append(line)
                else:
                    file.notes.append(f"{file.path.name}, line {line}: the last line is unfinished and was left out")
        parse = fast_json_row  # a short log does not wait for its import
    if len(bad) > good:
        raise UserError(
            f"{file.path}, line {bad[0]}: most lines are not JSON objects, this one included; give a file of JSON lines"
        )
    if bad:
        file.notes.append(f"{file.path.name}: {len(bad)} lines are not JSON and were left out: {first_few(bad)}")


def _metrics_of(row: Mapping[str, Any], unwrap: str, notes: list[str]) -> Mapping[str, Any]:
    """The row with the fields of its object `unwrap` as its own, and the mean of every list of rewards in its place.

    notes: take up that means are used.
    """
    inner = row.get(unwrap) if unwrap else None
    if isinstance(inner, dict):
        row = {**{name: value for name, value in row.items() if name != unwrap}, **inner}
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


def _read_document(file: LogFile, hints: Hints) -> RawLog:
    """One JSON document: a list of objects, or an object of lists of one length, or with one list of objects in it."""
    content, rows = file.document, ColumnBuilder()
    if isinstance(content, dict):
        content = _rows_of(content)
    if content is None:
        raise UserError(f"{file.path}: a JSON object without lists of one length; give the trainer's log")
    notes: list[str] = []
    entries = [row for row in content if isinstance(row, dict)]
    for place, row in enumerate(entries, 1):
        rows.row(place, _metrics_of(flat(row), "", notes))
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
DOCUMENT = LogKind(_read_document, shapes=("json document",), generic=True)
