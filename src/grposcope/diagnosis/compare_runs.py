"""Where two runs part: the change of each metric's difference, tested against autocorrelated noise. Ours.

On the steps that both have, d_t = b_t − a_t. Runs part in a metric if d differs late from 0 or from how it began; p is
twice the least of the two-sided tests, adjusted by Holm over metrics. The step is the posterior median of where a
broken line through d breaks. Only metrics of one name are compared: relatives with another definition are not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grposcope.diagnosis.diagnose import holm
from grposcope.diagnosis.quantities import LEAST
from grposcope.errors import UserError
from grposcope.runs.run import Run
from grposcope.timeseries import change as trends

WATCHED = (
    "reward", "reward_after_kl", "reward_std", "dead_fraction", "entropy", "kl", "kl_loss", "length", "truncated",
    "at_limit", "grad_norm", "clip_fraction",
)  # fmt: skip
"""Metrics that are compared."""


@dataclass(frozen=True)
class Parting:
    """How two runs differ in a metric: over the last fifth, with se; the step they part at, in [low, high] (95 %)."""

    metric: str
    difference: float
    se: float
    p: float
    adjusted: float
    step: int
    low: int
    high: int


def partings(first: Run, second: Run) -> list[Parting]:
    """All watched metrics that both runs have on at least LEAST common steps; UserError if there are none."""
    steps, one, other = np.intersect1d(first.table["step"], second.table["step"], return_indices=True)
    found = []
    for name in WATCHED:
        if name not in first.table or name not in second.table:
            continue
        apart = second.table[name][other] - first.table[name][one]
        good = np.isfinite(apart)
        if good.sum() >= LEAST:
            found.append(_parting(name, steps[good], apart[good]))
    if not found:
        raise UserError(
            f"{first.meta.source} and {second.meta.source} share {len(steps)} steps and no metric on {LEAST} of them; "
            "compare runs that log the same metrics at the same steps"
        )
    adjusted = holm([p.p for p in found])
    return [Parting(**{**vars(p), "adjusted": a}) for p, a in zip(found, adjusted, strict=True)]


def _parting(name: str, steps: np.ndarray, apart: np.ndarray) -> Parting:
    curve = trends.fit(apart)
    level, change = curve.level(), curve.change()
    p = min(1.0, 2 * min(2 * min(t.p_up, t.p_down) for t in (level, change)))
    if level.se == 0 and level.value == 0 and change.value == 0:
        p = 1.0
    when = trends.onset(apart)
    at = [int(steps[min(row, len(steps) - 1)]) for row in (when.row, when.low, when.high)]
    return Parting(name, level.value, level.se, p, p, *at)
