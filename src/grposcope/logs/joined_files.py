"""Several files that the programs of one run left beside each other, as one log joined by step.

Files are of one run where one trainer wrote them (`logs.trainers`), where no metric is in two of them, where one has
the reward and the others have none, and where they are about the same steps. Beside two such files, one whose keys say
no trainer, as that of an environment, is of the run too where the same holds for it; else it is left out, with a note.
Of a file whose step falls, the last
attempt of every step is taken, since attempts of different files cannot be told to belong together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.run import Floats, Ints
from grposcope.core.text import listed
from grposcope.logs.columns import ColumnBuilder, RawLog
from grposcope.logs.formats.log_file import LogFile, json_row
from grposcope.logs.keys import CLOCKS, STEPS, TIMES
from grposcope.logs.per_step import last_attempts
from grposcope.logs.trainers import generic, trainer_named, trainer_of

OVERLAP = 0.5
"""Share of the steps of the shorter file that the longer one must have, too."""

MOST, TRIED = 8, 40
"""Files of a run, and files of a folder whose beginnings are looked at."""


@dataclass(frozen=True)
class _LogFilePart:
    """One file: its rows as columns (N,) with their step (N,), and its trainer."""

    path: Path
    columns: Mapping[str, Floats]
    step: Floats
    engine: str
    log: RawLog
    lines: Ints

    @property
    def metrics(self) -> set[str]:
        """Keys that no two files of a run may have."""
        return {key for key in self.columns if not _is_clock(key)}


def _is_clock(key: str) -> bool:
    """Whether every program of a run may log this key: steps, times, the machine."""
    return key in CLOCKS or key.startswith(TIMES)


def parts_of_one_run(paths: Sequence[Path]) -> list[Path]:
    """The files whose beginnings look like parts of one run: one known trainer, and no metric in two; else none.

    Files of no known trainer are taken where they count steps and have no metric of the others and no reward.
    """
    keys = {path: of_file for path in paths[:TRIED] if (of_file := _first_keys(path))}
    engines = {path: trainer_of(of_file).name for path, of_file in keys.items()}
    known = [path for path in keys if engines[path] != generic.GENERIC.name]
    metrics = [key for path in known for key in keys[path] if not _is_clock(key)]
    one = len({engines[path] for path in known}) == 1 and len(metrics) == len(set(metrics))
    if not one or not 2 <= len(known) <= MOST:
        return []
    trainer = trainer_named(engines[known[0]])
    taken = set(metrics)
    for path in keys:
        own = {key for key in keys[path] if not _is_clock(key)}
        counted = any(key in _beginning(path) for key in STEPS)
        if (
            len(known) < MOST
            and path not in known
            and own
            and counted
            and not own & taken
            and "reward" not in map(trainer.metric, own)
        ):
            taken |= own
            known.append(path)
    return sorted(known)


def _first_keys(path: Path) -> frozenset[str]:
    """Keys of the first rows but for the step."""
    return _beginning(path) - {"step"}


def _beginning(path: Path) -> frozenset[str]:
    file = LogFile(path)
    return _keys_of(file.head) if file.shape == "json lines" else frozenset()


@lru_cache(64)  # the beginning of a file that grows stays the same
def _keys_of(head: bytes) -> frozenset[str]:
    rows = [json_row(line) for line in head.split(b"\n")[:200]]
    return frozenset(key for row in rows if row is not None for key in row)


def joined(folder: Path, logs: Sequence[RawLog]) -> RawLog:
    """The logs as one; UserError, which says why, where they are not of one run."""
    every = [_part(log) for log in logs]
    parts = [part for part in every if part.engine != generic.GENERIC.name]
    engines = {part.engine for part in parts}
    names = listed([part.path.name for part in parts])
    if len(engines) != 1:
        names = listed([part.path.name for part in every])
        raise UserError(f"{folder}: {names} are not logs of one trainer")
    for k, one in enumerate(parts):
        for other in parts[:k]:
            if both := one.metrics & other.metrics:
                raise UserError(f"{folder}: {names} are logs of different runs: two of them have {min(both)}")
            if not _same_steps(one.step, other.step):
                raise UserError(f"{folder}: {names} are logs of different runs: they have different steps")
    left_out = []
    for part in every:
        if part.engine == generic.GENERIC.name:
            shared = any(part.metrics & other.metrics for other in parts)
            if shared or not all(_same_steps(part.step, other.step) for other in parts):
                why = "a metric of another file" if shared else "other steps"
                left_out.append(f"{part.path.name} has {why}, and was left out")
            else:
                parts.append(part)
    notes = [f"{part.path.name} gave {_given(part)}" for part in parts]
    return RawLog(
        folder,
        _one_builder(parts),
        engine=engines.pop(),
        notes=[*dict.fromkeys(note for log in logs for note in log.notes),
               f"{len(parts)} files were joined by step: {'; '.join(notes)}",
               *left_out],
        logged={key: value for log in logs for key, value in log.logged.items()},
        place="row",
        name=folder.resolve().name,
    )  # fmt: skip


def _part(log: RawLog) -> _LogFilePart:
    """The columns of a log, of the last attempt of every step; UserError where nothing counts its steps."""
    labels = {key: dict(of_row) for key, of_row in log.rows.labels.items()}
    lines, columns, _ = log.rows.finish()
    key = next((key for key in STEPS if key in columns), None)
    if key is None:
        raise UserError(f"{log.source} has no step counter, so it cannot be joined with other files")
    engine = log.engine or trainer_of(columns).name
    step = columns[key]
    rows = np.flatnonzero(np.isfinite(step))
    metrics = {name: column[rows] for name, column in columns.items() if not _is_clock(name)}
    kept = rows[last_attempts({"step": step[rows], **metrics}, ("step",))]
    of_kept = {int(row): place for place, row in enumerate(kept)}
    rest = {name: column[kept] for name, column in columns.items() if name != key}
    named = {
        name: {of_kept[row]: text for row, text in texts.items() if row in of_kept} for name, texts in labels.items()
    }
    builder = ColumnBuilder()
    builder.labels = named
    return _LogFilePart(log.source, rest, step[kept], engine, replace(log, rows=builder), lines[kept])


def _same_steps(one: Floats, other: Floats) -> bool:
    here, there = np.unique(one), np.unique(other)
    return len(np.intersect1d(here, there)) >= OVERLAP * min(len(here), len(there)) > 0


def _given(part: _LogFilePart) -> str:
    """What a file gave: its rows, steps, and the first of its metrics."""
    trainer = trainer_named(part.engine)
    known = sorted(
        {name for key in part.metrics if (name := trainer.metric(key)) is not None and "component" not in name}
    )
    some = f", {', '.join(known[:6])}" if known else ""
    return f"{len(part.step):,} rows of steps {part.step.min():g} to {part.step.max():g}{some}"


def _one_builder(parts: Sequence[_LogFilePart]) -> ColumnBuilder:
    """The rows of all files in the order of their steps."""
    builder = ColumnBuilder()
    step = np.concatenate([part.step for part in parts])
    order = np.argsort(step, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    keys = dict.fromkeys(key for part in parts for key in part.columns)
    columns = {
        key: np.concatenate([part.columns.get(key, np.full(len(part.step), math.nan)) for part in parts])[order]
        for key in keys
    }  # fmt: skip
    builder.block(np.arange(1, len(step) + 1), {"step": step[order], **columns})
    first = 0
    for part in parts:
        for key, texts in part.log.rows.labels.items():
            builder.labels.setdefault(key, {}).update({int(place[first + row]): text for row, text in texts.items()})
        first += len(part.step)
    return builder
