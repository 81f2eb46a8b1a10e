"""Follows a run that is being written, or synced from elsewhere.

`Tail` reads only what was appended to a file of ours. Before it reads on, the file is checked to still hold the last
line that was read, where it was. If it does not, as after a resume that cut the record back, or a new run in
the folder, it is read afresh.

`Log` follows any log that `read` knows: it is read again, whole, when it changed. `Pace` keeps that to a
share of the time, however long the log grows.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grposcope.errors import UserError
from grposcope.runs.run import Run, read

READING = 0.2
"""Share of the time that a log is being read and judged, at most."""

_FILES = 5000  # of a folder, whose sizes and times are compared
_DEEP = 3  # folders within folders


class Tail:
    """The complete lines of a JSON-lines file, as they appear."""

    def __init__(self, path: Path):
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self._offset, self._lines, self._last = 0, 0, b""

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """New rows, and whether they begin the file afresh. UserError for a complete line that is broken."""
        try:
            with self.path.open("rb") as file:
                afresh = not self._continues(file)
                if afresh:
                    self._forget()
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            afresh = self._offset > 0
            self._forget()
            return [], afresh
        whole = data[: data.rfind(b"\n") + 1]
        rows = []
        for line in whole.split(b"\n")[:-1]:
            self._lines += 1
            rows.append(self._row(line))
        if whole:
            self._offset += len(whole)
            self._last = whole.rstrip(b"\n").rpartition(b"\n")[2] + b"\n"
        return rows, afresh

    def _continues(self, file: Any) -> bool:
        """Whether the last line read is still where it was."""
        file.seek(self._offset - len(self._last))
        return file.read(len(self._last)) == self._last

    def _row(self, line: bytes) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise UserError(
                f"{self.path}, line {self._lines}: not valid JSON; mend or delete that line, or restore the file from "
                "a copy"
            )
        return row


class Pace:
    """Keeps something to a share of the time: after it took c seconds it rests for c (1/share − 1)."""

    def __init__(self, share: float, rest: float = 0.0):
        """rest: seconds before the first time."""
        self.share = share
        self._rests_until = time.monotonic() + rest

    def ready(self) -> bool:
        """Whether it is rested."""
        return time.monotonic() >= self._rests_until

    def spent(self, seconds: float) -> None:
        """It took so long, just now."""
        self._rests_until = time.monotonic() + seconds * (1 / self.share - 1)


class Log:
    """A log of any kind while it grows; the path need not exist yet.

    run: as it was last read, None before that. problem: why the last attempt to read it failed, "" if it did not.
    changed: when the log was last written, in seconds since 1970, 0 before it exists.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any] | None = None):
        self.path = path
        self.settings = dict(settings or {})
        self.run: Run | None = None
        self.problem = ""
        self.changed = 0.0
        self._seen: Any = None

    def look(self) -> bool:
        """Read the log if it changed since the last look; whether it was read and could be."""
        found = _state(self.path)
        if found == self._seen:
            return False
        self._seen = found
        if not found:
            self.problem = f"there is no {self.path} yet"
            return False
        self.changed = max(changed for _, _, changed in found) / 1e9
        try:
            self.run, self.problem = read(self.path, self.settings), ""
        except UserError as error:
            self.problem = str(error)
        except FileNotFoundError as error:  # moved away while it was read
            self.problem = f"{error.filename or self.path} went away while it was read"
            self._seen = None
        return not self.problem


def _state(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of change of the file, or of the files in the folder; empty where there is none."""
    found: list[tuple[str, int, int]] = []
    waiting = [(str(path), 0)]
    while waiting and len(found) < _FILES:
        name, depth = waiting.pop()
        try:
            about = os.stat(name)
            if not os.path.isdir(name):
                found.append((f"{name} {about.st_ino}", about.st_size, about.st_mtime_ns))
            elif depth < _DEEP:
                inside = sorted(entry for entry in os.listdir(name) if not entry.startswith("."))
                waiting += [(os.path.join(name, entry), depth + 1) for entry in inside]
        except OSError:
            continue
    return tuple(found)
