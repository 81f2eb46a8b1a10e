"""Rollouts from prime-rl's token_exports/step_N/rank_R.jsonl: whole sequences, with an array per column.

The prompt is what stands before the first trained token (`loss_mask`). Those of one prompt in a step are a group, which
need not be whole: sequences without a trained token are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.files import json_lines
from grposcope.core.rollouts import Rollout
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.rollout_columns import GROUP
from grposcope.logs.rollout_rows import rows_of
from grposcope.logs.trainers import prime_rl

_PER_TOKEN = ("trainer_logprobs", "inference_logprobs")


def files(path: Path) -> dict[int | None, list[Path]]:
    """Step -> files of exports at a place: their folder or that of a run, or a file, of which the rows say the step."""
    if path.is_dir():
        return dict(prime_rl.export_files(path).items())
    file = LogFile(path)
    row = file.first_row if file.shape == "json lines" else None
    return {None: [path]} if row is not None and _is_export(row) else {}


def _is_export(row: Mapping[str, Any]) -> bool:
    told = any(name in row for name in GROUP)
    return {"token_ids", "loss_mask"} <= row.keys() and any(name in row for name in _PER_TOKEN) and not told


def rollouts(path: Path, step: int | None = None) -> Iterator[Rollout]:
    """The rollouts of a file, in its order; step: by default what the rows say.

    UserError, with the line, for columns without a value for each token.
    """
    for made in rows_of(_rows(path)):
        yield made if step is None else replace(made, step=step)


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for line, row in json_lines(path, growing=True):
        where = f"{path}, line {line}"
        mask, ids = row.get("loss_mask"), row.get("token_ids")
        if not isinstance(mask, list) or not isinstance(ids, list) or len(mask) != len(ids):
            raise UserError(f"{where}: loss_mask lacks a flag for each of token_ids; give the exports unchanged")
        if lacking := next((name for name in _PER_TOKEN if name in row and len(row[name] or ()) != len(mask)), None):
            raise UserError(f"{where}: {lacking} has no value for each of {len(mask):,} tokens")
        if any(mask):
            rewards = [reward for reward in row.get("rewards") or () if reward is not None]
            yield where, {**row, "rewards": None, "reward": rewards[-1] if rewards else None}
