"""Rollouts and settings as evidence, whoever wrote them.

Of our own record, verify/step-NNNNNN.jsonl are whole batches, written every verify_every steps, and rollouts/ a part of
the groups of a step. Else what `logs.read_rollouts` finds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from grposcope import logs
from grposcope.core.errors import UserError
from grposcope.core.files import json_lines, nothing_there
from grposcope.core.rollouts import Rollout, Rollouts
from grposcope.core.run import Run
from grposcope.instruments.verify import caller_settings, row_file
from grposcope.instruments.verify.caller_settings import StatedByCaller
from grposcope.logs import read_rollouts
from grposcope.logs.columns import COMPUTED
from grposcope.logs.hints import Hints
from grposcope.logs.native import rollouts as recorded
from grposcope.logs.rollout_columns import with_groups
from grposcope.logs.rollout_rows import row_of
from grposcope.logs.rollouts_beside import inner_folders, only_place
from grposcope.logs.trainers import prime_rl_exports, rollout_files, rollout_lines, trl_completions
from grposcope.signs.rollouts import pipeline_settings as settings
from grposcope.signs.rollouts.evidence import PipelineEvidence, Stated


def evidence(
    path: Path,
    rollouts: Path | None = None,
    asked: StatedByCaller | None = None,
    hints: Hints | None = None,
) -> PipelineEvidence:
    """What is at hand of the run or the rollouts at `path`.

    rollouts: where they lie, if not with the run. asked: settings, which count before those of the run. UserError where
    neither a log nor rollouts are found, with the line for a rollout that does not fit.
    """
    if not path.exists():
        raise nothing_there(path, "the folder of a run, a trainer's log, or a file of rollouts")
    home, asked = _home(path), asked or StatedByCaller()
    where = rollouts if rollouts is not None else home
    if not where.exists():
        raise UserError(f"there is no {where}; give a file or a folder of rollouts")
    run, problem, log = _run_below(path, hints or Hints())
    own = row_file.read_stated(home) or (Stated() if run is None else settings.of_run(run))
    rows_there = _any_rows(where, run)
    rows, told = rows_there.rows, rows_there.notes
    if not rows and rollouts is None:
        where, rows = _rows_below(path, home, run)
    if rollouts is not None and not rows:
        raise UserError(
            f"{rollouts} holds no rollouts; give a JSONL file with one rollout per line, or a folder of such files"
        )
    if run is None and not rows and _needs_log(path):
        raise UserError(problem)
    functions = tuple(dict.fromkeys(name for row in rows for name in row.rewards))
    engine = run.meta.engine if run is not None else asked.engine
    said, differences = caller_settings.of_both(own, asked, engine, functions)
    notes = (*(run.meta.notes if run is not None else ()), *told)
    grouped = with_groups(_with_rewards(rows, said), said.group)
    live = row_file.read_claims(home)
    return PipelineEvidence(
        str(path), engine, grouped, said, run, filtered=row_file.read_filtered(home), notes=notes,
        whole=False if _partial(where) else None, optimizer=row_file.read_optimizer(home), differences=differences,
        live=live, used=(*_used(run, log, grouped, where, live, home), *_first(told)),
    )  # fmt: skip


def _partial(where: Path) -> bool:
    """Whether a folder has some rollouts of each step and no whole batches."""
    batches = where.is_dir() and bool(row_file.files(where) or trl_completions.files(where))
    return where.is_dir() and not batches and bool(recorded.files(where))


SHOWN = 4
"""Notes of a reader that are shown; the JSON document has all."""


def _first(notes: Sequence[str]) -> tuple[str, ...]:
    """The first notes, and how many more there are."""
    return (*notes[:SHOWN], *([f"{len(notes) - SHOWN:,} more notes of this kind"] if len(notes) > SHOWN else []))


def _used(
    run: Run | None, log: Path, rows: Sequence[Rollout], where: Path, live: Sequence[Any], home: Path
) -> tuple[str, ...]:
    """What the evidence was read from, a clause each."""
    used = []
    if run is not None and run.steps and COMPUTED not in run.meta.notes:
        recipe = run.setting("recipe") if run.meta.engine == "grposcope" else None
        trained = f" of recipe {recipe}" if recipe else ""
        used.append(f"the log of {log} ({run.steps:,} row{'s' * (run.steps != 1)}{trained})")
    if rows:
        file = Path(rows[0].where.partition(", ")[0])
        folder = file.parent if where.is_dir() and file.is_absolute() == where.is_absolute() else where
        used.append(f"{len(rows):,} rollout{'s' * (len(rows) != 1)} of {folder}")
    if live:
        claims = home / row_file.FOLDER / row_file.CLAIMS
        used.append(f"what was tested while the run trained, at {len(live):,} step{'s' * (len(live) != 1)} ({claims})")
    return tuple(used)


def _home(path: Path) -> Path:
    """The folder that holds the evidence of a training: the place, its record, or the one folder below that has any."""
    home = row_file.home(path)
    if (home / row_file.FOLDER).is_dir() or not path.is_dir():
        return home
    below = [folder for folder in _folders_below(path) if (folder / row_file.FOLDER).is_dir()]
    return below[0] if len(below) == 1 else home


def _folders_below(path: Path) -> list[Path]:
    """The folders one and two levels below a folder in which something of its run may lie."""
    folders: list[Path] = []
    for folder in (path, *inner_folders(path)):
        folders += inner_folders(folder)
    return list(dict.fromkeys(folders))


def _run_below(path: Path, hints: Hints) -> tuple[Run | None, str, Path]:
    """The run of a place, or of the one folder below it that has one; why there is none; and where it was read."""
    run, problem = _run(path, hints)
    if run is not None or not path.is_dir():
        return run, problem, path
    runs = [(folder, inner) for folder in _folders_below(path) if (inner := _run(folder, hints)[0]) is not None]
    if len(runs) > 1:  # rollouts by themselves can be read as a log too
        runs = [(folder, inner) for folder, inner in runs if not _any_rows(folder, inner)]
    return (runs[0][1], "", runs[0][0]) if len(runs) == 1 else (None, problem, path)


def _rows_below(path: Path, home: Path, run: Run | None) -> tuple[Path, tuple[Rollout, ...]]:
    """The rollouts of the one folder below a place that has some. UserError where several have."""
    found = only_place(path, {folder: _any_rows(folder, run).rows for folder in _folders_below(path)})
    return (home, ()) if found is None else (found[0], tuple(found[1]))


def of_rows(
    mappings: Sequence[Mapping[str, Any]], stated: Stated | Mapping[str, Any] | None = None, source: str = "rollouts"
) -> PipelineEvidence:
    """Evidence of rows as `rollout_rows.row_of` takes them, in the order in which they were drawn.

    stated: settings, as Stated or under the names of the trainer (`stated.ALIASES`).
    """
    said = stated if isinstance(stated, Stated) else settings.of_settings(settings.flat(stated or {}))
    rollouts = tuple(row_of(row, f"{source}, row {number}") for number, row in enumerate(mappings, 1))
    said = settings.named(said, tuple(dict.fromkeys(name for row in rollouts for name in row.rewards)))
    return PipelineEvidence(source, rows=with_groups(_with_rewards(rollouts, said), said.group), stated=said)


def rows(path: Path) -> tuple[Rollout, ...]:
    """The rollouts of a file of our own record, in its order. UserError, with the line, for what does not fit."""
    return tuple(row_of(row, f"{path}, line {line}") for line, row in json_lines(path))


def _with_rewards(rollouts: Sequence[Rollout], said: Stated) -> tuple[Rollout, ...]:
    """The rows with the weighted sum of their functions as the reward where none has one and the weights are known.

    A function without a value counts nothing, as in TRL; the sum is NaN where none has one.
    """
    if not all(math.isnan(row.reward) for row in rollouts):
        return tuple(rollouts)
    return tuple(
        replace(row, reward=_total(row.rewards, said.weights)) if math.isnan(row.reward) and row.rewards else row
        for row in rollouts
    )


def _total(rewards: Mapping[str, float], weights: Mapping[str, float] | None) -> float:
    values = np.array(list(rewards.values()))
    if np.isnan(values).all() or (weights is None and len(values) > 1):
        return math.nan
    scale = np.array([1.0 if weights is None else weights.get(name, math.nan) for name in rewards])
    return float(np.nansum(values * scale)) if not np.isnan(scale).any() else math.nan


def _run(path: Path, hints: Hints) -> tuple[Run | None, str]:
    """The run of a log, or why there is none."""
    if path.is_file() and _is_rollouts(path):
        return None, ""
    try:
        return logs.read(path, hints), ""
    except UserError as error:
        return None, str(error)


def _needs_log(path: Path) -> bool:
    return path.is_dir() or not _is_rollouts(path)


def _is_rollouts(path: Path) -> bool:
    """Whether a file holds a rollout a line; an empty one does, of none."""
    if rollout_files.find(path) is not None:
        return True
    return path.name.endswith(rollout_lines.ENDINGS) and path.stat().st_size == 0


def _any_rows(place: Path, run: Run | None) -> Rollouts:
    """The rollouts at a place, by what lies there, with notes on what did not fit; none where there are none.

    A reward by one function tells nothing beside the reward; groups of token exports need not be whole.
    """
    if place.is_dir() and (own := row_file.files(place)):
        return Rollouts(tuple(row for path in own for row in rows(path)))
    named = () if run is None else [n.removeprefix("component/") for n in run.table if n.startswith("component/")]
    rollouts = read_rollouts.rollouts(place, named)
    if prime_rl_exports.files(place):
        return Rollouts(tuple(replace(row, group=None) for row in rollouts), notes=rollouts.notes)
    made = (
        replace(row, rewards={}) if len(row.rewards) == 1 and not math.isnan(row.reward) else row for row in rollouts
    )
    return Rollouts(tuple(made), notes=rollouts.notes)
