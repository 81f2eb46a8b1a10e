"""One line for each of many runs: its verdict, what became of it, its settings, and the course of its reward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.estimate import Estimate
from grposcope.core.metrics import variant
from grposcope.core.outline import outline
from grposcope.core.run import Floats, Run
from grposcope.core.text import number
from grposcope.instruments.diagnosis.verdict import Verdict, findings_of, verdict
from grposcope.signs import levels

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


def of_run(run: Run) -> RunLine:
    """The line of a run."""
    name = variant("reward", run.table)
    reward = run.table[name] if name is not None else np.full(run.steps, math.nan)
    seen, paid = levels.of_heldout(run), levels.of_reward(run)
    settings = {key: value for key in SETTINGS if (value := run.setting(key)) is not None}
    return RunLine(
        path=run.meta.source,
        name=run.meta.name,
        engine=run.meta.engine,
        status=run.meta.status,
        verdict=verdict(run, findings_of(run)),
        steps=run.steps,
        heldout=seen.last if seen is not None else None,
        shown_heldout=seen.shown(seen.last) if seen is not None else "none",
        reward=paid.last if paid is not None else outline(reward).last_tenth,
        curve=_small_curve(reward),
        settings=settings,
        began=_began(run),
    )


def named_apart(lines: Sequence[RunLine], folder: Path) -> list[RunLine]:
    """The lines with the path below `folder` as their names, newest first; those without a time come last."""
    named = [
        replace(line, name=str(line.path.relative_to(folder)) if line.path.is_relative_to(folder) else str(line.path))
        for line in lines
    ]
    return sorted(named, key=lambda line: (line.began, line.name), reverse=True)


def _small_curve(values: Floats) -> tuple[float, ...]:
    """Means of a column (n,) over up to POINTS equal parts; parts without a finite value are left out."""
    parts = np.array_split(values, min(POINTS, len(values))) if len(values) else []
    finite = [values[np.isfinite(values)] for values in parts]
    return tuple(float(values.mean()) for values in finite if len(values))


def _began(run: Run) -> str:
    """When a run began: as its record says, else when its log was last written."""
    if started := run.config.get("started"):
        return str(started)
    try:
        return datetime.fromtimestamp(run.meta.source.stat().st_mtime).astimezone().isoformat(timespec="seconds")
    except OSError:
        return ""
