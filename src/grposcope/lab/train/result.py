"""The totals of a run so far, and its result in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.core.estimate import Estimate
from grposcope.instruments import has
from grposcope.logs import read

if TYPE_CHECKING:
    from grposcope.instruments.diagnosis.learning import Learning


@dataclass(frozen=True)
class TrainResult:
    """Result of a run.

    rollouts, tokens: how many were sampled for training. interrupted: it ended before its last step, by Ctrl-C or by
    SIGTERM, which `terminated` tells apart. heldout: pass@1 of the first, best and last held-out
    evaluation; empty without evaluation. best_step: the step of the best one. rewards: mean reward of the
    rollouts behind every optimiser step. learning: whether the run learned, as terminal and page say it; None where the
    diagnosis is not there.
    """

    folder: Path
    steps: int
    rollouts: int
    tokens: int
    seconds: float
    interrupted: bool
    terminated: bool
    heldout: dict[str, Estimate]
    best_step: int
    rewards: list[float]
    learning: Learning | None

    def summary(self) -> dict[str, Any]:
        """The content of summary.json; what `learning` says is made anew from the record."""
        content = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "learning"}
        return {**content, "folder": str(self.folder)}


@dataclass
class Totals:
    """Totals of a run so far; a checkpoint keeps them.

    seconds: spent by the sessions before, if the run was resumed. bad_steps: steps in a row, up to now, whose gradient
    was not finite. rewards: per optimiser step. evals: step and pass@1 of every held-out evaluation.
    """

    seconds: float = 0.0
    rollouts: int = 0
    tokens: int = 0
    bad_steps: int = 0
    rewards: list[float] = field(default_factory=list)
    evals: list[tuple[int, Estimate]] = field(default_factory=list)

    @staticmethod
    def parse(content: Mapping[str, Any]) -> Totals:
        """The totals in the JSON of a checkpoint, in which Estimates are objects and NaN is a string."""
        totals = Totals(**content)
        pairs: list[Any] = totals.evals
        evals = [(step, Estimate(float(e["value"]), float(e["se"]), e["n"], e["flag"])) for step, e in pairs]
        return replace(totals, evals=evals)

    @property
    def best(self) -> tuple[int, Estimate] | None:
        """Step and pass@1 of the best held-out evaluation; None without evaluations."""
        return max(self.evals, key=lambda e: e[1].value, default=None)

    def result(self, folder: Path, interrupted: bool, terminated: bool) -> TrainResult:
        """The run as it ends now, whose record is in `folder`."""
        heldout: dict[str, Estimate] = {}
        if self.best is not None:
            heldout = {"first": self.evals[0][1], "best": self.best[1], "last": self.evals[-1][1]}
        return TrainResult(
            folder=folder,
            steps=len(self.rewards),
            rollouts=self.rollouts,
            tokens=self.tokens,
            seconds=self.seconds,
            interrupted=interrupted,
            terminated=terminated,
            heldout=heldout,
            best_step=self.best[0] if self.best else 0,
            rewards=self.rewards,
            learning=_learned(folder),
        )


def _learned(folder: Path) -> Learning | None:
    """Whether the run learned; None where the diagnosis is not there."""
    if has("diagnosis"):
        from grposcope.instruments.diagnosis.learning import of_run

        return of_run(read(folder))
    return None
