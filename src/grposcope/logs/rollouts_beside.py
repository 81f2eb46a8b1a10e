"""A log of metrics and its rollouts, in a file beside it or in a folder below its own, as one run.

They are of one run where they are about the same steps and the log's reward is the mean of the rollouts' as far as
chance goes, since the rollouts may be some of each batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Floats, Run
from grposcope.logs.columns import COMPUTED
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.normalize import normalize
from grposcope.logs.trainers import rollout_files, rollout_lines

SKIPPED = ("checkpoint", "ckpt", "global_step", "step-", "step_", "wandb", "verify", ".")
"""How folders below a run's begin that hold neither its log nor its rollouts."""

_SHARED = 0.5
"""Share of the steps of the shorter one that the other must have, too."""

_TRIED = 40  # folders

_STRAYS = 4.0
"""Errors of the mean of a step's rollouts from which on the log's reward is another."""


def of_pair(folder: Path, files: Sequence[Path], read: Callable[[Path], Run]) -> Run | None:
    """The run of a log that lies alone beside the file of its rollouts in a folder; None where the files, by their
    beginnings, are no such two, or one cannot be read."""
    of_rollouts = [rollout_lines.KIND.recognises(LogFile(path)) for path in files] if len(files) == 2 else []
    if sorted(of_rollouts) != [False, True]:
        return None
    try:
        log, rollouts = (read(path) for path in (files if of_rollouts[1] else reversed(files)))
    except UserError:
        return None
    run = _with_rollouts(log, rollouts)
    return None if run is None else replace(run, meta=replace(run.meta, source=folder))


def inner_folders(folder: Path) -> list[Path]:
    """The folders in a folder in which something of its run may lie."""
    if not folder.is_dir():
        return []
    return [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(SKIPPED)]


def only_place(folder: Path, places: Mapping[Path, Sequence[Rollout]]) -> tuple[Path, Sequence[Rollout]] | None:
    """The one place below a folder that has rollouts, and these; None without. UserError where several have."""
    with_rows = {place: rows for place, rows in places.items() if rows}
    outer = [place for place in with_rows if not any(other in place.parents for other in with_rows)]
    if len(outer) > 1:
        names = ", ".join(place.name for place in outer[:5])
        raise UserError(f"{folder}: rollouts lie in {len(outer)} folders ({names}); give one of them")
    return (outer[0], with_rows[outer[0]]) if outer else None


def with_rollouts_below(log: Run, folder: Path, hints: Hints) -> Run:
    """The run of a log with the rollouts in a folder below its own: of several, those of most steps; else as it is.

    Rollouts that are too large to be held are not read, and a note says so.
    """
    if log.rollouts or len(log.groups):
        return log
    runs: list[Run] = []
    for inner in inner_folders(folder)[:_TRIED]:
        written = rollout_files.find(inner)
        if written is not None and written.is_large:
            said = f"rollouts in {inner.name} are large and were not read; grposcope texts {inner} reads them"
            log = replace(log, meta=replace(log.meta, notes=(*log.meta.notes, said)))
        elif written is not None:
            with suppress(UserError):
                runs.append(normalize(written.log(inner, hints=hints), hints))
    joined = (_with_rollouts(log, run) for run in sorted(runs, key=lambda run: -run.steps))
    return next((run for run in joined if run is not None), log)


def _with_rollouts(log: Run, rollouts: Run) -> Run | None:
    """The run of the log with the groups and texts of the rollouts; None where they are of different runs."""
    if log.rollouts or len(log.groups) or not _is_of(log, rollouts):
        return None
    further = [note for note in rollouts.meta.notes if note != COMPUTED and note not in log.meta.notes]
    place = rollouts.meta.source
    notes = (*log.meta.notes, f"rollouts are those of {place.name}{'/' * place.is_dir()}", *further)
    return replace(log, groups=rollouts.groups, rollouts=rollouts.rollouts, meta=replace(log.meta, notes=notes))


def _is_of(log: Run, rollouts: Run) -> bool:
    """Whether rollouts are those of a log: the same steps, and no other reward in more than half of them."""
    shared, at_log, at_rollouts = np.intersect1d(log.table["step"], rollouts.table["step"], return_indices=True)
    if not len(shared) or len(shared) < _SHARED * min(log.steps, rollouts.steps):
        return False
    if "reward" not in log.table or "reward" not in rollouts.table:
        return True
    apart = np.abs(log.table["reward"][at_log] - rollouts.table["reward"][at_rollouts])
    return bool(np.nanmedian(apart / _errors(rollouts)[at_rollouts]) <= _STRAYS)


def _errors(rollouts: Run) -> Floats:
    """Standard error of the mean reward of each row's rollouts, (N,), from their spread over all of them."""
    groups = rollouts.groups
    steps, counts = np.unique(np.repeat(groups.step, np.diff(groups.offsets)), return_counts=True)
    of_rows = np.interp(rollouts.table["step"], steps, counts)
    return max(float(np.nanstd(groups.rewards)), math.ulp(1.0)) / np.sqrt(of_rows)
