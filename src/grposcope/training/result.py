"""What a run has added up so far, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from grposcope.facts.learning import Learning, of_curves
from grposcope.records import Estimate


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    rollouts, tokens: all that were sampled for training. heldout: pass@1 first, best and last;
    empty without evaluation. rewards: mean reward of the rollouts behind every optimiser step.
    learning: whether the run learned, as terminal and page say it.
    """

    folder: Path
    steps: int
    rollouts: int
    tokens: int
    seconds: float
    interrupted: bool
    heldout: dict[str, Estimate]
    best_step: int
    rewards: list[float]
    learning: Learning

    def summary(self) -> dict[str, Any]:
        """The content of summary.json; what `learning` says is made anew from the record."""
        content = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "learning"}
        return {**content, "folder": str(self.folder)}


@dataclass
class Tally:
    """What a run has added up so far; seconds are those of earlier sessions, before a resume."""

    seconds: float = 0.0
    rollouts: int = 0
    tokens: int = 0
    bad_steps: int = 0
    rewards: list[float] = field(default_factory=list)
    evals: list[tuple[int, Estimate]] = field(default_factory=list)

    @staticmethod
    def restored(content: Mapping[str, Any]) -> Tally:
        """From what a checkpoint kept; empty of nothing."""
        tally = Tally(**content)
        kept: list[Any] = tally.evals  # of JSON: Estimates as objects, with NaN as a string
        evals = [(step, Estimate(float(e["value"]), float(e["se"]), e["n"], e["flag"])) for step, e in kept]
        return replace(tally, evals=evals)

    @property
    def best(self) -> tuple[int, Estimate] | None:
        """Step and pass@1 of the best held-out evaluation; None without evaluations."""
        return max(self.evals, key=lambda e: e[1].value, default=None)

    def outcome(self, folder: Path, interrupted: bool) -> Outcome:
        """The run as it ends here."""
        heldout: dict[str, Estimate] = {}
        if self.best is not None:
            heldout = {"first": self.evals[0][1], "best": self.best[1], "last": self.evals[-1][1]}
        return Outcome(
            folder=folder,
            steps=len(self.rewards),
            rollouts=self.rollouts,
            tokens=self.tokens,
            seconds=self.seconds,
            interrupted=interrupted,
            heldout=heldout,
            best_step=self.best[0] if self.best else 0,
            rewards=self.rewards,
            learning=of_curves(self.evals, self.rewards, len(self.rewards)),
        )
