"""The JSON-lines files of our record: complete lines, their rows, and their columns.

Columns are read by layout where all lines hold numbers only, else line by line, which also finds the line that is
broken. An unfinished last line, as in a run that is being written, is left out.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.errors import UserError
from grposcope.runs.columns import flat
from grposcope.runs.formats import json_templates
from grposcope.runs.run import Floats

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How the record writes numbers that JSON does not have."""


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
    if not data:
        return {}
    found = json_templates.table(data)
    return _columns_by_row(lines) if found is None or found.texts else found.columns


def _columns_by_row(lines: Lines) -> dict[str, Floats]:
    table = rows(lines)
    found: dict[str, Floats] = {}
    other: dict[str, int] = {}
    for place, (line, row) in enumerate(table):
        for name, raw in flat(row).items():
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
