"""Records of training runs: what trainers write to disk, and `read`, which makes a Run of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grposcope.runs.native.writer import RunWriter
from grposcope.runs.run import Run

__all__ = ["Run", "RunWriter", "read"]


def read(path: str | Path, settings: Mapping[str, Any] | None = None) -> Run:
    """The run recorded at `path`, finished or in progress: our own record or a log that docs/readers.md lists.

    settings: what the user knows and the log does not say (group, kl, trl_version, …); a record of our own has its
    settings and ignores these. UserError where there is no run, where its record is of a newer version, where a line of
    it is broken, or where the file is of no kind that can be read.
    """
    from grposcope.runs import detect  # knows every format and trainer, which those who only need a Run do without

    return detect.read(Path(path), settings or {})
