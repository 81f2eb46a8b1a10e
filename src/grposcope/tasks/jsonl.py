"""Reading JSON lines, one object a line, with every complaint in one place.

A complaint names the file, the line and, where there is one, the field, and says what to do.
Blank lines are skipped, gzip is recognised by its first bytes, a byte-order mark is dropped.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import IO, Any

from grposcope.errors import UserError

Line = tuple[int, dict[str, Any]]
Required = Sequence[str | tuple[str, ...]]

_GZIP = b"\x1f\x8b"


def read_jsonl(path: str | PathLike[str], required: Required = ()) -> Iterator[Line]:
    """The line number (from 1) and the object of every line that is not blank, read as they are asked for.

    required: fields that every object must have; a tuple of names means that one of them will do.

    Raises UserError where the file cannot be read, is empty, or has a line that is no such object.
    """
    path = Path(path)
    number, found = 0, False
    try:
        with _opened(path) as lines:
            for number, raw in enumerate(lines, start=1):
                if raw.strip():
                    found = True
                    yield number, _checked(_object(raw, f"{path}, line {number}"), required, f"{path}, line {number}")
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; give the path of a JSONL file") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give the path of a JSONL file in it") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"{path}: the gzip data breaks off after line {number} ({error}); copy the file again"
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}); check the path and its rights") from None
    if not found:
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


def _opened(path: Path) -> IO[bytes]:
    with open(path, "rb") as file:
        zipped = file.read(2) == _GZIP
    return gzip.open(path, "rb") if zipped else open(path, "rb")  # type: ignore[return-value]


def _object(raw: bytes, where: str) -> dict[str, Any]:
    """The object a line spells."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: byte {error.start + 1} is not UTF-8; save the file as UTF-8") from None
    try:
        row = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UserError(f"{where}: holds half of a surrogate pair (\\ud…), which is no text; mend the line") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not JSON ({error}); write one object a line") from None
    if not isinstance(row, dict):
        raise UserError(f"{where} is a JSON {type(row).__name__}, not an object; write one object a line, no array")
    return row


def _checked(row: dict[str, Any], required: Required, where: str) -> dict[str, Any]:
    """The row, which has the required fields."""
    for names in required:
        names = (names,) if isinstance(names, str) else names
        if first(row, names) is None:
            wanted = " or ".join(repr(name) for name in names)
            raise UserError(
                f"{where} has no field {wanted}; its fields are {', '.join(row) or 'none'}; add or rename it"
            )
    return row
