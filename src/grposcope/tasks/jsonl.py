"""Problems as JSON lines: rows with the fields that a task needs, and values as the text of an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from grposcope.errors import UserError
from grposcope.files import json_lines


def read_rows(
    path: str | PathLike[str], required: Sequence[str | tuple[str, ...]] = ()
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number (from 1) and object of every line that is not blank, read as they are asked for; gzip is recognised.

    required: fields that every object must have; a tuple of names means that one of them will do.

    Raises UserError where the file cannot be read, is empty, or has a line that is no such object.
    """
    empty = True
    for number, row in json_lines(Path(path), remedy="write one JSON object a line"):
        _check(row, required, f"{path}, line {number}")
        empty = False
        yield number, row
    if empty:
        raise UserError(f"{path} is empty; it should hold one JSON object a line")


def first(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """The first of these names that is a field of the row, or None."""
    return next((name for name in names if name in row), None)


def as_text(value: Any) -> str:
    """A JSON value as the text of an answer: 27.0 is "27", null is "", a list is joined by commas."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list):
        return ", ".join(as_text(item) for item in value)
    return str(value).strip()


def _check(row: Mapping[str, Any], required: Sequence[str | tuple[str, ...]], where: str) -> None:
    """UserError for a row that lacks a required field, or whose text no tokenizer can encode."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UserError(f"{where}: holds half of a surrogate pair (\\ud…), which is no text; mend the line") from None
    for names in required:
        names = (names,) if isinstance(names, str) else names
        if first(row, names) is None:
            wanted = " or ".join(repr(name) for name in names)
            raise UserError(
                f"{where} has no field {wanted}; its fields are {', '.join(row) or 'none'}; add or rename it"
            )
