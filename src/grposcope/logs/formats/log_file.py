"""Log files as streams, plain or gzip: in blocks, in pieces of whole lines, or line by line.

A file is never held whole, except small documents (`document`). Damage at the end of a file is a note and not an error,
since logs are cut off all the time.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import IO, Any, Literal

from grposcope.core.errors import UserError
from grposcope.core.files import json_object, json_value, opened, unreadable

Shape = Literal["binary", "text", "json lines", "json document"]
"""Form of the content of a file."""

PIECE = 1 << 20
"""Number of bytes that are read at a time."""

LONGEST = 64 << 20
"""Length in bytes beyond which a line is left out."""

LARGEST = 1 << 30
"""Length in bytes beyond which a document, which has to be held whole, is refused."""

_HEAD = 1 << 16
_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\b\x1b"))  # characters that no text has
_PADDING = b"\0 \t\r\xef\xbb\xbf"
_BARE = re.compile(r"(?<=[:\[, ])(?:[-+]?(?P<nan>nan)|\+?(?P<sign>-?)inf(?:inity)?)(?=\s*[,\]}])", re.I)


class LogFile:
    """A log on disk, a file or a folder of files, and what had to be left out when it was read.

    content: the bytes of a text that has no file of its own, such as what the cells of a notebook printed.
    notes: a sentence for each thing that was left out.
    """

    def __init__(self, path: Path, content: bytes | None = None):
        self.path, self.content = path, content
        self.notes: list[str] = []

    def blocks(self, size: int = PIECE) -> Iterator[bytes]:
        """The content in blocks of `size` bytes, decompressed; a compressed file that is cut off ends with a note."""
        with self._opened() as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if packed:
                yield from self._unpacked(file, size)
                return
            while block := file.read(size):
                yield block

    def _opened(self) -> IO[bytes]:
        try:
            return opened(self.path) if self.content is None else io.BytesIO(self.content)
        except OSError as error:
            raise unreadable(self.path, error) from None

    def _unpacked(self, file: IO[bytes], size: int) -> Iterator[bytes]:
        """Blocks of all gzip members, as far as they go where the last is cut off."""
        member, waiting = zlib.decompressobj(31), b""
        begun = False
        try:
            while True:
                waiting = waiting or file.read(1 << 18)
                if not waiting:
                    break
                block = member.decompress(waiting, size)
                waiting, begun = member.unconsumed_tail, True
                if block:
                    yield block
                if member.eof:
                    waiting = member.unused_data.lstrip(b"\0")
                    member, begun = zlib.decompressobj(31), bool(waiting)
            if block := member.flush():
                yield block
        except zlib.error as error:
            self.notes.append(f"{self.path.name}: the compressed data is damaged ({error}); what follows is missing")
            return
        if begun:
            self.notes.append(f"{self.path.name}: the compressed data is cut off; what follows is missing")

    @cached_property
    def head(self) -> bytes:
        """The first 64 KiB, decompressed; fewer in a damaged file."""
        head = b""
        for block in LogFile(self.path, self.content).blocks(4096):
            head += block
            if len(head) >= _HEAD:
                break
        return head[:_HEAD]

    @cached_property
    def not_text(self) -> str:
        """Why the content is not text that can be read, and the remedy; empty for text."""
        head = self.head
        if (head[:1] == b"\x80" and head[1:2] <= b"\x05") or head.startswith(b"PK\x03\x04"):
            return (
                " is a pickle or an archive, and opening it could run code; give the trainer's log, and settings "
                "separately"
            )
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            return ": text in UTF-16; save it as UTF-8"
        if len(head.translate(None, _CONTROL)) < 0.98 * len(head.rstrip(b"\0")):
            return " is a binary file in no known format; give the trainer's log"
        return ""

    @cached_property
    def shape(self) -> Shape:
        """Form of the content, judged by its beginning."""
        start = self._start
        if self.not_text:
            return "binary"
        if start[:1] not in (b"{", b"["):
            return "text"
        row = self.first_row
        if row is None:  # of JSON lines, only the first may be broken
            later = any(json_row(line) for line in self.head.split(b"\n")[:50] if line.startswith(b"{"))
            return "json lines" if later else "json document"
        of_columns = bool(row) and all(isinstance(value, list) for value in row.values())
        of_rows = any(isinstance(value, list) and value and isinstance(value[-1], dict) for value in row.values())
        parts = start.split(b"\n", 2)
        alone = len(parts) < 3 and json_row(parts[-1] if len(parts) == 2 else b"") is None
        document = "log_history" in row or "nbformat" in row or (alone and (of_columns or of_rows))
        return "json document" if document else "json lines"

    @cached_property
    def first_row(self) -> dict[str, Any] | None:
        """The first line as a JSON object, however wide; None if it is none."""
        if self._start[:1] not in (b"{", b"["):
            return None
        line, newline, _ = self._start.partition(b"\n")
        if not newline and len(self.head) == _HEAD:
            pieces = (piece for _, piece in LogFile(self.path, self.content).pieces())
            line = next(pieces, b"").removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)[0]
        return json_row(line)

    @property
    def _start(self) -> bytes:
        return self.head.removeprefix(b"\xef\xbb\xbf").lstrip()

    def pieces(self, size: int = PIECE) -> Iterator[tuple[int, bytes]]:
        """(number of the first line, about `size` bytes of whole lines); only the last line may lack its newline."""
        number, rest, skipping = 1, [b""], False
        held = 0
        for block in self.blocks(size):
            if skipping:
                end = block.find(b"\n")
                if end < 0:
                    continue
                block, skipping, number = block[end + 1 :], False, number + 1
            cut = block.rfind(b"\n") + 1
            if cut:
                piece = b"".join([*rest, block[:cut]])
                yield number, piece
                number += piece.count(b"\n")
                rest, held = [block[cut:]], len(block) - cut
                continue
            rest.append(block)
            held += len(block)
            if held > LONGEST:
                self.notes.append(f"{self.path.name}, line {number}: longer than {LONGEST >> 20} MiB, left out")
                rest, held, skipping = [b""], 0, True
        last = b"".join(rest)
        if last:
            yield number, last

    def lines(self) -> Iterator[tuple[int, str, bool]]:
        """(line number, text without newline, whether it had one); a carriage return ends a text, not its line."""
        for first, piece in self.pieces():
            whole = piece.endswith(b"\n")
            parts = piece.split(b"\n")
            if whole:
                parts.pop()
            for k, part in enumerate(parts):
                ended = whole or k < len(parts) - 1
                text = part.decode("utf-8", "replace").removeprefix("\ufeff")
                if "\r" not in text:
                    yield first + k, text, ended
                    continue
                bits = text.removesuffix("\r").split("\r")
                for j, bit in enumerate(bits):
                    yield first + k, bit, ended or j < len(bits) - 1

    @cached_property
    def document(self) -> Any:
        """The content as one JSON document; UserError where it is none."""
        parts, size = [], 0
        for block in self.blocks():
            parts.append(block)
            size += len(block)
            if size > LARGEST:
                raise UserError(
                    f"{self.path} is one JSON document of over {LARGEST >> 20} MiB; export it as JSON lines"
                )
        try:
            return json_value(b"".join(parts))
        except RecursionError:
            raise UserError(f"{self.path}: too deeply nested for a log; give another file") from None
        except ValueError as error:
            raise UserError(
                f"{self.path}: not valid JSON ({error}); the file may have been cut off while it was copied: copy "
                "it again, or give that of an earlier checkpoint"
            ) from None

    @cached_property
    def is_document(self) -> bool:
        """Whether the whole content is one JSON document, such as a notebook with indents."""
        try:
            return self.shape == "json document" and self.document is not None
        except UserError:
            return False


class ExactReader:
    """Reads a file by exact numbers of bytes; at: how many were read."""

    def __init__(self, file: LogFile):
        self.at = 0
        self._blocks = file.blocks()
        self._buffer, self._place = b"", 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes, fewer only at the end of the file."""
        if len(self._buffer) - self._place < count:
            parts = [self._buffer[self._place :]]
            size = len(parts[0])
            while size < count and (block := next(self._blocks, b"")):
                parts.append(block)
                size += len(block)
            self._buffer, self._place = b"".join(parts), 0
        data = self._buffer[self._place : self._place + count]
        self._place += len(data)
        self.at += len(data)
        return data


def json_row(line: bytes) -> dict[str, Any] | None:
    """A line of a log as a JSON object; None if it is none. Bytes that are not UTF-8 are replaced.

    Of a line that is no JSON because of a bare nan or inf, as Python prints them, these are taken for what they say.
    """
    text = line.strip(_PADDING).decode("utf-8", "replace")
    try:
        return json_object(text, "")
    except UserError:
        mended = _BARE.sub(lambda word: "NaN" if word["nan"] else f"{word['sign']}Infinity", text)
    try:
        return json_object(mended, "") if mended != text else None
    except UserError:
        return None


def fast_json_row(line: bytes) -> dict[str, Any] | None:
    """As `json_row`, by orjson where it is installed: eight times as fast on numbers.

    What orjson refuses goes to `json_row`: NaN and Infinity as Python writes them, bytes that are not UTF-8.
    """
    if (loads := _loads()) is None:
        return json_row(line)
    try:
        row = loads(line.strip(_PADDING))
    except ValueError:
        return json_row(line)
    return row if isinstance(row, dict) else None


@cache
def _loads() -> Callable[[bytes], Any] | None:
    try:
        from orjson import loads
    except ImportError:
        return None
    found: Callable[[bytes], Any] = loads
    return found


def first_few(numbers: list[int], limit: int = 5) -> str:
    """The first numbers of a list, such as "3, 7, 8, …", for a note."""
    return ", ".join(map(str, numbers[:limit])) + (", …" if len(numbers) > limit else "")
