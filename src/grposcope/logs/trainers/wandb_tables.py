"""Rollouts from the tables that trainers log to Weights & Biases, files/media/table/NAME_….table.json of a run.

TRL's `completions` have a row a rollout: step, prompt, completion, and a number for each reward function. verl's
`val/generations` have a row a step: step, and input_N, output_N, score_N of every sample; they are of evaluations, one
rollout a prompt. A later table of verl has the rows of those before it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.files import read_whole
from grposcope.core.rollouts import Rollout
from grposcope.logs.rollout_rows import row_of
from grposcope.logs.written_rollouts import WrittenFiles

FOLDERS = ("", "table", "media/table", "files/media/table", "latest-run/files/media/table")
"""Where the tables lie below the place that a user names."""

_NO_REWARDS = ("step", "prompt", "completion", "advantage", "prompt_id", "completion_length")
_SAMPLE = re.compile(r"output_(\d{1,9})")


def find(path: Path) -> WrittenFiles | None:
    """The tables of rollouts at a place: a file, their folder, or that of a run; None where there are none."""
    if path.is_file():
        return WrittenFiles("", path, rollouts, sums=True) if _is_table(path) else None
    for folder in (path / name for name in FOLDERS):
        if folder.is_dir() and any(map(_is_table, _files(folder))):
            return WrittenFiles("", folder, _of_folder, sums=True)
    return None


def _files(folder: Path) -> list[Path]:
    """The tables in a folder and in those below it, such as val/."""
    return sorted([*folder.glob("*.table.json"), *folder.glob("*/*.table.json")])


def rollouts(path: Path) -> Iterator[Rollout]:
    """The rollouts of a table. UserError for one that is no table of rollouts."""
    columns, rows = _table(path)
    for number, values in enumerate(rows, 1):
        row = dict(zip(columns, values, strict=True))
        where = f"{path}, row {number}"
        yield from _samples(row, where) if "output_1" in row else (_rollout(row, where),)


def _of_folder(folder: Path) -> Iterator[Rollout]:
    """The rollouts of some tables in the order of the steps, each step from the table with most of it."""
    steps: dict[int, list[Rollout]] = {}
    for path in filter(_is_table, _files(folder)):
        own: dict[int, list[Rollout]] = {}
        for row in rollouts(path):
            own.setdefault(row.step, []).append(row)
        for step, members in own.items():
            if len(members) > len(steps.get(step, ())):
                steps[step] = members
    for step in sorted(steps):
        yield from steps[step]


def _rollout(row: Mapping[str, Any], where: str) -> Rollout:
    numbers = {name: value for name, text in row.items() if name not in _NO_REWARDS
               and (value := _number(text)) is not None}  # fmt: skip
    reward = numbers.pop("reward", math.nan)
    more = {"step": _step(row, where), "prompt": row["prompt"], "completion": row["completion"], "rewards": numbers}
    return row_of(more if math.isnan(reward) else {**more, "reward": reward}, where)


def _samples(row: Mapping[str, Any], where: str) -> Iterator[Rollout]:
    for name in row:
        if match := _SAMPLE.fullmatch(name):
            number = match[1]
            score = _number(row.get(f"score_{number}"))
            own = {"step": _step(row, where), "prompt": row.get(f"input_{number}"), "completion": row[name]}
            yield row_of({**own, "reward": math.nan if score is None else score}, f"{where}, sample {number}")


def _step(row: Mapping[str, Any], where: str) -> int:
    value = _number(row.get("step"))
    if value is None or not value.is_integer():
        raise UserError(f"{where}: step is {row.get('step')!r}; give a whole number")
    return int(value)


def _number(value: Any) -> float | None:
    """A number, which TRL writes as a text; None for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _is_table(path: Path) -> bool:
    if not path.name.endswith(".table.json"):
        return False
    try:
        columns, _ = _table(path)
    except UserError:
        return False
    return {"step", "prompt", "completion"} <= {*columns} or {"step", "input_1", "output_1"} <= {*columns}


def _table(path: Path) -> tuple[list[str], list[list[Any]]]:
    """The columns and rows of a table; UserError for what is none."""
    try:
        whole = json.loads(read_whole(path))
        columns, rows = whole["columns"], whole["data"]
        fits = all(isinstance(name, str) for name in columns) and all(len(row) == len(columns) for row in rows)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        fits, columns, rows = False, [], []
    if not fits:
        raise UserError(f"{path} is no table of Weights & Biases; restore it, or name another file")
    return columns, rows
