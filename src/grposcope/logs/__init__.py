"""Records of training runs: what trainers write to disk, and `read`, which makes a Run of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grposcope.core.run import Run
from grposcope.logs.hints import Hints
from grposcope.logs.native.writer import RunWriter

__all__ = ["Hints", "Run", "RunWriter", "read"]


def read(path: str | Path, known: Mapping[str, Any] | Hints | None = None) -> Run:
    """The run recorded at `path`, finished or in progress: our own record or a log that docs/readers.md lists.

    known: what the user knows and the log does not say, settings (group, kl, trl_version, …) or more (`Hints`); a
    record of our own has its settings and ignores these. UserError where there is no run, where its record is of a
    newer version, where a line of it is broken, or where the file is of no kind that can be read; UndecidedError (of
    `logs.hints`, a UserError) where the log can be read once the user says which of several things it is.
    """
    return _read(Path(path), None, known)


def read_text(content: bytes, name: str, known: Mapping[str, Any] | Hints | None = None) -> Run:
    """The run in a log that is no file, such as standard input; name: what messages call it; the rest as `read`."""
    return _read(Path(name), content, known)


def _read(path: Path, content: bytes | None, known: Mapping[str, Any] | Hints | None) -> Run:
    from grposcope.logs import sources  # knows every format and trainer, which those who only need a Run do without
    from grposcope.logs.formats.log_file import LogFile

    return sources.read(LogFile(path, content), known if isinstance(known, Hints) else Hints(known or {}))
