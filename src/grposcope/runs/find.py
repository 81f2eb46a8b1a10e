"""Finds the runs below a folder: records of our own, folders of trainers, and logs that hold a reward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grposcope.errors import UserError
from grposcope.runs import detect
from grposcope.runs.hints import Hints
from grposcope.runs.metrics import variant
from grposcope.runs.run import Run

DEPTH = 5
"""Folders below the one that is searched."""

SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "checkpoints", "model", "rollouts", "completions"})
"""Folders that hold parts of a run, or programs."""


@dataclass(frozen=True)
class Found:
    """A place that holds a run, and the run; None with the reason where it cannot be read."""

    path: Path
    run: Run | None
    problem: str = ""


def find(folder: Path, hints: Hints) -> Iterator[Found]:
    """The runs in `folder` and below, in the order of their paths; a file that is no log of a run is passed over."""
    yield from _below(folder, hints, DEPTH)


def _below(folder: Path, hints: Hints, depth: int) -> Iterator[Found]:
    if detect.is_run_folder(folder):
        yield _tried(folder, hints)
        return
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        yield Found(folder, None, f"cannot be opened: {error.strerror}")
        return
    for path in entries:
        if path.is_file() and path.name.removesuffix(".gz").endswith(detect.ENDINGS):
            log = _tried(path, hints)
            if log.run is not None and variant("reward", log.run.table) is not None:
                yield log
    for path in entries:
        if depth and path.is_dir() and not path.is_symlink() and not path.name.startswith(".") | (path.name in SKIPPED):
            yield from _below(path, hints, depth - 1)


def _tried(path: Path, hints: Hints) -> Found:
    try:
        return Found(path, detect.read(path, hints))
    except UserError as error:
        return Found(path, None, str(error))
