"""Kinds of logs as data: what the beginning of a file of a kind looks like, and the function that reads its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grposcope.logs.columns import RawLog
from grposcope.logs.formats import parquet
from grposcope.logs.formats.log_file import LogFile, Shape
from grposcope.logs.hints import Hints

Fields = Mapping[str, type | re.Pattern[str]]
"""Fields of an object, each with the type of its value (`object` for any), or with the pattern of a whole text."""

LINES: tuple[Shape, ...] = ("json lines",)
OBJECTS: tuple[Shape, ...] = ("json lines", "json document")
"""Shapes of files that may begin with an object in a line."""


@dataclass(frozen=True)
class LogKind:
    """A kind of log: what a file of it looks like at its beginning, and how its rows are read.

    read: the rows, given the file or folder and what the user says of it.
    A file is of this kind where all that is said of these holds: magic, its first bytes; shapes, of which its content
    has one; rows, of which its first row has all fields of one; document, the fields of a JSON document; columns,
    which a Parquet file has; file, a test for what these cannot say.
    printed: a line that a program of this kind prints, instead of these; it is searched for in the beginning of a
    text, then in all of it.
    text: the text that a document of this kind holds and which is read in its place, empty where there is none.
    folder: whether a folder holds one log of this kind. generic: whether anybody's log may be of this kind, so that
    all others are asked first.
    """

    read: Callable[[LogFile, Hints], RawLog]
    magic: bytes = b""
    shapes: tuple[Shape, ...] = ()
    rows: tuple[Fields, ...] = ()
    document: Fields = field(default_factory=dict)
    columns: frozenset[str] = frozenset()
    file: Callable[[LogFile], bool] | None = None
    printed: re.Pattern[bytes] | None = None
    text: Callable[[Mapping[str, Any]], bytes] | None = None
    folder: Callable[[Path], bool] | None = None
    generic: bool = False

    def recognises(self, file: LogFile) -> bool:
        """Whether the file is of this kind, by its beginning."""
        if self.printed is not None:
            may_be_printed = file.shape == "text" or (file.shape == "json document" and file.first_row is None)
            return may_be_printed and self.printed.search(file.head) is not None
        return (
            any((self.magic, self.shapes, self.rows, self.document, self.columns, self.file))
            and file.head.startswith(self.magic)
            and (not self.shapes or file.shape in self.shapes)
            and (not self.rows or any(_is_object_with(fields, file.first_row) for fields in self.rows))
            and (not self.document or (file.shape == "json document" and _is_object_with(self.document, file.document)))
            and (not self.columns or self.columns <= set(parquet.column_names(file.path)))
            and (self.file is None or self.file(file))
        )

    def recognises_folder(self, folder: Path) -> bool:
        """Whether the folder holds one log of this kind."""
        return self.folder is not None and self.folder(folder)


def _is_object_with(fields: Fields, value: Any) -> bool:
    """Whether a value is an object that has all of these fields."""
    return isinstance(value, dict) and all(
        isinstance(value.get(name), str) and form.fullmatch(value[name]) is not None
        if isinstance(form, re.Pattern)
        else name in value and isinstance(value[name], form)
        for name, form in fields.items()
    )
