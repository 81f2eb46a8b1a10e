"""Finds the reader of a log by what stands in it, not by its name; docs/readers.md lists what can be read.

Formats that nobody else writes are asked first, then the trainers, then formats that may hold anybody's metrics.
Pickles (training_args.bin, .pt) are refused unopened, since loading one runs code.

Several files that the programs of one run left beside each other are one log, joined by step. Files are of one run
where one trainer wrote them (`logs.trainers`), where no metric is in two of them, where one has the reward and the
others have none, and where they are about the same steps. Beside two such files, one whose keys say no trainer, as that
of an environment, is of the run too where the same holds for it; else it is left out, with a note. Of a file whose step
falls, the last attempt of every step is taken, since attempts of different files cannot be told to belong together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import nothing_there, read_whole, unreadable
from grposcope.core.run import Floats, Ints, Run
from grposcope.core.text import listed
from grposcope.logs import measurement_folders, rollouts_beside, scopes
from grposcope.logs.columns import ColumnBuilder, RawLog
from grposcope.logs.formats import FORMATS, csv, parquet
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile, json_row
from grposcope.logs.hints import Hints, UndecidedError
from grposcope.logs.keys import CLOCKS, STEPS, TIMES
from grposcope.logs.native import reader
from grposcope.logs.normalize import normalize
from grposcope.logs.per_step import last_attempts
from grposcope.logs.trainers import (
    generic,
    in_order,
    key_value_log,
    rollout_lines,
    trainer_named,
    trainer_of,
    trl_output,
)

ENDINGS = (".jsonl", ".json", ".log", ".txt", ".out", ".csv", ".tsv", ".ipynb", ".ndjson")
"""Endings of files in a folder that may be its one log."""

OVERFLOW = 1e100
"""Size beyond which a finite value can be no quantity of a training run."""

ALIKE = 0.9
"""Share of the rows of either of two logs of one run that both have."""

_TRIED = 40  # files of a folder


def read(file: LogFile, hints: Hints) -> Run:
    """The run in a file or folder, by the first format and trainer that recognise it; as `grposcope.logs.read`."""
    path = file.path
    try:
        if file.content is None and not path.exists():
            raise nothing_there(path, "the folder of a run, or a trainer's log")
        is_folder = file.content is None and path.is_dir()
        return _chosen(_folder(path, hints) if is_folder else normalize(_read_file(file, hints), hints), hints)
    except OSError as error:
        raise unreadable(path, error) from None


def made(log: RawLog, hints: Hints) -> Run:
    """The run of rows that some other program kept."""
    return _chosen(normalize(log, hints), hints)


def _chosen(run: Run, hints: Hints) -> Run:
    run = _with_overflows(run)
    return scopes.chosen(run, hints.scope) if hints.scope else run


def _with_overflows(run: Run) -> Run:
    """The run with values beyond OVERFLOW taken for infinite, and a note that says so: their squares overflow."""
    table, notes = {}, []
    for name, column in run.table.items():
        beyond = np.isfinite(column) & (np.abs(column) > OVERFLOW)
        table[name] = np.where(beyond, np.copysign(np.inf, column), column) if beyond.any() else column
        if beyond.any():
            notes.append(f"{name}: {beyond.sum():,} values beyond {OVERFLOW:g} count as infinite")
    of_rollouts = {"": run.groups.rewards, **run.groups.components}
    count = sum(int((np.isfinite(own) & (np.abs(own) > OVERFLOW)).sum()) for own in of_rollouts.values())
    if count:
        notes.append(f"rewards of rollouts: {count:,} beyond {OVERFLOW:g} count as infinite")
    if not notes:
        return run
    cut = {name: np.where(np.abs(own) > OVERFLOW, np.copysign(np.inf, own), own) for name, own in of_rollouts.items()}
    groups = replace(run.groups, rewards=cut.pop(""), components=cut)
    return replace(run, table=table, groups=groups, meta=replace(run.meta, notes=(*run.meta.notes, *notes)))


def is_run_folder(folder: Path) -> bool:
    """Whether a folder as a whole is a run or a probe: a record of our own, or what a trainer writes."""
    if (
        trl_output.find(folder) is not None
        or measurement_folders.recognises(folder)
        or (_has_config(folder) and _is_native(folder))
    ):
        return True
    return any(kind.recognises_folder(folder) for kind in _kinds())


def is_one_run(folder: Path) -> bool:
    """Whether the logs in a folder look like parts of one run, by their beginnings, or are a log and its rollouts."""
    files = _log_files(folder)
    return bool(_parts_of_one_run(files)) or _with_rollouts(folder, files, Hints()) is not None


def is_logger_folder(folder: Path) -> bool:
    """Whether only a logger, such as W&B or TensorBoard, has made a folder a run; other logs may lie beside it."""
    ours = trl_output.find(folder) is not None or measurement_folders.recognises(folder) or _has_config(folder)
    return not ours and not any(kind.recognises_folder(folder) for kind in _of_trainers())


def _folder(folder: Path, hints: Hints) -> Run:
    if trl_output.find(folder) is not None:
        return trl_output.read(folder, hints)
    if _has_config(folder) and _is_native(folder):
        return reader.read(folder)
    if measurement_folders.recognises(folder):
        return measurement_folders.read(folder)
    for kind in (*_of_trainers(), *FORMATS.values()):
        if kind.recognises_folder(folder):
            return normalize(kind.read(LogFile(folder), hints), hints)
    return rollouts_beside.with_rollouts_below(_only_log(folder, hints), folder, hints)


def _has_config(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def _is_native(folder: Path) -> bool:
    """Whether config.json is that of a record of our own; a broken one counts, so that its error is shown."""
    try:
        config = json.loads(read_whole(folder / "config.json"))
    except (ValueError, RecursionError):
        return True
    return isinstance(config, dict) and "format" in config


def _only_log(folder: Path, hints: Hints) -> Run:
    """The one log among the files of a folder."""
    files = _log_files(folder)
    if (run := _of_one_run(folder, files or _log_files_below(folder), hints)) is not None:
        return run
    if (run := _with_rollouts(folder, files, hints)) is not None:
        return run
    logs: list[tuple[Path, Run]] = []
    reasons: list[str] = []
    for path in files[:_TRIED]:
        try:
            logs.append((path, normalize(_read_file(LogFile(path), hints), hints)))
        except UserError as error:
            reasons.append(str(error))
        if len(logs) > 1 and _same_rows(logs[0][1], logs[1][1]):
            logs = [_fuller(*logs)]
        if len(logs) > 1:
            names = ", ".join(path.name for path, _ in logs)
            raise UserError(
                f"{folder} holds logs of different runs ({names}, …); give one of the files, or several to "
                f"compare; grposcope runs {folder} lists them"
            )
    if logs:
        return logs[0][1]
    runs = [
        path.name for path in sorted(folder.iterdir())
        if path.is_dir() and (_has_config(path) or any(kind.recognises_folder(path) for kind in _of_trainers()))
    ]  # fmt: skip
    if len(runs) == 1 and not (folder / runs[0]).is_symlink():
        return _folder(folder / runs[0], hints)
    if runs:
        raise UserError(f"{folder}: a folder of {len(runs)} runs ({', '.join(runs[:5])}); give one of them")
    if _has_config(folder):
        return reader.read(folder)  # says that its config.json is another program's
    hint = f" ({reasons[0]})" if reasons else ""
    raise UserError(
        f"{folder} has no config.json and no log that can be read{hint}; give the folder of a run, or a trainer's log"
    )


def _same_rows(first: Run, second: Run) -> bool:
    """Whether two logs, such as what verl prints and the file that it writes, tell of the same rows: rewards agree to
    the digits that are printed on all steps that both have, which are nearly all of either."""
    if first.meta.engine != second.meta.engine or "reward" not in first.table or "reward" not in second.table:
        return False
    steps, a, b = np.intersect1d(first.table["step"], second.table["step"], return_indices=True)
    most = max(len(first.table["step"]), len(second.table["step"]))
    pairs = first.table["reward"][a], second.table["reward"][b]
    return len(steps) >= max(3, ALIKE * most) and bool(np.allclose(*pairs, rtol=2e-3, atol=1e-9, equal_nan=True))


def _fuller(first: tuple[Path, Run], second: tuple[Path, Run]) -> tuple[Path, Run]:
    """Of two logs of the same rows the one with more columns, else what is no text, with a note on the other."""
    (path, run), (other, _) = sorted(
        (first, second), key=lambda log: (-len(log[1].table), log[0].suffix in (".log", ".txt", ".out"))
    )
    note = f"{path.name} and {other.name} tell of the same rows; {path.name} is read, which has no fewer metrics"
    return path, replace(run, meta=replace(run.meta, notes=(*run.meta.notes, note)))


def _log_files(folder: Path) -> list[Path]:
    """Files of a folder that may be logs."""
    return [path for path in sorted(folder.iterdir()) if _may_be_a_log(path)]


def _log_files_below(folder: Path) -> list[Path]:
    """Files that may be logs in the folders of a folder."""
    return [path for path in sorted(folder.glob("*/*")) if _may_be_a_log(path)]


def _may_be_a_log(path: Path) -> bool:
    return path.is_file() and path.name != "config.json" and path.name.removesuffix(".gz").endswith(ENDINGS)


def _of_one_run(folder: Path, files: Sequence[Path], hints: Hints) -> Run | None:
    """The run that several files are parts of; None where they do not look so."""
    parts = _parts_of_one_run(files)
    return normalize(_joined(folder, [_read_file(LogFile(path), hints) for path in parts]), hints) if parts else None


def _with_rollouts(folder: Path, files: Sequence[Path], hints: Hints) -> Run | None:
    """The run of a log that lies alone beside the file of its rollouts; None where there are no such two."""
    return rollouts_beside.of_pair(folder, files, lambda path: normalize(_read_file(LogFile(path), hints), hints))


def _read_file(file: LogFile, hints: Hints) -> RawLog:
    """The rows of a file, by the first kind that recognises it by its beginning, or by lines in the midst of a text.

    UserError where it is empty, damaged, or of no kind that can be read.
    """
    if not file.head:
        if file.content is None and file.path.stat().st_size:
            raise UserError(f"{file.path}: the compressed data is damaged from the start; copy the file again")
        raise UserError(f"{file.path} is empty: the run has not logged yet, or the file was not copied")
    for kind in _kinds():
        if kind.recognises(file):
            if kind.text is not None and (text := kind.text(file.document)):
                try:
                    return _read_file(LogFile(file.path, text), hints)
                except UndecidedError:
                    raise
                except UserError:
                    pass  # what the outputs print is no log: the kind says what is missing
            return kind.read(file, hints)
    if not file.not_text:
        printed = [kind for kind in _kinds() if kind.printed is not None]
        for _, piece in LogFile(file.path, file.content).pieces():
            for kind in printed:
                if kind.printed is not None and kind.printed.search(piece):
                    return kind.read(file, hints)
            if file.shape == "text" and key_value_log.shown(piece):
                return key_value_log.read(file, hints)
    raise _refusal(file)


def _kinds() -> list[LogKind]:
    """All kinds of logs in the order in which they are tried; those of no trainer that are not generic go first.

    Printed texts come before documents, since such lines may have the commas of CSV, or the first bracket of JSON.
    """
    of_trainers = _of_trainers()
    return [
        *(kind for kind in FORMATS.values() if not kind.generic),
        *(kind for kind in of_trainers if kind.printed is not None),
        key_value_log.KIND,
        *(kind for kind in of_trainers if kind.printed is None),
        rollout_lines.KIND,
        *(kind for kind in FORMATS.values() if kind.generic),
    ]


def _of_trainers() -> list[LogKind]:
    return [kind for trainer in in_order() for kind in trainer.logs]


def _refusal(file: LogFile) -> UserError:
    """Why a file is of no kind that can be read."""
    if file.head.startswith(parquet.MAGIC):
        return UserError(
            f"{file.path}: a parquet file without prompt, completion and advantage; give TRL's completions_….parquet"
        )
    if file.not_text:
        return UserError(f"{file.path}{file.not_text}")
    if names := csv.header_alone(file):
        return UserError(
            f"{file.path} has a header ({', '.join(names[:5])}) and no row below it: the run has not logged "
            "yet, or the rows were cut off"
        )
    return UserError(
        f"{file.path} is not a log in a known format; docs/readers.md lists the formats: logs of TRL, "
        "verl, OpenRLHF, slime, prime-rl and others, TensorBoard, W&B, notebooks, JSON lines, CSV"
        f"{_as_settings(file.path)}"
    )


def _as_settings(path: Path) -> str:
    """What to do with a file that may hold settings, as a clause; empty for another."""
    may_be = path.suffix in (".yaml", ".yml", ".toml", ".py", ".sh")
    return f"; settings are read by grposcope lint {path}" if may_be else ""


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


def _parts_of_one_run(paths: Sequence[Path]) -> list[Path]:
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


def _joined(folder: Path, logs: Sequence[RawLog]) -> RawLog:
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
