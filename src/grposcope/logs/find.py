"""Finds the runs below a folder: records of our own, folders of trainers, and logs that hold a reward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from grposcope.core.errors import UserError
from grposcope.core.metrics import variant
from grposcope.core.run import Run
from grposcope.logs import sources as detect
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints, UndecidedError

DEPTH = 5
"""Folders below the one that is searched."""

MOST = 100
"""Runs in one file."""

SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "checkpoints", "model", "rollouts", "completions"})
"""Folders that hold parts of a run, or programs."""


@dataclass(frozen=True)
class FoundLog:
    """A place that may hold a run, and the run; None with the reason where it cannot be read.

    undecided: whether it is read once the user says more.
    """

    path: Path
    run: Run | None
    problem: str = ""
    undecided: bool = False


def find(folder: Path, hints: Hints, left_out: list[FoundLog] | None = None) -> Iterator[FoundLog]:
    """The runs in `folder` and below, in the order of their paths.

    A file that is no log of a run, or names no reward, is passed over; left_out: takes up these, with the reasons.
    """
    yield from _below(folder, hints, DEPTH, [] if left_out is None else left_out)


def _below(folder: Path, hints: Hints, depth: int, left_out: list[FoundLog]) -> Iterator[FoundLog]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        yield FoundLog(folder, None, f"{folder} cannot be opened: {error.strerror}")
        return
    is_one = detect.is_one_run(folder)
    is_run = is_one or detect.is_run_folder(folder)
    whole = is_one or (is_run and not detect.is_logger_folder(folder))
    logs = [] if whole else [one for path in entries if _may_be_a_log(path) for one in _in_file(path, hints, left_out)]
    if is_run and not logs:
        yield from _tried(folder, hints)
        return
    yield from logs
    for path in entries:
        if depth and path.is_dir() and not path.is_symlink() and not path.name.startswith(".") | (path.name in SKIPPED):
            yield from _below(path, hints, depth - 1, left_out)


def _may_be_a_log(path: Path) -> bool:
    return path.is_file() and path.name.removesuffix(".gz").endswith((*detect.ENDINGS, ".wandb"))


def _in_file(path: Path, hints: Hints, left_out: list[FoundLog]) -> Iterator[FoundLog]:
    """The runs in a file; none where it holds no reward, or is of no kind that can be read."""
    for found in _tried(path, hints):
        if found.run is not None and variant("reward", found.run.table) is not None:
            yield found
        elif found.run is not None:
            left_out.append(replace(found, run=None, problem=f"{found.path} holds no reward", undecided=True))
        else:
            left_out.append(found)


def _tried(path: Path, hints: Hints) -> Iterator[FoundLog]:
    """The run at a path; each one, as PATH#1, PATH#2, …, where there are several."""
    try:
        yield FoundLog(path, detect.read(LogFile(path), hints))
    except UndecidedError as error:
        if error.field != "run":
            yield FoundLog(path, None, str(error), undecided=True)
            return
        for number in range(1, MOST + 1):
            try:
                yield FoundLog(Path(f"{path}#{number}"), detect.read(LogFile(path), replace(hints, run=number)))
            except UserError:
                return
    except UserError as error:
        yield FoundLog(path, None, str(error))
