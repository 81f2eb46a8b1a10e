"""Time of a run: seconds by phase of an optimiser step, and tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from grposcope.core.run import Floats, Run

PROBES = "probes"
PHASES = {
    "seconds_sample": "sampling",
    "seconds_grade": "grading",
    "seconds_update": "update",
    "seconds_probe": PROBES,
}
"""Metric of a record -> phase, in the order of a step."""

REST = "evaluation and other"
"""Name of the phase that holds the time between two rows which no other phase explains."""


@dataclass(frozen=True)
class Timing:
    """Times of a run.

    phases: phase -> seconds of every step (n,), NaN where unknown; empty where no times are recorded.
    tokens: tokens of the completions of all batches; NaN where they are not recorded.
    """

    phases: Mapping[str, Floats]
    tokens: float

    @property
    def seconds(self) -> dict[str, float]:
        """Phase -> seconds of the whole run."""
        return {name: float(np.nansum(column)) for name, column in self.phases.items()}

    @property
    def total(self) -> float:
        """Seconds of all phases."""
        return sum(self.seconds.values())


def of_run(run: Run) -> Timing:
    """Times of a run; those besides the phases only where its rows carry the time at which they were written."""
    phases = {name: run.table[key] for key, name in PHASES.items() if key in run.table}
    if PROBES in phases:
        phases[PROBES] = np.nan_to_num(phases[PROBES])  # only some steps are probed
    if phases and "time" in run.table and run.steps > 1:
        named = np.nansum(list(phases.values()), axis=0)
        times = np.where(np.isfinite(run.table["time"]), run.table["time"], math.nan)
        phases[REST] = np.clip(np.diff(times, prepend=math.nan) - named, 0, None)
    tokens = float(np.nansum(run.table["tokens"])) if "tokens" in run.table else math.nan
    return Timing(phases, tokens)
