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
from grposcope.runs import lines, probes
from grposcope.runs.lines import Lines
from grposcope.runs.store import FORMAT
from grposcope.runs.table import Bools, Evaluations, Floats, Groups, Ints, Meta, Rollout, Run


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
        grouped = threads.submit(_groups, groups.result())
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
        probes=probes.of(folder),
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


def _groups(found: Lines) -> Groups:
    fast = _groups_alike(found.data)
    return _groups_by_row(found) if fast is None else fast


def _groups_alike(data: bytes) -> Groups | None:
    """Groups of lines as our writer writes them; None if there are others, such as ids with quotes in them."""
    if not data or b"\\" in data:
        return None
    quotes = lines.quotes_per_line(data, lines.places(data, '"'))
    if quotes is None or quotes.shape[1] not in (8, 10):
        return None
    edges = np.empty((len(quotes), 7), np.int64)  # where literals and values begin:
    edges[:, 0], edges[:, 1] = quotes[:, 0] - 1, quotes[:, 1] + 3  # {"step": 1
    edges[:, 2], edges[:, 3] = quotes[:, 2] - 2, quotes[:, 4] + 1  # , "problem": "id
    edges[:, 4], edges[:, 5] = quotes[:, 5], quotes[:, 7] + 3  # ", "rewards": [0.0, 1.0], "truncated": [false, true]
    edges[:, 6] = lines.line_ends(quotes, data) - 1  # }
    texts = lines.values(data, edges, [b'{"step": ', b', "problem": "', b'", "rewards": ', b"}\n"])
    if texts is None:
        return None
    steps = lines.numbers(texts[0])
    if steps is None or (steps != np.floor(steps)).any():
        return None
    ids, tails = texts[1].dictionary_encode(), texts[2].dictionary_encode()
    try:
        problems = tuple(text.decode() for text in ids.dictionary.to_pylist())
        patterns = [json.loads(b'{"rewards": ' + tail + b"}") for tail in tails.dictionary.to_pylist()]
        kinds = _ragged([_rewards(pattern) for pattern in patterns])
    except (ValueError, TypeError):
        return None
    rewards, offsets, truncated = _repeated(*kinds, tails.indices.to_numpy().astype(np.int64))
    return Groups(
        step=steps.astype(np.int64),
        problem=ids.indices.to_numpy().astype(np.int64),
        problems=problems,
        rewards=rewards,
        offsets=offsets,
        truncated=truncated,
    )


def _repeated(
    rewards: Floats, offsets: Ints, truncated: Bools | None, which: Ints
) -> tuple[Floats, Ints, Bools | None]:
    """The ragged rows `which`, in that order and as often as they occur in it."""
    sizes = np.diff(offsets)
    if (sizes == sizes[0]).all():  # much the fastest, and what a run has unless its settings changed
        table = rewards.reshape(len(sizes), -1)
        flags = None if truncated is None else truncated.reshape(len(sizes), -1)[which].ravel()
        return table[which].ravel(), sizes[0] * np.arange(len(which) + 1), flags
    ends = np.append(0, np.cumsum(sizes[which]))
    take = np.repeat(offsets[which] - ends[:-1], sizes[which]) + np.arange(ends[-1])
    return rewards[take], ends, None if truncated is None else truncated[take]


def _groups_by_row(found: Lines) -> Groups:
    steps, problems, ragged = [], [], []
    names: dict[str, int] = {}
    for number, row in lines.rows(found):
        if not isinstance(row.get("step"), int) or not isinstance(row.get("problem"), str):
            raise lines.broken(found, number, "no step number or no problem id")
        try:
            ragged.append(_rewards(row))
        except (TypeError, ValueError):
            raise lines.broken(found, number, "rewards or truncated are not lists of one length") from None
        steps.append(row["step"])
        problems.append(names.setdefault(row["problem"], len(names)))
    rewards, offsets, truncated = _ragged(ragged)
    return Groups(
        step=np.array(steps, np.int64),
        problem=np.array(problems, np.int64),
        problems=tuple(names),
        rewards=rewards,
        offsets=offsets,
        truncated=truncated,
    )


def _rewards(row: Mapping[str, Any]) -> tuple[list[float], list[bool] | None]:
    """Rewards and flags of one line; ValueError or TypeError if they are not as they should be."""
    rewards = [lines.number(value) for value in row["rewards"]] if "rewards" in row else [None]
    truncated = row.get("truncated")
    if None in rewards or (truncated is not None and len(truncated) != len(rewards)):
        raise ValueError
    return rewards, truncated  # type: ignore[return-value]


def _ragged(parts: list[tuple[list[float], list[bool] | None]]) -> tuple[Floats, Ints, Bools | None]:
    """Lists of lists as flat arrays: rewards, offsets, and truncated or None where a list lacks it."""
    offsets = np.append(0, np.cumsum([len(rewards) for rewards, _ in parts], dtype=np.int64)).astype(np.int64)
    rewards = np.array([value for part, _ in parts for value in part], np.float64)
    flags = [part for _, part in parts if part is not None]
    if len(flags) < len(parts) or not parts:
        return rewards, offsets, None
    return rewards, offsets, np.array([value for part in flags for value in part], bool)


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
