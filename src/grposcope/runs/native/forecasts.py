"""Reads what a record says of its groups beside their rewards where rollouts were allocated: forecasts and weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grposcope.files import json_object
from grposcope.runs.run import Floats, Ints


@dataclass(frozen=True)
class GroupForecasts:
    """The groups of a record that were forecast, (N,) each.

    step; problem: a number for each; successes and rollouts, without rewards that failed; weight of each group;
    forecast, base, difficulty: success rates as `allocation.forecast` forecast them before the batch.
    """

    step: Ints
    problem: Ints
    successes: Floats
    rollouts: Floats
    weight: Floats
    forecast: Floats
    base: Floats
    difficulty: Floats

    def __len__(self) -> int:
        return len(self.step)


def of_run(folder: Path) -> GroupForecasts | None:
    """The forecasts in the groups.jsonl of a record; None where there are none."""
    try:
        lines = (folder / "groups.jsonl").read_bytes().split(b"\n")[:-1]
    except OSError:
        return None
    rows = []
    names: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if b'"forecast"' not in line:
            continue
        row = json_object(line, f"{folder / 'groups.jsonl'}, line {number}")
        rewards = [float(r) for r in row["rewards"]]
        graded = [r for r in rewards if not math.isnan(r)]
        place = names.setdefault(str(row["problem"]), len(names))
        said = (float(row.get(name, math.nan)) for name in ("weight", "forecast", "base", "difficulty"))
        rows.append((row["step"], place, sum(graded), len(graded), *said))
    if not rows:
        return None
    table = np.array(rows, np.float64).T
    return GroupForecasts(table[0].astype(np.int64), table[1].astype(np.int64), *table[2:])
