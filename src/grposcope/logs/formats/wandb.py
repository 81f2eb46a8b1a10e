"""Weights & Biases runs into rows: .wandb files, also of offline and crashed runs, and charts exported as CSV.

A .wandb file is a log in LevelDB's framing (blocks of 32 KiB; each record has a CRC-32, a length, and whether it is
whole or a first, middle or last part), and each record is a protobuf message. Only the history, the configuration and
the exit code are read. The wandb package is not needed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.files import json_value
from grposcope.logs.columns import ColumnBuilder, RawLog
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import ExactReader, LogFile
from grposcope.logs.formats.protobuf import child, fields, text
from grposcope.logs.hints import Hints

MAGIC = b":W&B"
BLOCK = 32768
LONGEST = 256 << 20
"""Length in bytes of a record beyond which the file is taken as damaged."""

_HEADER = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18  # fields of wandb's Record


def _run_files(folder: Path) -> list[Path]:
    """The .wandb files in a run's folder, in a folder of runs, or in the wandb/ below."""
    patterns = ("*.wandb", "*run-*/*.wandb", "wandb/*run-*/*.wandb")
    return sorted({path.resolve() for pattern in patterns for path in folder.glob(pattern)})


def _read(file: LogFile, hints: Hints) -> RawLog:
    """The rows of a .wandb file, or of the only one in a folder; UserError where it has several."""
    if file.path.is_dir():
        records = _run_files(file.path)
        if len(records) > 1:
            names = ", ".join(path.parent.name for path in records[:5])
            raise UserError(f"{file.path}: {len(records)} W&B runs ({names}); give the .wandb file of one")
        file = LogFile(records[0])
    rows = ColumnBuilder()
    config: dict[str, Any] = {}
    status, broken, place, title = "unknown", 0, 0, ""
    for record in _records(file):
        try:
            for number, value in fields(record):
                if number == _HISTORY:
                    place += 1
                    rows.row(place, _history(child(value)))
                elif number == _CONFIG:
                    _configure(config, child(value))
                elif number == _RUN:
                    for part, inner in fields(child(value)):
                        if part == 4:
                            _configure(config, child(inner))
                        elif part == 8:
                            title = text(inner)
                elif number == _EXIT:
                    code = dict(fields(child(value))).get(1, 0)
                    status = "finished" if code == 0 else "failed"
        except ValueError:
            broken += 1
    if broken:
        file.notes.append(f"{broken} records are damaged and were left out")
    if not len(rows):
        raise UserError(f"{file.path} holds no history; the run logged nothing, or the start of the file is missing")
    return RawLog(file.path, rows, status=status, notes=file.notes, logged=config, place="history row", name=title)


def _history(message: bytes) -> dict[str, Any]:
    values: dict[str, Any] = {}
    step: int | None = None
    for number, value in fields(message):
        if number == 1:
            key, content = _item(child(value))
            values[key] = content
        elif number == 2:
            inner = dict(fields(child(value))).get(1, 0)
            step = inner if isinstance(inner, int) else None
    if step is not None:
        values.setdefault("_step", step)
    return values


def _configure(config: dict[str, Any], message: bytes) -> None:
    for number, value in fields(message):
        if number == 1:
            key, content = _item(child(value))
            if key and key != "_wandb":
                config[key] = content


def _item(message: bytes) -> tuple[str, Any]:
    """(key, value) of an item of the history or the configuration."""
    key, nested, content = "", [], None
    for number, value in fields(message):
        if number == 1:
            key = text(value)
        elif number == 2:
            nested.append(text(value))
        elif number == 16:
            try:
                content = json_value(text(value))
            except (ValueError, RecursionError):
                content = text(value)[:200]
    return key or "/".join(nested), content


def _records(file: LogFile) -> Iterator[bytes]:
    """Records of the log. Those with a wrong checksum and a cut last one are left out, with a note."""
    stream = ExactReader(file)
    head = stream.take(7)
    if head[:4] != MAGIC:
        raise UserError(f"{file.path} is not a .wandb file; give the one in the run's folder")
    parts: list[bytes] = []
    size, wrong = 0, 0
    while True:
        left = BLOCK - stream.at % BLOCK
        if left < _HEADER.size:
            stream.take(left)
            continue
        head = stream.take(_HEADER.size)
        if len(head) < _HEADER.size:
            cut = bool(head.strip(b"\0"))
            break
        checksum, length, kind = _HEADER.unpack(head)
        if kind == 0 and length == 0 and checksum == 0:  # room that was set aside and never written
            stream.take(left - _HEADER.size)
            continue
        data = stream.take(length)
        if len(data) < length:
            cut = True
            break
        if zlib.crc32(data, zlib.crc32(bytes([kind]))) != checksum:
            wrong += 1
            parts, size = [], 0
            rest = BLOCK - stream.at % BLOCK  # lengths cannot be trusted: go on with the next block
            if rest < BLOCK:
                stream.take(rest)
            continue
        if kind == _WHOLE:
            yield data
        elif kind == _FIRST:
            parts, size = [data], length
        elif kind in (_MIDDLE, _LAST) and parts:
            parts.append(data)
            size += length
            if size > LONGEST:
                parts, size, wrong = [], 0, wrong + 1
            elif kind == _LAST:
                yield b"".join(parts)
                parts, size = [], 0
    if wrong:
        file.notes.append(f"{wrong} records have a wrong checksum and were left out, with what follows in their blocks")
    if cut or parts:
        file.notes.append("the last record is unfinished and was left out")


KIND = LogKind(_read, magic=MAGIC, folder=lambda folder: bool(_run_files(folder)))
