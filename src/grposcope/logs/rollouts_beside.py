"""A log of metrics and the file of its rollouts that lie beside each other, as one run.

They are of one run where they are about the same steps and the log's reward is the mean of the rollouts' as far as
chance goes, since the rollouts may be some of each batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from grposcope.core.run import Floats, Run
from grposcope.logs.columns import COMPUTED
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.trainers import rollout_lines

SHARED = 0.5
"""Share of the steps of the shorter one that the other must have, too."""

STRAYS = 4.0
"""Errors of the mean of a step's rollouts from which on the log's reward is another."""


def log_and_rollouts(files: Sequence[Path]) -> tuple[Path, Path] | None:
    """The log and the file of rollouts of two files, by their beginnings; None where they are no such two."""
    if len(files) != 2:
        return None
    first, second = files
    of_rollouts = [rollout_lines.KIND.recognises(LogFile(path)) for path in files]
    if of_rollouts == [False, True]:
        return first, second
    return (second, first) if of_rollouts == [True, False] else None


def with_rollouts(log: Run, rollouts: Run) -> Run | None:
    """The run of the log with the groups and texts of the rollouts; None where they are of different runs."""
    if log.rollouts or len(log.groups) or not _is_of(log, rollouts):
        return None
    further = [note for note in rollouts.meta.notes if note != COMPUTED and note not in log.meta.notes]
    notes = (*log.meta.notes, f"rollouts are those of {rollouts.meta.source.name}", *further)
    return replace(log, groups=rollouts.groups, rollouts=rollouts.rollouts, meta=replace(log.meta, notes=notes))


def _is_of(log: Run, rollouts: Run) -> bool:
    """Whether rollouts are those of a log: the same steps, and no other reward in more than half of them."""
    shared, at_log, at_rollouts = np.intersect1d(log.table["step"], rollouts.table["step"], return_indices=True)
    if not len(shared) or len(shared) < SHARED * min(log.steps, rollouts.steps):
        return False
    if "reward" not in log.table or "reward" not in rollouts.table:
        return True
    apart = np.abs(log.table["reward"][at_log] - rollouts.table["reward"][at_rollouts])
    return bool(np.nanmedian(apart / _errors(rollouts)[at_rollouts]) <= STRAYS)


def _errors(rollouts: Run) -> Floats:
    """Standard error of the mean reward of each row's rollouts, (N,), from their spread over all of them."""
    groups = rollouts.groups
    steps, counts = np.unique(np.repeat(groups.step, np.diff(groups.offsets)), return_counts=True)
    of_rows = np.interp(rollouts.table["step"], steps, counts)
    return max(float(np.nanstd(groups.rewards)), math.ulp(1.0)) / np.sqrt(of_rows)
