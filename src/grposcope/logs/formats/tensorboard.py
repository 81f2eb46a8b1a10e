"""TensorBoard event files into rows: all scalars of one run, also from the several files of a resumed run.

An event file is a sequence of records: length (8 bytes), its checksum (4), an Event message, its checksum (4). A scalar
is stored as simple_value or as a tensor of one float. Every value is read (TensorBoard's own reader samples them by
default), and the tensorboard package is not needed.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import WRITTEN_NAN
from grposcope.logs.columns import ColumnBuilder, RawLog
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import ExactReader, LogFile
from grposcope.logs.formats.protobuf import Value, child, fields, text
from grposcope.logs.hints import Hints

LONGEST = 256 << 20
"""Length in bytes of a record beyond which the file is taken as damaged."""

VERDICT = "grposcope-verdict"
"""Folder below a run's that holds the verdict on it, written by a watch."""

TRAINED, APART = ("train", "training"), re.compile(r"(?i)eval|val|test|held")
"""Names of folders of the training's writer; of those of evaluations, whose tags may be the same."""

_HEAD = struct.Struct("<QI")
_DEPTH = 4
_SHORT = 1 << 16  # length in bytes up to which the checksum of the length is not computed, which takes time


def _recognises(file: LogFile) -> bool:
    """Whether the file begins with a record whose length has the right checksum."""
    head = file.head
    if len(head) < _HEAD.size:
        return False
    length, checksum = _HEAD.unpack(head[: _HEAD.size])
    return length <= LONGEST and _masked(_crc32c(head[:8])) == checksum


def _event_files(folder: Path) -> list[Path]:
    """Event files in a folder and a few levels below it, in the order of their names, which begin with the time.

    Those of our own verdict on the run are none of it.
    """
    levels = (sorted(folder.glob("*/" * depth + "*tfevents*")) for depth in range(_DEPTH))
    return [path for level in levels for path in level if path.is_file() and not is_our_verdict(str(path))]


def is_our_verdict(path: str) -> bool:
    """Whether a file is where a watch writes its verdict to, a folder of its own below that of the run."""
    parts = Path(path).parts
    return parts[-2:-1] == (VERDICT,) and "tfevents" in parts[-1]


def _read(file: LogFile, hints: Hints) -> RawLog:
    """The rows of an event file, or of a folder of them; UserError where the folder has several runs."""
    place = file.path
    paths = _event_files(place) if place.is_dir() else [place]
    by_folder: dict[Path, list[Path]] = {}
    for path in paths:
        by_folder.setdefault(path.parent, []).append(path)
    runs: list[tuple[Path, ColumnBuilder, dict[str, Any], list[str]]] = []
    for folder, events in by_folder.items():
        rows = ColumnBuilder()
        config: dict[str, Any] = {}
        notes: list[str] = []
        for path in events:
            event_file = LogFile(path)
            _fill(rows, event_file, config)
            notes += event_file.notes
        if len(rows):
            runs.append((folder, rows, config, notes))
    if not runs:
        raise UserError(f"{place}: the event files hold no scalars; the run has not logged yet, or logs elsewhere")
    large = [run for run in runs if len(run[1]) > 1] or runs  # hyperparameters get a file with one row
    if len(large) > 1 and (joined := _of_writers({folder: rows for folder, rows, *_ in large})) is not None:
        names = ", ".join(folder.name for folder, *_ in large)
        notes = [f"event files of {len(large)} writers of one run were joined by step: {names}"]
        notes += [note for *_, of_one in large for note in of_one]
        config = {key: value for _, _, of_one, _ in large for key, value in of_one.items()}
        return RawLog(place, joined, notes=notes, logged=config, place="row", name=place.resolve().name)
    if len(large) > 1:
        names = ", ".join(str(folder.relative_to(place)) for folder, *_ in large[:5])
        raise UserError(f"{place}: event files of {len(large)} runs ({names}); give the folder of one")
    folder, rows, config, notes = large[0]
    return RawLog(place, rows, notes=notes, logged=config, place="row", name=folder.resolve().name)


def _of_writers(folders: Mapping[Path, ColumnBuilder]) -> ColumnBuilder | None:
    """The rows of all folders in the order of their steps, where they are one run's; else None.

    They are where one is called train and the others by an evaluation, whose tags then get the folder in front. The
    builders are left as they are.
    """
    trained = [folder for folder in folders if folder.name.lower() in TRAINED]
    if len(trained) != 1 or not all(folder in trained or APART.search(folder.name) for folder in folders):
        return None
    if len({folder.parent for folder in folders}) != 1:
        return None
    parts = []
    for folder, rows in folders.items():
        _, columns, _ = rows.copy().finish()
        prefix = "" if folder in trained else f"{folder.name}/"
        own = ("step", "wall_time")
        named = {key: key if key in own or key.startswith(prefix) else prefix + key for key in columns}
        parts.append({named[key]: column for key, column in columns.items()})
    if not all("step" in part for part in parts):
        return None
    step = np.concatenate([part["step"] for part in parts])
    order = np.argsort(step, kind="stable")
    keys = dict.fromkeys(key for part in parts for key in part)
    joined = {
        key: np.concatenate([part.get(key, np.full(len(part["step"]), math.nan)) for part in parts])[order]
        for key in keys
    }  # fmt: skip
    builder = ColumnBuilder()
    builder.block(np.arange(1, len(step) + 1), joined)
    return builder


def _fill(rows: ColumnBuilder, file: LogFile, config: dict[str, Any]) -> None:
    """Add a row for every series of events with the same step."""
    row: dict[str, float] = {}
    at: int | None = None
    broken = 0
    for record in _records(file):
        try:
            step, wall, scalars = _event(record, config)
        except ValueError:
            broken += 1
            continue
        for tag, value in scalars:
            if step != at or tag in row:
                if row and at is not None:
                    rows.row(len(rows) + 1, {"step": at, **row})
                row, at = {}, step
                row["wall_time"] = wall
            row[tag if tag != "step" else "step (tag)"] = WRITTEN_NAN if math.isnan(value) else value
    if row and at is not None:
        rows.row(len(rows) + 1, {"step": at, **row})
    if broken:
        file.notes.append(f"{file.path.name}: {broken} records are damaged and were left out")


def _event(message: bytes, config: dict[str, Any]) -> tuple[int, float, list[tuple[str, float]]]:
    """(step, time, scalars) of an event; arguments of the trainer that were logged as text go to `config`."""
    step, wall = 0, float("nan")
    scalars: list[tuple[str, float]] = []
    for number, value in fields(message):
        if number == 1:
            wall = _floats(value, "d")[0]
        elif number == 2 and isinstance(value, int):
            step = value if value < 1 << 63 else value - (1 << 64)
        elif number == 5:
            for part, inner in fields(child(value)):
                if part == 1:
                    scalars += _value(child(inner), config)
    return step, wall, scalars


def _value(message: bytes, config: dict[str, Any]) -> Iterator[tuple[str, float]]:
    tag, scalar = "", None
    for number, value in fields(message):
        if number == 1:
            tag = text(value)
        elif number == 2:
            scalar = _floats(value, "f")[0]
        elif number == 8:
            scalar = _tensor(tag, value, config)
    if tag and scalar is not None:
        yield tag, scalar


def _tensor(tag: str, value: Value, config: dict[str, Any]) -> float | None:
    """The number in a tensor with one element, None for any other; arguments of the trainer go to `config`."""
    kind, numbers = 0, []
    for number, inner in fields(child(value)):
        if number == 1 and isinstance(inner, int):
            kind = inner
        elif number == 4 and kind in (1, 2):
            numbers += _floats(inner, "f" if kind == 1 else "d")
        elif number == 5:
            numbers += _floats(inner, "f")
        elif number == 6:
            numbers += _floats(inner, "d")
        elif number == 8 and tag.startswith("args"):
            try:
                content = json.loads(text(inner))
            except (ValueError, RecursionError):
                continue
            config.update(content if isinstance(content, dict) else {})
    return numbers[0] if len(numbers) == 1 else None


def _floats(value: Value, form: str) -> list[float]:
    """The numbers of a field, one or packed, in the struct format "f" or "d"; ValueError where one is cut off."""
    data = child(value)
    size = struct.calcsize(form)
    if len(data) % size:
        raise ValueError("numbers are cut off")
    return list(struct.unpack(f"<{len(data) // size}{form}", data))


def _records(file: LogFile) -> Iterator[bytes]:
    """Event messages of the file; a damaged record ends them, with a note, and a cut last one is left out."""
    stream = ExactReader(file)
    while head := stream.take(_HEAD.size):
        length, checksum = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, 0)
        if length > LONGEST or (length > _SHORT and _masked(_crc32c(head[:8])) != checksum):
            file.notes.append(f"{file.path.name}: damaged from some record on; what follows was left out")
            return
        message = stream.take(length + 4)
        if len(message) < length + 4:
            file.notes.append(f"{file.path.name}: the last record is unfinished and was left out")
            return
        yield message[:length]


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
    """CRC-32C (Castagnoli) checksum of the data."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _masked(checksum: int) -> int:
    """The checksum as event files store it: rotated, and a constant added."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


KIND = LogKind(_read, file=_recognises, folder=lambda folder: bool(_event_files(folder)))
