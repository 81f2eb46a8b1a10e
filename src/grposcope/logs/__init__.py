"""Records of training runs: what trainers write to disk, and `read`, which makes a Run of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grposcope.core.run import Run
from grposcope.logs.hints import Hints
from grposcope.logs.native.writer import RunWriter

__all__ = ["Hints", "Run", "RunWriter", "read"]


def read(path: str | Path, known: Mapping[str, Any] | Hints | None = None, content: bytes | None = None) -> Run:
    """The run recorded at `path`, finished or in progress: our own record or a log that docs/readers.md lists, or the
    address of a run of W&B, MLflow or trackio (wandb://ENTITY/PROJECT/RUN, mlflow://RUN_ID, trackio://PROJECT/RUN).

    known: what the user knows and the log does not say, settings (group, kl, trl_version, …) or more (`Hints`); a
    record of our own has its settings and ignores these. content: the bytes of a log that is no file, such as standard
    input, which messages then call by `path`. UserError where there is no run, where its record is of a
    newer version, where a line of it is broken, or where the file is of no kind that can be read; UndecidedError (of
    `logs.hints`, a UserError) where the log can be read once the user says which of several things it is.
    """
    from grposcope.core.files import read_whole, unreadable
    from grposcope.logs import (
        remote,
        sources,
    )  # knows every format and trainer, which those who only need a Run do without
    from grposcope.logs.formats.log_file import LogFile

    hints = known if isinstance(known, Hints) else Hints(known or {})
    if content is None and (kept := remote.address(path)) is not None and not Path(path).exists():
        return sources.made(remote.read(*kept), hints)
    try:
        content = read_whole(Path(path)) if content is None and Path(path).is_fifo() else content
    except OSError as error:
        raise unreadable(Path(path), error) from None
    return sources.read(LogFile(Path(path), content), hints)
