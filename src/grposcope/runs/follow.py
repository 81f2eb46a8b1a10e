"""Follows a run that is being written, or synced from elsewhere, by reading only what was appended.

Before it reads on, a file is checked to still hold the last line that was read, where it was. If it
does not, as after a resume that cut the record back, or a new run in the folder, it is read afresh.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grposcope.errors import UserError


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
