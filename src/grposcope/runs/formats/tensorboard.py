"""Reads TensorBoard event files: all scalars of one run, also from several files of a resumed one.

An event file is a sequence of records: length (8 bytes), its checksum (4), an Event message, its
checksum (4). Scalars stand in it as simple_value or as a tensor of one float. Nothing is thinned out,
as TensorBoard's own reader does by default, and the tensorboard package is not needed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grposcope.errors import UserError
from grposcope.runs.columns import Frame
from grposcope.runs.formats.protobuf import Value, child, fields, floats, text
from grposcope.runs.formats.source import Source
from grposcope.runs.normalize import Log, assemble
from grposcope.runs.run import Run

LONGEST = 256 << 20
"""Bytes of a record beyond which the file is taken as damaged."""

_HEAD = struct.Struct("<QI")
_DEPTH = 4


def recognises(head: bytes) -> bool:
    """Whether a file begins with a record whose length has its right checksum."""
    if len(head) < _HEAD.size:
        return False
    length, checksum = _HEAD.unpack(head[: _HEAD.size])
    return length <= LONGEST and _masked(_crc32c(head[:8])) == checksum


def files(folder: Path) -> list[Path]:
    """Event files in a folder and a few levels below it, in order of their names, which begin with the time."""
    found: list[Path] = []
    level = [folder]
    for _ in range(_DEPTH):
        below: list[Path] = []
        for place in level:
            for path in sorted(place.iterdir()):
                if path.is_dir():
                    below.append(path)
                elif "tfevents" in path.name:
                    found.append(path)
        level = below
    return found


def read(place: Path, given: Mapping[str, Any]) -> Run:
    """The run in an event file or a folder of them; UserError where a folder has several runs."""
    paths = files(place) if place.is_dir() else [place]
    by_folder: dict[Path, list[Path]] = {}
    for path in paths:
        by_folder.setdefault(path.parent, []).append(path)
    found: list[tuple[Path, Frame, dict[str, Any], list[str]]] = []
    for folder, some in by_folder.items():
        frame = Frame()
        config: dict[str, Any] = {}
        notes: list[str] = []
        for path in some:
            source = Source(path)
            _fill(frame, source, config)
            notes += source.notes
        if len(frame):
            found.append((folder, frame, config, notes))
    if not found:
        raise UserError(f"{place}: no scalars in its event files; the run has not logged yet, or logs elsewhere")
    large = [entry for entry in found if len(entry[1]) > 1] or found  # hyperparameters get a file with one row
    if len(large) > 1:
        names = ", ".join(str(folder.relative_to(place)) for folder, *_ in large[:5])
        raise UserError(f"{place}: event files of {len(large)} runs ({names}); give the folder of one")
    folder, frame, config, notes = large[0]
    return assemble(Log(place, frame, notes=notes, logged=config, given=given, place="row", name=folder.resolve().name))


def _fill(frame: Frame, source: Source, config: dict[str, Any]) -> None:
    """A row for every run of events with one step."""
    row: dict[str, float] = {}
    at: int | None = None
    broken = 0
    for record in _records(source):
        try:
            step, wall, scalars = _event(record, config)
        except ValueError:
            broken += 1
            continue
        for tag, value in scalars:
            if step != at or tag in row:
                if row and at is not None:
                    frame.row(len(frame) + 1, {"step": at, **row})
                row, at = {}, step
                row["wall_time"] = wall
            row[tag if tag != "step" else "step (tag)"] = value
    if row and at is not None:
        frame.row(len(frame) + 1, {"step": at, **row})
    if broken:
        source.notes.append(f"{source.path.name}: {broken} records are damaged and were left out")


def _event(message: bytes, config: dict[str, Any]) -> tuple[int, float, list[tuple[str, float]]]:
    """Step, time and scalars of an event; the trainer's arguments, if it logged them as text, into `config`."""
    step, wall = 0, float("nan")
    found: list[tuple[str, float]] = []
    for number, value in fields(message):
        if number == 1:
            wall = floats(value, "d")[0]
        elif number == 2 and isinstance(value, int):
            step = value if value < 1 << 63 else value - (1 << 64)
        elif number == 5:
            for part, inner in fields(child(value)):
                if part == 1:
                    found += _value(child(inner), config)
    return step, wall, found


def _value(message: bytes, config: dict[str, Any]) -> Iterator[tuple[str, float]]:
    tag, scalar = "", None
    for number, value in fields(message):
        if number == 1:
            tag = text(value)
        elif number == 2:
            scalar = floats(value, "f")[0]
        elif number == 8:
            scalar = _tensor(tag, value, config)
    if tag and scalar is not None:
        yield tag, scalar


def _tensor(tag: str, value: Value, config: dict[str, Any]) -> float | None:
    """The number in a tensor of one; None for any other. Text of trainer arguments goes to `config`."""
    kind, numbers = 0, []
    for number, inner in fields(child(value)):
        if number == 1 and isinstance(inner, int):
            kind = inner
        elif number == 4 and kind in (1, 2):
            numbers += floats(inner, "f" if kind == 1 else "d")
        elif number == 5:
            numbers += floats(inner, "f")
        elif number == 6:
            numbers += floats(inner, "d")
        elif number == 8 and tag.startswith("args"):
            try:
                content = json.loads(text(inner))
            except (ValueError, RecursionError):
                continue
            config.update(content if isinstance(content, dict) else {})
    return numbers[0] if len(numbers) == 1 else None


def _records(source: Source) -> Iterator[bytes]:
    buffer, blocks = b"", source.blocks(1 << 20)
    while True:
        while len(buffer) < _HEAD.size:
            block = next(blocks, b"")
            if not block:
                if buffer:
                    source.notes.append(f"{source.path.name}: the last record is unfinished and was left out")
                return
            buffer += block
        length, checksum = _HEAD.unpack(buffer[: _HEAD.size])
        if length > LONGEST or (length > len(buffer) and _masked(_crc32c(buffer[:8])) != checksum):
            source.notes.append(f"{source.path.name}: damaged from some record on; what follows was left out")
            return
        whole = _HEAD.size + length + 4
        pieces, size = [buffer], len(buffer)
        while size < whole:
            block = next(blocks, b"")
            if not block:
                source.notes.append(f"{source.path.name}: the last record is unfinished and was left out")
                return
            pieces.append(block)
            size += len(block)
        buffer = b"".join(pieces) if len(pieces) > 1 else buffer
        at = 0
        while len(buffer) - at >= _HEAD.size:  # all records that are already here
            length, _ = _HEAD.unpack(buffer[at : at + _HEAD.size])
            whole = _HEAD.size + length + 4
            if len(buffer) - at < whole:
                break
            yield buffer[at + _HEAD.size : at + _HEAD.size + length]
            at += whole
        buffer = buffer[at:]


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE = _crc_table()


def _crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli)."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _masked(checksum: int) -> int:
    """A checksum as event files store it."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
