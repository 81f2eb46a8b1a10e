"""Reads the folder that `grposcope train` writes; docs/record.md describes it.

The folder may be that of a run in progress: what is not there yet is empty, an unfinished last line
is left out, and what was left out is said in the notes of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from grposcope.errors import UserError
from grposcope.runs import probe
from grposcope.runs.native import groups as own_groups
from grposcope.runs.native import lines
from grposcope.runs.native.lines import Lines
from grposcope.runs.native.writer import FORMAT
from grposcope.runs.run import Evaluations, Floats, Meta, Rollout, Run


def recognises(folder: Path) -> bool:
    """Whether this is the folder of a run of ours."""
    return (folder / "config.json").is_file()


def read(folder: Path) -> Run:
    """The run in `folder`; UserError for a newer version and for broken files."""
    config = configuration(folder)
    with ThreadPoolExecutor(3) as threads:  # the parsing is compiled code, which runs side by side
        steps, groups, evals = (
            threads.submit(lines.load, folder / f"{name}.jsonl") for name in ("steps", "groups", "evals")
        )
        table = threads.submit(_table, steps.result())
        grouped = threads.submit(own_groups.read, groups.result())
        evaluations = _evaluations(evals.result())
    phase, summary = _object(folder / "phase.json"), _object(folder / "summary.json")
    loaded = (steps.result(), groups.result(), evals.result())
    notes = tuple(
        f"{part.path.name}: the last line is unfinished and was left out" for part in loaded if part.unfinished
    )
    return Run(
        meta=Meta(
            folder,
            _text(config, "engine", "grposcope"),
            _text(config, "name", folder.resolve().name),
            _status(phase, summary),
            notes,
        ),
        config=config,
        table=table.result(),
        groups=grouped.result(),
        evaluations=evaluations,
        rollouts=RolloutFiles(folder / "rollouts"),
        phase=phase,
        summary=summary,
        window=_window(config),
        probes=probe.of_run(folder),
    )


def _text(config: Mapping[str, Any], field: str, otherwise: str) -> str:
    """A field that only the records of other trainers' runs have, by a callback of ours."""
    said = config.get(field)
    return said if isinstance(said, str) and said else otherwise


def _window(config: Mapping[str, Any]) -> int:
    """Optimiser steps that a row is the mean over: 1 but for trainers that log less often."""
    said = config.get("window")
    return said if isinstance(said, int) and said >= 1 else 1


def configuration(folder: Path) -> dict[str, Any]:
    """config.json, checked to be of a version that this reads."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error}); restore it from a copy") from None
    version = config.get("format") if isinstance(config, dict) else None
    if not isinstance(version, int):
        raise UserError(f"{folder} is no run: its config.json was not written by grposcope train; give another folder")
    if version > FORMAT:
        raise UserError(
            f"{folder} is a record of format {version}, and this grposcope reads up to {FORMAT}; upgrade grposcope"
        )
    return config


class RolloutFiles(Mapping[int, tuple[Rollout, ...]]):
    """Step -> sampled rollouts, read from rollouts/step-NNNNNN.parquet when asked for."""

    def __init__(self, folder: Path):
        self._files = {int(f.stem.removeprefix("step-")): f for f in sorted(folder.glob("step-*.parquet"))}

    def __getitem__(self, step: int) -> tuple[Rollout, ...]:
        path = self._files[step]
        try:
            rows = pyarrow.parquet.read_table(path).to_pylist()
        except (OSError, pa.ArrowInvalid) as error:
            raise UserError(f"{path}: cannot be read ({str(error).splitlines()[0]}); delete it or restore it") from None
        return tuple(_rollout(row) for row in rows)

    def __iter__(self) -> Iterator[int]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _rollout(row: Mapping[str, Any]) -> Rollout:
    def numbers(name: str) -> Floats | None:
        return None if row.get(name) is None else np.asarray(row[name], np.float64)

    absent = np.full(len(row["tokens"]), np.nan)
    logp, entropy = numbers("logp"), numbers("entropy")
    return Rollout(
        problem=row["problem"],
        prompt=row["prompt"],
        rollout=row["rollout"],
        completion=row["completion"],
        reward=float("nan") if row["reward"] is None else row["reward"],
        truncated=bool(row["truncated"]),
        tokens=tuple(row["tokens"]),
        logp=absent if logp is None else logp,
        entropy=absent if entropy is None else entropy,
        weight=numbers("weight"),
    )


def _table(steps: Lines) -> dict[str, Floats]:
    """steps.jsonl as columns, in the order of the first line."""
    table = lines.columns(steps)
    if not table:
        return {"step": np.empty(0)}
    if "step" not in table or not np.isfinite(table["step"]).all():
        bad = next(number for number, row in lines.rows(steps) if not isinstance(row.get("step"), int))
        raise lines.broken(steps, bad, "no step number")
    disorder = np.flatnonzero(np.diff(table["step"]) <= 0)
    if len(disorder):
        at = int(disorder[0])
        before, after = (int(s) for s in table["step"][at : at + 2])
        number = lines.rows(steps)[at + 1][0]
        raise lines.broken(steps, number, f"step {after} comes after step {before}: two programs wrote to this run")
    return table


def _evaluations(found: Lines) -> Evaluations:
    table: list[tuple[int, str, float, float, int, str]] = []
    for number, row in lines.rows(found):
        if not isinstance(row.get("step"), int):
            raise lines.broken(found, number, "no step number")
        for name, estimate in row.items():
            if not isinstance(estimate, dict):
                continue
            value, error = (lines.number(estimate.get(part)) for part in ("value", "se"))
            if value is None or error is None or not isinstance(estimate.get("n"), int):
                raise lines.broken(found, number, f"{name} lacks value, se or n")
            table.append((row["step"], name, value, error, estimate["n"], str(estimate.get("flag", ""))))
    step, metric, values, errors, counts, flags = zip(*table, strict=True) if table else ((),) * 6
    return Evaluations(
        step=np.array(step, np.int64),
        metric=metric,
        value=np.array(values, np.float64),
        se=np.array(errors, np.float64),
        n=np.array(counts, np.int64),
        flag=flags,
    )


def _object(path: Path) -> dict[str, Any] | None:
    """A small JSON file; None if it is not there, or caught while it was being written."""
    try:
        content = json.loads(path.read_bytes().strip(b"\0 \n"))
    except (FileNotFoundError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _status(phase: Mapping[str, Any] | None, summary: Mapping[str, Any] | None) -> str:
    if phase is not None:
        said = str(phase.get("phase"))
        return said if said in ("finished", "interrupted", "failed") else "running"
    if summary is not None:
        return "interrupted" if summary.get("interrupted") else "finished"
    return "unknown"
