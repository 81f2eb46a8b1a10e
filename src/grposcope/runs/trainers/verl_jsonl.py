"""Reads verl's file logger: lines {"step": N, "data": {key: value, …}}, NaN written as null.

The file has no configuration, so the group size and the KL coefficient have to be given.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grposcope.runs.columns import Frame
from grposcope.runs.formats import jsonl
from grposcope.runs.formats.source import Source
from grposcope.runs.normalize import Log, assemble
from grposcope.runs.run import Run


def recognises(row: Mapping[str, Any]) -> bool:
    """Whether the first object of the file is a line of this logger."""
    return isinstance(row.get("data"), dict) and "step" in row


def read(path: Path, given: Mapping[str, Any]) -> Run:
    """The run in the file."""
    source, frame = Source(path), Frame()
    jsonl.fill(source, frame, unwrap="data")
    return assemble(Log(path, frame, notes=source.notes, given=given))
