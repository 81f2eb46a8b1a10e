"""Forecasts beside the base rate and the difficulty alone, and what a record says of those made in a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from grposcope.core.files import json_object
from grposcope.core.run import Floats, Ints
from grposcope.lab.allocation.forecast import Forecaster, _features, _updated, _Weights


class ComparedForecaster(Forecaster):
    """A forecaster, and beside it two plain forecasts by the same regression to compare it with.

    "base" knows only the level of the run, "difficulty" the task's own measure of it too, where it has one.
    """

    def __init__(self, problems: Sequence[str], difficulty: ArrayLike, lengths: ArrayLike):
        """As of `Forecaster`."""
        super().__init__(problems, difficulty, lengths)
        self._plain_x = {
            "base": np.ones((len(problems), 1)),
            "difficulty": _features(difficulty, np.ones(len(problems))),
        }
        self._plain = {kind: _Weights.start(x.shape[1]) for kind, x in self._plain_x.items()}

    def means(self, which: Ints) -> dict[str, Floats]:
        """The success rates of some problems as forecast, by the base rate, and by the difficulty alone, (C,) each."""
        plain = {kind: known.rates(self._plain_x[kind][which]) for kind, known in self._plain.items()}
        return {"forecast": self.rates(which).mean, **plain}

    def learn(self, which: Ints, successes: ArrayLike, rollouts: ArrayLike) -> None:
        """Take in a batch, by all three."""
        super().learn(which, successes, rollouts)
        k, n = np.asarray(successes, np.float64), np.asarray(rollouts, np.float64)
        which, k, n = which[n > 0], k[n > 0], n[n > 0]
        for kind, x in self._plain_x.items() if len(which) else ():
            self._plain[kind] = _updated(self._plain[kind], x[which], k, n, self.strength)

    def state(self) -> dict[str, Any]:
        """Everything learned, by all three."""
        plain = {kind: [known.mean.tolist(), known.precision.tolist()] for kind, known in self._plain.items()}
        return {**super().state(), "plain": plain}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        super().restore(state)
        self._plain = {kind: _Weights(*(np.array(part) for part in parts)) for kind, parts in state["plain"].items()}


@dataclass(frozen=True)
class GroupForecasts:
    """The groups of a record that were forecast, (N,) each.

    step; problem: a number for each; successes and rollouts, without rewards that failed; weight of each group;
    forecast, base, difficulty: success rates as `ComparedForecaster.means` were before the batch.
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
    """The forecasts in the groups.jsonl of a record of `drawing`; None where there are none."""
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
