"""Rows of JSON-lines files that grow, kept from one reading to the next, so that only what was appended is parsed.

The result is that of reading the file whole. It is read whole where its last line no longer stands where it was, as
after a resume that cut it back, where it is compressed, and where it is so large that keeping its rows would cost more
than reading them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import IO, Any

from grposcope.core.files import opened
from grposcope.logs.columns import ColumnBuilder
from grposcope.logs.hints import Hints

LARGEST = 64 << 20
"""Bytes of a file up to which its rows are kept."""

FILES = 64
"""Files whose rows are kept; the one that was read longest ago is forgotten."""


@dataclass(frozen=True)
class GrowingHints(Hints):
    """What the user says of a log that is read again and again as it grows, with the rows that were read before."""

    kept: KeptRows = field(default_factory=lambda: KeptRows(), compare=False)

    @classmethod
    def of(cls, hints: Hints) -> GrowingHints:
        """The same hints with nothing read yet."""
        return cls(**{Hint.name: getattr(hints, Hint.name) for Hint in fields(Hints)})


Parse = Callable[[bytes], Mapping[str, Any] | None]


@dataclass
class KeptFile:
    """The whole lines of a file that were read. offset: bytes of them; lines: their number; last: the last of them.

    rows: those that are objects; bad: numbers of the lines that are not. notes: what a reader says of the rows.
    read: bytes that were read of the file altogether.
    """

    inode: int
    offset: int = 0
    lines: int = 0
    last: bytes = b""
    rows: ColumnBuilder = field(default_factory=ColumnBuilder)
    bad: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    read: int = 0

    def continues(self, file: IO[bytes]) -> bool:
        """Whether the last line that was read still stands where it was."""
        file.seek(self.offset - len(self.last))
        return file.read(len(self.last)) == self.last


class KeptRows:
    """The rows of files by their path, and what must be known of a reader that takes other rows of the same file.

    rollouts: by path, what a reader of rollouts keeps of a file.
    """

    def __init__(self) -> None:
        self.rollouts: dict[Path, Any] = {}
        self._files: dict[tuple[Path, str], KeptFile] = {}

    def read(
        self, path: Path, parse: Parse, add: Callable[[KeptFile, Mapping[str, Any]], Mapping[str, Any]], kind: str = ""
    ) -> tuple[KeptFile, bytes] | None:
        """The file with all of its whole lines, and the unfinished line after them; None where rows are not kept.

        parse: a line as an object, None if it is none. add: the values of its row. kind: tells readers apart.
        """
        about = path.stat()
        if about.st_size > LARGEST:
            self._files.pop((path, kind), None)
            return None
        with opened(path) as file:
            if file.read(2) == b"\x1f\x8b":
                return None
            kept = self._files.pop((path, kind), None)
            if kept is None or kept.inode != about.st_ino or not kept.continues(file):
                kept = KeptFile(about.st_ino)
            file.seek(kept.offset)
            data = file.read()
        self._files[path, kind] = kept
        while len(self._files) > FILES:
            self._files.pop(next(iter(self._files)))
        kept.read += len(data)
        whole, newline, rest = data.rpartition(b"\n")
        for line in whole.split(b"\n") if newline else []:
            kept.lines += 1
            row = parse(line)
            if row is not None:
                kept.rows.row(kept.lines, add(kept, row))
            elif line.strip(b"\0 \t\r\xef\xbb\xbf"):
                kept.bad.append(kept.lines)
        if newline:
            kept.offset += len(whole) + 1
            kept.last = whole.rpartition(b"\n")[2] + newline
        return kept, rest
