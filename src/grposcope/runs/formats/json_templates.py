"""JSON lines that a program wrote alike, converted to columns of numbers in bulk.

Lines of one template consist of the same literal pieces with values between them:

    {"step": 1, "data": {"reward": 0.5}}
    AAAAAAAAA B CCCCCCCCCCCCCCCCCCC DDD EE      A, C, E the same in every line; B, D the values

One line is parsed, which gives the literals. In the other lines the positions of the quotes say where the literals must
be; equality of the bytes proves that they are there; and the values between them are converted by Arrow. A value has to
be a number as JSON writes them, null, true, false, NaN or ±Infinity, or a text where the parsed line has a short one.
Lines with anything else are left to the caller, who parses them one by one.

Why not a general parser: orjson 3.8 and msgspec 0.22, with the same checks and conversion to columns by NumPy, took
1.2 to 1.4 times the CPU time for 100,000 rows × 40 metrics, and neither accepts NaN. The memory of the whole way to
columns, which was measured with orjson only, was 0.45 to 0.7 times as much.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from grposcope.files import json_number
from grposcope.runs.columns import leaves
from grposcope.runs.run import Bools, Floats, Ints

TEMPLATES = 8
"""Number of templates in one piece beyond which parsing line by line is as fast."""

WORDS = {
    b"null": math.nan, b"NaN": math.nan, b"Infinity": math.inf, b"-Infinity": -math.inf, b"true": 1.0, b"false": 0.0,
}  # fmt: skip
"""Numbers that are not written in digits."""

LONGEST = 200
"""Length in bytes of a text beyond which its line is parsed by itself, which is fast for long texts."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"(?P<key>\s*:)?|-?\d[\d.eE+-]*|-?Infinity|NaN|null|true|false')

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Template:
    """Template of lines that hold K values each.

    names (K,): keys of the values. literals (K + 1,): the text around the values. quotes (K,): number of quotes in a
    value, 0 for numbers.
    """

    names: tuple[str, ...]
    literals: tuple[bytes, ...]
    quotes: tuple[int, ...]


@dataclass(frozen=True)
class Block:
    """N lines as columns: numbers (N,), NaN where a line has none, and lists of N texts, None where it has none."""

    columns: dict[str, Floats]
    texts: dict[str, list[str | None]]


@dataclass(frozen=True)
class Marks:
    """Positions of N lines and Q double quotes in a text.

    starts, ends (N,): first byte and newline of each line. quotes (Q,): positions of the quotes. before (N,): number of
    quotes ahead of a line. inside (N,): number of quotes in a line.
    """

    starts: Ints
    ends: Ints
    quotes: Ints
    before: Ints
    inside: Ints


def marks(text: Bytes) -> Marks:
    """Positions of the lines and quotes of a text whose last line ends with a newline, too."""
    ends, quotes = np.flatnonzero(text == ord("\n")), np.flatnonzero(text == ord('"'))
    starts = np.append(0, ends[:-1] + 1)
    before = np.searchsorted(quotes, starts)
    return Marks(starts, ends, quotes, before, np.searchsorted(quotes, ends) - before)


def table(data: bytes, unwrap: str = "") -> Block | None:
    """Columns of the lines of `data`, each with its newline; None if they hold more than numbers and short texts.

    Nested objects become keys joined by "/"; fields of the object `unwrap` have no prefix.
    """
    template = learn(data[: data.find(b"\n") + 1], unwrap)
    if template is None:
        return None
    text = np.frombuffer(data, np.uint8)
    seen = marks(text)
    count, model = len(seen.ends), 0
    bent = np.flatnonzero((text[:-1] == ord(".")) & ((text[1:] | 0x20) == ord("e")))
    block = Block({}, {})
    left = np.ones(count, bool)
    for _ in range(TEMPLATES):
        keys = block.columns.keys() | block.texts.keys()
        if template is None or len(keys.union(template.names)) * count > len(data):  # many keys, each in few lines
            return None
        rows = np.flatnonzero(left & (seen.inside == seen.inside[model]))
        places = edges(template.literals, template.quotes, seen, rows)
        there = fit(data, places, template.literals)
        rows, places = rows[there], places[there]
        texts = np.array(template.quotes) > 0
        values = _numbers(text, data, places, ~texts, bent)
        if values is None or not _add_texts(block, template, data, places, rows, count):
            return None
        left[rows] = False
        for name, column in zip(np.array(template.names, object)[~texts], values.T, strict=True):
            if len(rows) == count:
                block.columns[name] = column
            else:
                block.columns.setdefault(name, np.full(count, math.nan))[rows] = column
        if not left.any():
            return block
        model = int(np.argmax(left))
        template = learn(data[seen.starts[model] : seen.ends[model] + 1], unwrap)
    return None


def learn(line: bytes, unwrap: str = "") -> Template | None:
    """The template of a line with its newline; None if it is not an object of numbers and short texts."""
    try:
        row = json.loads(line.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    parts = (leaves(v) if key == unwrap and isinstance(v, dict) else leaves({key: v}) for key, v in row.items())
    fields = [field for part in parts for field in part]
    names = tuple(name for name, _ in fields)
    plain = all(isinstance(value, int | float | str | None) for _, value in fields)
    if not names or not plain or len(set(names)) < len(names):
        return None
    values = [match for match in _TOKEN.finditer(line) if not match["key"]]
    if len(values) != len(names) or any(value[0].startswith(b'"') and len(value[0]) > LONGEST for value in values):
        return None
    begins, ends = zip(*(value.span() for value in values), strict=True)
    cuts = zip((0, *ends), (*begins, len(line)), strict=True)
    literals = tuple(line[begin:end] for begin, end in cuts)
    return Template(names, literals, tuple(value[0].count(b'"') for value in values))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a dict; ValueError if a key occurs twice, which would change the order of the values."""
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a key occurs twice")
    return unique


def edges(literals: tuple[bytes, ...], quotes: tuple[int, ...], seen: Marks, rows: Ints) -> Ints:
    """Positions (N, 2K + 2) in the lines `rows` (N,) where literals and values must begin in turn, and the end.

    quotes (K,): how many a value has; how many the last one has does not matter. All literals but the last have some.
    """
    _, *middle, last = literals
    positions = np.empty((len(rows), 2 * len(literals)), np.int64)
    passed = [literal.count(b'"') + inside for literal, inside in zip(literals, quotes, strict=False)]
    which = np.cumsum(passed, dtype=np.int64)[:-1]
    positions[:, 0] = seen.starts[rows]
    positions[:, 2:-2:2] = seen.quotes[seen.before[rows, None] + which] - [m.index(b'"') for m in middle]
    positions[:, -2] = seen.ends[rows] + 1 - len(last)
    positions[:, 1::2] = positions[:, ::2] + [len(literal) for literal in literals]
    return positions


def fit(data: bytes, places: Ints, literals: tuple[bytes, ...]) -> Bools:
    """Whether each line (N,) has all `literals` at the positions `places` (N, 2K + 2), with something between them."""
    there: Bools = np.asarray((places[:, 2::2] > places[:, 1:-1:2]).all(1))
    if not there.any():
        return there
    cut = pieces(data, places[there])
    every = np.arange(len(cut) + 1).reshape(-1, places.shape[1])[:, ::2]
    present = np.frombuffer(taken(cut, every).buffers()[2], np.uint8)
    there[there] = (present.reshape(len(every), -1) == np.frombuffer(b"".join(literals), np.uint8)).all(1)
    return there


def pieces(data: bytes, places: Ints, kind: Any = None, valid: pa.Buffer | None = None) -> pa.Array:
    """The bytes between successive positions (N, 2K + 2) as one flat array; entries between rows are arbitrary."""
    offsets = pa.py_buffer(np.ascontiguousarray(places))
    return pa.Array.from_buffers(kind or pa.large_binary(), places.size - 1, [valid, offsets, pa.py_buffer(data)])


def taken(cut: pa.Array, which: Ints) -> pa.Array:
    """The entries `which` of an array, in that order. (pa.array of a NumPy array would import pandas.)"""
    return cut.take(pa.Array.from_buffers(pa.int64(), which.size, [None, pa.py_buffer(np.ascontiguousarray(which))]))


def _numbers(text: Bytes, data: bytes, places: Ints, which: Bools, bent: Ints) -> Floats | None:
    """The values `which` (K,) as numbers; None if one is not a number. bent: positions of points before an e."""
    begins, ends = places[:, 1:-1:2][:, which], places[:, 2::2][:, which]
    second = begins + (text[begins] == ord("-"))
    lead = text[second]
    plain = _digit(lead)
    padded = (lead == ord("0")) & _digit(text[second + 1])
    if (plain & (padded | ~_digit(text[ends - 1]))).any() or _any_inside(bent, begins, ends):
        return None  # 01, 1. or 1.e5, which the conversion would take
    chosen = np.zeros(places.shape, bool)
    columns = 2 * np.flatnonzero(which) + 1
    chosen[:, columns] = plain
    try:
        values = _cast(data, places, chosen)
    except pa.ArrowInvalid:
        return None
    if not plain.all():
        chosen[:, columns] = ~plain
        words = taken(pieces(data, places), np.flatnonzero(chosen)).dictionary_encode()
        known = [WORDS.get(word) for word in words.dictionary.to_pylist()]
        if None in known:
            return None
        values[chosen] = np.array(known, np.float64)[words.indices.to_numpy()]
    return values[:, columns]


def _add_texts(block: Block, template: Template, data: bytes, places: Ints, rows: Ints, count: int) -> bool:
    """Add the texts of `rows` to a block, texts such as "NaN" as numbers; False if one is not JSON."""
    for k in np.flatnonzero(template.quotes):
        name, first = template.names[k], np.arange(0, places.size, places.shape[1])
        coded = taken(pieces(data, places), first + 2 * k + 1).dictionary_encode()
        try:
            values = [_text(value) for value in coded.dictionary.to_pylist()]
        except ValueError:
            return False
        if not all(isinstance(value, str) for value in values):
            return False
        which, numbers = coded.indices.to_numpy(), [json_number(value) for value in values]
        if any(value is not None for value in numbers):
            column = block.columns.setdefault(name, np.full(count, math.nan))
            column[rows] = np.array(numbers, np.float64)[which]
        plain = [value if n is None else None for value, n in zip(values, numbers, strict=True)]
        texts = block.texts.setdefault(name, [None] * count)
        for row, at in zip(rows.tolist(), which.tolist(), strict=True):
            texts[row] = plain[at]
    return True


def _text(value: bytes) -> Any:
    """The text that a value spells; ValueError where it is not JSON."""
    inner = value[1:-1].decode("utf-8", "replace")
    simple = len(value) > 1 and value[0] == value[-1] == ord('"') and inner.isprintable()
    return inner if simple and not ('"' in inner or "\\" in inner) else json.loads(value.decode("utf-8", "replace"))


def _cast(data: bytes, places: Ints, chosen: Bools) -> Floats:
    """The chosen entries (N, 2K + 2) as numbers; the other entries are arbitrary."""
    valid = pa.py_buffer(np.packbits(chosen, bitorder="little"))
    texts = pieces(data, places, pa.large_string(), valid)
    values = np.frombuffer(texts.cast(pa.float64()).buffers()[1], np.float64, len(texts))
    return np.append(values, math.nan).reshape(places.shape)


def _any_inside(points: Ints, begins: Ints, ends: Ints) -> bool:
    """Whether any of the `points` lies between a beginning and its end; all arguments ascend."""
    if not len(points):
        return False
    return bool((np.searchsorted(begins.ravel(), points) > np.searchsorted(ends.ravel(), points)).any())


def _digit(text: Bytes) -> Bools:
    return text - np.uint8(ord("0")) < 10
