"""JSON-lines files into columns, fast where a program wrote every line alike, exact everywhere.

Lines of one layout consist of the same literal pieces with values between them:

    {"step": 1, "reward": 0.5}
    AAAAAAAAA B CCCCCCCCCCC DDD E        A, C, E the same in every line; B, D the values

so the places of the quotes give all edges at once, equality of the literals proves the layout, and
the values are converted in bulk. Whatever departs from it is parsed line by line, which also finds
the line that is broken. An unfinished last line, as in a run that is being written, is left out.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from grposcope.errors import UserError
from grposcope.runs.table import Floats, Ints

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How the record writes numbers that JSON does not have."""

_SHAPES = 8  # layouts in one file beyond which parsing line by line is no slower


@dataclass(frozen=True)
class Lines:
    """The complete lines of a file, each with its newline; unfinished: whether a last one was left out."""

    path: Path
    data: bytes
    unfinished: bool = False


def load(path: Path) -> Lines:
    """The complete lines of the file; none if there is no such file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Lines(path, b"")
    whole = data[: data.rfind(b"\n") + 1]
    rest = data[len(whole) :].strip(b"\0 ")
    if not rest:
        return Lines(path, whole)
    try:
        json.loads(rest)
    except ValueError:
        return Lines(path, whole, unfinished=True)
    return Lines(path, whole + rest + b"\n")


def rows(lines: Lines) -> list[tuple[int, dict[str, Any]]]:
    """Every line as (line number, object), blank lines left out. UserError for a line that is broken."""
    found = []
    for number, line in enumerate(lines.data.split(b"\n")[:-1], 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise broken(lines, number, f"not valid JSON ({error})") from None
        if not isinstance(row, dict):
            raise broken(lines, number, "not a JSON object")
        found.append((number, row))
    return found


def broken(lines: Lines, number: int, what: str) -> UserError:
    """The error for a line that cannot be read."""
    return UserError(f"{lines.path}, line {number}: {what}; mend or delete that line, or restore the file from a copy")


def number(value: Any) -> float | None:
    """A JSON value as a number: the strings of NOT_FINITE too, NaN for null, None for what is no number."""
    if isinstance(value, str):
        return NOT_FINITE.get(value)
    if value is None:
        return math.nan
    return float(value) if isinstance(value, int | float) else None


def columns(lines: Lines) -> dict[str, Floats]:
    """Fields of numbers as float64 columns, NaN where a line lacks one; fields without any number are left out.

    UserError for a broken line and for a field that is a number in some lines and something else in others.
    """
    data = lines.data.replace(b'"NaN"', b"NaN")
    if b'Infinity"' in data:
        data = data.replace(b'"Infinity"', b"Infinity").replace(b'"-Infinity"', b"-Infinity")
    found = _alike(data)
    return _columns_by_row(lines) if found is None else found


def values(data: bytes, edges: Ints, literals: list[bytes]) -> list[pa.Array] | None:
    """The values of all N lines between K + 1 literals, as K binary arrays (N,); None if a literal differs.

    edges (N, 2K + 1): where each line's literals and values begin, in turn.
    """
    count, width = edges.shape
    flat = np.append(edges.ravel(), len(data))
    sizes = np.diff(flat).reshape(count, width)
    if flat[0] != 0 or sizes.min() < 0 or (sizes[:, ::2] != [len(literal) for literal in literals]).any():
        return None
    pieces = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), count * width, [None, pa.py_buffer(flat), pa.py_buffer(data)]
    )
    places = np.arange(count * width).reshape(count, width)
    between = pieces.take(pa.array(places[:, ::2].ravel())).buffers()[2]
    if (np.frombuffer(between, np.uint8).reshape(count, -1) != np.frombuffer(b"".join(literals), np.uint8)).any():
        return None
    return [pieces.take(pa.array(column)) for column in places[:, 1::2].T]


def numbers(texts: pa.Array) -> Floats | None:
    """Texts of numbers as float64; None if one is not a number."""
    try:
        return texts.cast(pa.large_string()).cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None


def places(data: bytes, character: str) -> Ints:
    """Where a character stands."""
    return np.flatnonzero(np.frombuffer(data, np.uint8) == ord(character))


def quotes_per_line(data: bytes, quotes: Ints) -> Ints | None:
    """Places of the double quotes as a table (N, quotes of a line); None if lines differ in their number."""
    first = int(np.searchsorted(quotes, data.find(b"\n")))
    return quotes.reshape(-1, first) if first and len(quotes) % first == 0 else None


def line_ends(quotes: Ints, data: bytes) -> Ints:
    """Where the newlines must be if every line begins with {" (which `values` then proves): (N,)."""
    return np.append(quotes[1:, 0] - 2, len(data) - 1)


def _alike(data: bytes) -> dict[str, Floats] | None:
    """Columns of lines in few layouts of plain numbers; None if they are not."""
    if not data:
        return {}
    quotes = places(data, '"')
    found = _of_one_layout(data, quotes)
    if found is not None:
        return found
    ends = places(data, "\n")
    per_line = np.diff(np.searchsorted(quotes, ends), prepend=0)
    shapes = np.unique(per_line)
    if not 1 < len(shapes) <= _SHAPES:
        return None
    offsets = pa.py_buffer(np.append(0, ends + 1))
    whole = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends), [None, offsets, pa.py_buffer(data)])
    found = {}
    for shape in shapes:
        chosen = np.flatnonzero(per_line == shape)
        part = whole.take(pa.array(chosen)).buffers()[2].to_pybytes()
        some = _of_one_layout(part, places(part, '"'))
        if some is None:
            return None
        for name, column in some.items():
            found.setdefault(name, np.full(len(ends), math.nan))[chosen] = column
    return found


def _of_one_layout(data: bytes, marks: Ints) -> dict[str, Floats] | None:
    """Columns of lines that have the same keys in the same order, all of them numbers; None if they have not."""
    quotes = quotes_per_line(data, marks)
    if quotes is None:
        return None
    try:
        keys = list(json.loads(data[: data.find(b"\n")]))
    except ValueError:
        return None
    if not keys or quotes.shape[1] != 2 * len(keys):
        return None
    edges = np.empty((len(quotes), 2 * len(keys) + 1), np.int64)
    edges[:, 0] = quotes[:, 0] - 1
    edges[:, 1::2] = quotes[:, 1::2] + 3
    edges[:, 2:-1:2] = quotes[:, 2::2] - 2
    edges[:, -1] = line_ends(quotes, data) - 1
    opening = [f'{", " if k else "{"}"{key}": '.encode() for k, key in enumerate(keys)]
    texts = values(data, edges, [*opening, b"}\n"])
    if texts is None:
        return None
    found = {key: numbers(text) for key, text in zip(keys, texts, strict=True)}
    return None if any(column is None for column in found.values()) else found  # type: ignore[return-value]


def _columns_by_row(lines: Lines) -> dict[str, Floats]:
    table = rows(lines)
    found: dict[str, Floats] = {}
    other: dict[str, int] = {}
    for place, (line, row) in enumerate(table):
        for name, raw in row.items():
            value = number(raw)
            if value is None:
                other.setdefault(name, line)
                continue
            if name not in found:
                found[name] = np.full(len(table), math.nan)
            found[name][place] = value
    for name, line in other.items():
        if name in found:
            raise broken(lines, line, f"{name} is not a number")
    return found
