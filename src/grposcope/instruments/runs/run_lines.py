"""One line for each of many runs: its verdict, what became of it, its settings, and the course of its reward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grposcope.core.estimate import Estimate
from grposcope.core.text import number
from grposcope.instruments.diagnosis.verdict import Verdict

POINTS = 40
"""Points of the small curve of a run's reward."""


@dataclass(frozen=True)
class RunLine:
    """What a table of many runs says of one.

    path: where the run is. word: first word of its verdict: failing, warning, healthy or cannot tell. heldout: the last
    level of its held-out score, None without one; shown_heldout: the same with its 95 % interval, as text. reward: the
    last level of its training reward (`signs.levels`). curve: means of the reward over up to POINTS equal parts of
    the run, NaN where none is recorded. began: when it began, ISO 8601, empty if not known.
    """

    path: Path
    name: str
    engine: str
    status: str
    verdict: Verdict
    steps: int
    heldout: Estimate | None
    shown_heldout: str
    reward: Estimate
    curve: tuple[float, ...]
    settings: dict[str, Any]
    began: str

    @property
    def word(self) -> str:
        """The first word of the verdict."""
        return self.verdict.word

    @property
    def shown_reward(self) -> str:
        """The reward at the end of the run."""
        return number(self.reward.value) if math.isfinite(self.reward.value) else "none"

    def setting(self, name: str) -> str:
        """A setting as text; empty where it is not recorded."""
        return str(self.settings.get(name, ""))


SETTINGS = ("recipe", "group", "model", "task", "seed")
"""Settings that the table shows where they are recorded."""
