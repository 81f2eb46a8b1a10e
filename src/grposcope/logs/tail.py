"""Follows a log that is being written, or synced from elsewhere.

`Tail` reads only what was appended to a JSON-lines file. Before it reads on, it checks that the last line that was
read still stands where it was. If not, as after a resume that cut the record back, or with a new run in the folder,
the file is read from its beginning.

`GrowingLog` follows any log that `read` knows: it is read again when it changed, of JSON lines only what was appended.
`Pace` keeps that to a share of the time, however long the log grows.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.files import json_object, opened, unreadable
from grposcope.core.run import Run
from grposcope.logs import read
from grposcope.logs.formats.tensorboard import is_our_verdict
from grposcope.logs.hints import Hints, UndecidedError
from grposcope.logs.kept_rows import GrowingHints

READING = 0.008
"""Share of the time in which a log is being read and judged, beyond which it rests, at most RESTING seconds."""

RESTING = 15.0
"""Seconds until a log is looked at again at the latest, however long that takes."""

_FILES = 5000  # files of a folder whose sizes and times are compared, at most
_DEEP = 3  # levels of folders


class Tail:
    """Reads the complete lines of a JSON-lines file as they appear."""

    def __init__(self, path: Path):
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self._offset, self._lines, self._last = 0, 0, b""

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """(new rows, whether the file was read from its beginning). UserError for a complete line that is broken."""
        try:
            with opened(self.path) as file:
                afresh = not self._continues(file)
                if afresh:
                    self._forget()
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            afresh = self._offset > 0
            self._forget()
            return [], afresh
        except OSError as error:
            raise unreadable(self.path, error) from None
        whole = data[: data.rfind(b"\n") + 1]
        rows = []
        for line in whole.split(b"\n")[:-1]:
            self._lines += 1
            rows.append(json_object(line, f"{self.path}, line {self._lines}"))
        if whole:
            self._offset += len(whole)
            self._last = whole.rstrip(b"\n").rpartition(b"\n")[2] + b"\n"
        return rows, afresh

    def _continues(self, file: Any) -> bool:
        """Whether the last line that was read still stands where it was."""
        file.seek(self._offset - len(self._last))
        return file.read(len(self._last)) == self._last


class Pace:
    """Keeps a repeated task to a share of the time: after it took c seconds it rests for c (1/share − 1).

    longest: seconds that it rests at most.
    """

    def __init__(self, share: float, rest: float = 0.0, longest: float = math.inf):
        """rest: seconds to wait before the first time."""
        self.share, self.longest = share, longest
        self._rests_until = time.monotonic() + rest

    def ready(self) -> bool:
        """Whether the task may run again."""
        return time.monotonic() >= self._rests_until

    def spent(self, seconds: float) -> None:
        """Note that the task just took `seconds`."""
        self._rests_until = time.monotonic() + min(seconds * (1 / self.share - 1), self.longest)


class GrowingLog:
    """A log of any kind while it grows; the path need not exist yet.

    run:     as it was last read, None before that.
    problem: why the last attempt to read the log failed, "" if it did not; question: the field of `Hints` that would
    have helped, "" if none.
    changed: when the log was last written, in seconds since 1970; 0 before it exists.
    """

    def __init__(self, path: Path, hints: Hints | None = None):
        self.path = path
        self.hints = GrowingHints.of(hints or Hints())
        self.run: Run | None = None
        self.problem = self.question = ""
        self.changed = 0.0
        self._seen: Any = None

    def look(self) -> bool:
        """Read the log if it changed since the last look. Whether a new state of the run was read."""
        state = _state(self.path)
        if state == self._seen:
            return False
        self._seen = state
        if not state:
            self.problem = f"{self.path} does not exist yet; give the path of a run or a log"
            return False
        self.changed = max(changed for _, _, changed in state) / 1e9
        self.question = ""
        try:
            self.run, self.problem = read(self.path, self.hints), ""
        except UserError as error:
            self.problem = str(error)
            self.question = error.field if isinstance(error, UndecidedError) else ""
        return not self.problem


def _state(path: Path) -> tuple[tuple[str, int, int], ...]:
    """(name, size, time of change) of the file, or of every file in the folder; empty where there is none."""
    files: list[tuple[str, int, int]] = []
    waiting = [(str(path), 0)]
    while waiting and len(files) < _FILES:
        name, depth = waiting.pop()
        try:
            about = os.stat(name)
            if not os.path.isdir(name):
                if is_our_verdict(name):
                    continue
                files.append((f"{name} {about.st_ino}", about.st_size, about.st_mtime_ns))
            elif depth < _DEEP:
                inside = sorted(child for child in os.listdir(name) if not child.startswith("."))
                waiting += [(os.path.join(name, child), depth + 1) for child in inside]
        except OSError:
            continue
    return tuple(files)
