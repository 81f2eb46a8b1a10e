"""The first, best and last level of what a run is judged by: worked out once, and said alike everywhere.

A last level is the mean of the last fifth of the rows, or of the evaluations, or of those of it that lie behind a
sudden fall; a first one the mean of the first rows, or the first evaluation; the best that of the best fifth. They are
those of the outcome (`run_outcome`) with its errors, and headline, sentence, tile, JSON, `runs`, `compare` and `watch`
take them from here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from grposcope.core.estimate import Estimate
from grposcope.core.run import Run, once
from grposcope.maths.intervals import Z, interval
from grposcope.signs import heldout, run_outcome
from grposcope.signs.outcome import Outcome
from grposcope.signs.quantities import Quantities


@dataclass(frozen=True)
class Levels:
    """Levels of a metric, the first, best and last one with their errors.

    first_step, last_step: of its first and last value; best_step: the middle of the best part.
    """

    name: str
    heldout: bool
    first: Estimate
    best: Estimate
    last: Estimate
    first_step: int
    best_step: int
    last_step: int

    @property
    def shares(self) -> bool:
        """Whether they are shares, which are shown in per cent."""
        return self.heldout and heldout.are_shares([self.first.value, self.best.value, self.last.value])

    def shown(self, level: Estimate) -> str:
        """A level with its interval."""
        return heldout.with_interval(level, self.shares)

    def interval(self, level: Estimate) -> tuple[float, float]:
        """The 95 % interval of a level; Wilson's only of a share of problems, for n is a number of rows elsewhere."""
        if self.shares and level.n:
            return interval(level)
        return level.value - Z * level.se, level.value + Z * level.se

    def document(self) -> dict[str, object]:
        """The levels for programs."""
        ends = {"first": (self.first_step, self.first), "best": (self.best_step, self.best),
                "last": (self.last_step, self.last)}  # fmt: skip
        return {"metric": self.name} | {
            name: {"step": step, **vars(level), "interval": list(self.interval(level))}
            for name, (step, level) in ends.items()
        }


def _of_outcome(outcome: Outcome) -> Levels | None:
    """The levels of an outcome; None where it has none."""
    if not outcome.name or math.isnan(outcome.end.value):
        return None
    return Levels(
        outcome.name, outcome.heldout, outcome.start, outcome.best, outcome.end, outcome.first, outcome.best_step,
        outcome.last,
    )  # fmt: skip


@once
def of_run(run: Run) -> Levels | None:
    """Levels of what the run is judged by; None where it has none."""
    return _of_outcome(run_outcome.of_run(run))


@once
def of_heldout(run: Run) -> Levels | None:
    """Levels of its held-out score, whether or not the run is judged by it; None without evaluations."""
    return _of_outcome(run_outcome.of_heldout(Quantities(run), least=1, stale=True))


@once
def of_reward(run: Run) -> Levels | None:
    """Levels of its training reward; None where it is not logged, or on hardly any row."""
    return _of_outcome(run_outcome.of_reward(Quantities(run))) if run.steps else None
