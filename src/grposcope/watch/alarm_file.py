"""The alarms of a run in the folder of its record, a line each."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from grposcope.core.errors import UserError
from grposcope.core.files import append as append_whole
from grposcope.core.files import atomic, dumps, json_object, read_whole
from grposcope.core.finding import Finding, document, of_document

ALARMS = "alarms.jsonl"
"""Name of the file."""


def append(folder: Path, alarms: Sequence[Finding]) -> None:
    """Append alarms to the record; UserError where the disk refuses, and then none of them is there."""
    if not alarms:
        return
    try:
        append_whole(folder / ALARMS, "".join(map(_line, alarms)).encode())
    except OSError as error:
        raise UserError(f"cannot write {folder / ALARMS}: {error.strerror or error}; make room") from None


def cut_back(folder: Path, step: int) -> list[Finding]:
    """The alarms that were raised up to `step`, when a run goes on from there; later ones are taken out of the file.

    Lines that hold no alarm, such as a half-written one, are left out.
    """
    alarms, path = [], folder / ALARMS
    with contextlib.suppress(FileNotFoundError):
        for line in read_whole(path).decode("utf-8", "replace").split("\n"):
            with contextlib.suppress(UserError, TypeError):
                alarms.append(of_document(json_object(line, str(path)), str(path)))
        alarms = [alarm for alarm in alarms if (alarm.seen or 0) <= step]
        with atomic(path) as file:
            file.write("".join(map(_line, alarms)).encode())
    return alarms


def _line(alarm: Finding) -> str:
    return dumps(document(alarm)) + "\n"
