"""The evidence that a training writes as it goes, in the folder of its record.

verify/settings.json        what the settings say the pipeline does, as `Stated`
verify/step-000050.jsonl    a batch: a rollout a line, with the names that `rollout_rows.row_of` takes
verify/claims.jsonl         what became of each claim at each of these batches
verify/optimizer.jsonl      what the optimiser's state said at each of them, as `OptimizerEvidence`
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.files import append, atomic, dumps, json_lines, json_object, read_whole, typed, write_json
from grposcope.core.rollouts import Rollout
from grposcope.logs.trainers import trl_output
from grposcope.signs.rollouts.evidence import OptimizerEvidence, Stated

FOLDER = "verify"
"""Name of the folder in that of the record."""

SETTINGS = "settings.json"
"""Name of the file with what the settings state."""

CLAIMS = "claims.jsonl"
"""Name of the file with what became of the claims."""

OPTIMIZER = "optimizer.jsonl"
"""Name of the file with what the optimiser's state said."""

_TEXTS = {"prompt": "prompt", "completion": "completion", "group": "group", "environment": "environment",
          "failed": "error", "dropped": "dropped", "stop": "stop", "problem": "problem",
          "trajectory": "trajectory"}  # fmt: skip
_LISTS = {
    "prompt_ids": "prompt_ids", "completion_ids": "completion_ids", "sampler": "rollout_logprobs",
    "old": "old_logprobs", "current": "logprobs", "reference": "ref_logprobs", "loss_weights": "loss_weights",
    "last": "last_logprobs", "last_weights": "last_loss_weights", "advantages": "advantages", "turns": "turns",
    "turn_rewards": "turn_rewards", "version_by_turn": "version_by_turn",
}  # fmt: skip

_FLAGS = {"mask": "mask", "attended": "attended", "written": "tool_mask", "prompt_trained": "prompt_trained"}


def home(path: Path) -> Path:
    """The folder that holds the evidence of a training: `path`, or the record in it where that has it and it has not.

    TRL's output folder has the record in a folder of its own.
    """
    record = path / trl_output.RECORD
    return record if (record / FOLDER).is_dir() and not (path / FOLDER).is_dir() else path


def _file_of(folder: Path, step: int) -> Path:
    """The file of a batch, in the folder of a record."""
    return folder / FOLDER / f"step-{step:06d}.jsonl"


def _document(row: Rollout) -> dict[str, Any]:
    """One rollout as `rollout_rows.row_of` reads it back, equal but for `where`, `columns` and
    what only records of texts have; what is absent is left out."""
    document: dict[str, Any] = {"step": row.step}
    document |= {key: getattr(row, name) for name, key in _TEXTS.items() if getattr(row, name)}
    for name, key in _LISTS.items():
        if (values := getattr(row, name)) is not None:
            document[key] = values.tolist()
    for name, key in _FLAGS.items():
        if (flags := getattr(row, name)) is not None:
            document[key] = flags.astype(int).tolist()
    if row.rewards:
        document["rewards"] = dict(row.rewards)
    document |= {name: value for name in ("reward", "version", "length") if not math.isnan(value := getattr(row, name))}
    if row.anchors:
        document["anchors"] = list(row.anchors)
    counts = {"part": row.micro_batch, "last_step": row.last_step, "last_part": row.last_part}
    document |= {name: count for name, count in counts.items() if count}
    if row.turn is not None:
        document["turn"] = row.turn
    if row.pieces > 1:
        document["pieces"] = row.pieces
    return document if row.truncated is None else {**document, "truncated": row.truncated}


def write(folder: Path, step: int, rows: Sequence[Rollout]) -> Path:
    """Write the rows of a batch into the folder of a record, whole or not at all. UserError where the disk refuses."""
    path = _file_of(folder, step)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as file:
            file.write("".join(dumps(_document(row)) + "\n" for row in rows).encode())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; make room") from None
    return path


def write_stated(folder: Path, stated: Stated, filtered: bool | None = None) -> None:
    """Write what the settings state into the folder of a record, and whether rollouts are left out before they are
    written. UserError where the disk refuses."""
    path = folder / FOLDER / SETTINGS
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {**asdict(stated), "filtered": filtered}
        write_json(path, {name: value for name, value in values.items() if value is not None})
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; make room") from None


def read_stated(folder: Path) -> Stated | None:
    """What the settings of a recorded run state; None for a record without that file. UserError for a broken one."""
    values = _settings(folder)
    return None if values is None else typed(Stated, values)


def read_filtered(folder: Path) -> bool | None:
    """Whether a recorded run left rollouts out before it wrote them; None where its record does not say."""
    filtered = (_settings(folder) or {}).get("filtered")
    return filtered if isinstance(filtered, bool) else None


def _settings(folder: Path) -> dict[str, Any] | None:
    path = folder / FOLDER / SETTINGS
    try:
        content = read_whole(path)
    except OSError:
        return None
    return json_object(content, str(path), "restore the file from a copy, or delete it")


def files(folder: Path) -> tuple[Path, ...]:
    """The batches in the folder of a record, in the order of their steps."""
    return tuple(sorted((folder / FOLDER).glob("step-*.jsonl")))


def cut_back(folder: Path, step: int) -> None:
    """Take out what was written after `step`, when a run goes on from there."""
    for path in files(folder):
        if int(path.stem.rpartition("-")[2]) > step:
            path.unlink()
    for path in (folder / FOLDER / CLAIMS, folder / FOLDER / OPTIMIZER):
        if not path.exists():
            continue
        lines = read_whole(path).decode("utf-8", "replace").splitlines()
        earlier = [line for line in lines if _step(line, path) <= step]
        with atomic(path) as file:
            file.write("".join(line + "\n" for line in earlier).encode())


def _step(line: str, path: Path) -> float:
    try:
        step = json_object(line, str(path)).get("step")
    except UserError:
        return math.inf
    return step if isinstance(step, int) else math.inf


def append_claims(folder: Path, row: Mapping[str, Any]) -> None:
    """Append what became of the claims at a batch. UserError where the disk refuses."""
    _append(folder / FOLDER / CLAIMS, row)


def append_optimizer(folder: Path, seen: OptimizerEvidence) -> None:
    """Append what the optimiser's state said. UserError where the disk refuses."""
    _append(folder / FOLDER / OPTIMIZER, {name: value for name, value in asdict(seen).items() if value == value})


def read_optimizer(folder: Path) -> tuple[OptimizerEvidence, ...]:
    """What the optimiser's state said, in the order of steps; () for a record without it, broken lines left out."""
    path = folder / FOLDER / OPTIMIZER
    if not path.exists():
        return ()
    rows = []
    for _, row in json_lines(path):
        try:
            rows.append(replace(typed(OptimizerEvidence, row), where=str(path)))
        except TypeError:
            continue
    return tuple(sorted(rows, key=lambda row: row.step))


def read_claims(folder: Path) -> tuple[Mapping[str, Any], ...]:
    """What became of the claims at each batch, in order; () for a record without it."""
    path = folder / FOLDER / CLAIMS
    return tuple(row for _, row in json_lines(path, growing=True)) if path.exists() else ()


def _append(path: Path, row: Mapping[str, Any]) -> None:
    try:
        append(path, (dumps(row) + "\n").encode())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; make room") from None
