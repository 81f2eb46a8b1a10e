"""Rollouts of a JSONL file with the rewards of single functions, a rollout a line."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import json_lines, json_number
from grposcope.core.run import Groups, Meta, Run, no_evaluations
from grposcope.core.text import visible

GROUP = ("group", "problem", "prompt")
"""Names that the column has which tells groups apart."""


def recognises(path: Path) -> bool:
    """Whether a file has a rollout a line with an object of rewards."""
    if not path.is_file() or path.suffix not in (".jsonl", ".json", ".gz"):
        return False
    try:
        _, row = next(iter(json_lines(path)))
    except (UserError, StopIteration):
        return False
    return isinstance(row.get("rewards"), dict)


def read(path: Path, settings: dict[str, Any]) -> Run:
    """The rollouts as a run: each line has `rewards`, an object of numbers or null by function, a `group`, and where
    known a `step`, the `reward` that was trained on and the `length` in tokens. UserError that names the line."""
    groups: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for line, row in json_lines(path):
        where = f"{path}, line {line}"
        given = row.get("rewards")
        if not isinstance(given, dict) or not given:
            raise UserError(f'{where}: rewards is not an object such as {{"right": 1, "format": 0.5}}')
        rewards = {
            str(name): _number(value, f"{where}: the reward {visible(str(name), 40)}") for name, value in given.items()
        }
        name = next((name for name in GROUP if row.get(name) is not None), None)
        if name is None:
            raise UserError(f'{where} has no group, and weights are computed within groups; add a column "group"')
        step = row.get("step", 0)
        if not isinstance(step, int):
            raise UserError(f"{where}: step is {visible(str(step), 40)}; give a whole number")
        total, length = (_number(row.get(key), f"{where}: {key}") for key in ("reward", "length"))
        one = {"rewards": rewards, "reward": total, "length": length}
        groups.setdefault((step, str(row[name])), []).append(one)
    names = list(dict.fromkeys(name for rows in groups.values() for row in rows for name in row["rewards"]))
    lengths = [[row["length"] for row in rows] for rows in groups.values()]
    return Run(
        Meta(path, "generic", path.name, "unknown"),
        {"settings": settings},
        {"step": np.unique([float(step) for step, _ in groups])},
        Groups.of(
            [step for step, _ in groups],
            [name for _, name in groups],
            [[row["reward"] for row in rows] for rows in groups.values()],
            components=[
                {name: [row["rewards"].get(name, math.nan) for row in rows] for name in names}
                for rows in groups.values()
            ],
            lengths=lengths if np.isfinite(np.concatenate(lengths)).all() else None,
        ),
        no_evaluations(),
    )


def with_sums(run: Run) -> Run:
    """The run with the sum of the rewards for each rollout without a reward of its own; absent ones count as 0."""
    groups = run.groups
    sums = np.sum([np.nan_to_num(values) for values in groups.components.values()], axis=0)
    return replace(run, groups=replace(groups, rewards=np.where(np.isnan(groups.rewards), sums, groups.rewards)))


def _number(value: Any, what: str) -> float:
    number = json_number(value)
    if number is None:
        raise UserError(f"{what} is {visible(str(value), 40)}; give a number, or null where there is none")
    return number
