"""Log files as streams: gzip or plain, in pieces of whole lines, without the dirt of terminals.

A file is never held whole, except small documents (`document`), and damage at its end is a note and
not an error: logs are cut off all the time.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from grposcope.errors import UserError

PIECE = 1 << 20
"""Bytes that are read at a time."""

LONGEST = 64 << 20
"""Bytes of a line beyond which it is left out."""

LARGEST = 1 << 30
"""Bytes of a document that has to be held whole."""

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_RAY = re.compile(r"^\s*\((?:[\w.:<>]+(?: [\w.:<>]+)* )?pid=\d+(?:, ip=[^)]*)?\)(?: \[repeated \d+x[^\]]*\])?\s?")
_VALUE = (
    r"(?:(?:np|numpy)\.\w+\(|tensor\()?"
    r"(?P<value>[-+]?(?:\d[\d_]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf|NaN|[Ii]nfinity)|None|True|False"
    r"|'[^'\n]{0,300}'|\"[^\"\n]{0,300}\")(?P<open>[,)}\]\s]|$)"
)
_PAIR = re.compile(r"(?P<quote>['\"])(?P<key>[^'\"\n]{1,300})(?P=quote)\s*:\s*" + _VALUE)
_WRAPPED = re.compile(r"(?:np|numpy)\.\w+\((.*)\)|tensor\((.*?)(?:, .*)?\)")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|nan|inf(?:inity)?)", re.I)


class Source:
    """A file to be read once, and what had to be left out of it.

    notes: a sentence for each thing that was left out.
    """

    def __init__(self, path: Path):
        self.path = path
        self.notes: list[str] = []

    def blocks(self, size: int = PIECE) -> Iterator[bytes]:
        """The content in blocks, decompressed; a compressed file that is cut off ends with a note."""
        with self.path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if packed:
                yield from self._unpacked(file, size)
                return
            while block := file.read(size):
                yield block

    def _unpacked(self, file: IO[bytes], size: int) -> Iterator[bytes]:
        """Blocks out of gzip members, all that is there also where the last is cut off."""
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

    def head(self, size: int = 1 << 16) -> bytes:
        """The first bytes, decompressed; what is there of them in a damaged file."""
        found = b""
        for block in Source(self.path).blocks(4096):
            found += block
            if len(found) >= size:
                break
        return found[:size]

    def pieces(self, size: int = PIECE) -> Iterator[tuple[int, bytes]]:
        """Whole lines, about `size` bytes, with the number of the first; only the last of all may lack its newline."""
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
        """(line number, text without its newline, whether it had one); carriage returns end a line without counting."""
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

    def document(self) -> Any:
        """The file as one JSON document; UserError where it is none."""
        parts, size = [], 0
        for block in self.blocks():
            parts.append(block)
            size += len(block)
            if size > LARGEST:
                raise UserError(f"{self.path}: one JSON document of over {LARGEST >> 20} MiB; export it as JSON lines")
        try:
            return json.loads(b"".join(parts))
        except RecursionError:
            raise UserError(f"{self.path}: nested too deeply to be a log; give another file") from None
        except ValueError as error:
            raise UserError(
                f"{self.path}: not valid JSON ({error}), perhaps cut off while it was copied; copy it again, or give "
                "the one of an earlier checkpoint"
            ) from None


def clean(text: str) -> str:
    """A console line without terminal escapes and without the prefix that Ray puts before each."""
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "pid=" in text[:200] and (match := _RAY.match(text[:400])):
        return text[match.end() :]
    return text


def number(text: str) -> float | None:
    """A printed number: also nan, inf, True, None, np.float64(…) and tensor(…); None for anything else."""
    text = text.strip()
    if len(text) > 400:
        return None
    if "(" in text and (match := _WRAPPED.fullmatch(text)):
        text = (match[1] or match[2] or "").strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    return {"None": math.nan, "null": math.nan, "True": 1.0, "False": 0.0, "true": 1.0, "false": 0.0}.get(text)


def pairs(text: str) -> dict[str, float | str]:
    """The 'key': value pairs of a printed Python dict, strings of numbers as numbers; nothing is evaluated."""
    found: dict[str, float | str] = {}
    for match in _PAIR.finditer(text):
        raw = match["value"]
        inner = raw[1:-1] if raw[0] in "'\"" else raw
        value = number(inner)
        found[match["key"]] = inner if value is None else value
    return found
