"""How often each training problem was drawn: by the groups that are recorded, else by the epochs that are logged."""

from __future__ import annotations

import math

import numpy as np

from grposcope.core.text import number
from grposcope.signs.heldout import heldout_scores
from grposcope.signs.outcome_tests import second_difference_variance
from grposcope.signs.quantities import MetricSeries, Quantities

OFTEN, SEVERAL = 20.0, 5.0
"""Draws of each problem from which it may be learned by heart; fewer do where the held-out score rose with the reward
at first, as it does of problems that are learned and seldom of a grader that is gamed."""

RISEN = 3.0
"""Standard errors of one evaluation by which it rose."""


def learned_by_heart(quantities: Quantities) -> str:
    """That each training problem was drawn OFTEN times or more, as a clause; empty where not, or where not known."""
    groups, epoch = quantities.run.groups, quantities.column("epoch")
    if len(groups):
        problems = len(np.unique(groups.problem))
        times = len(groups) / problems
        said = f"each of the {problems:,} training problems was drawn {number(times)} times"
        return said if times >= OFTEN else ""
    times = 0.0 if epoch is None else float(epoch.values.max())
    if epoch is None or times < (SEVERAL if _rose_first(quantities, epoch) else OFTEN):
        return ""
    return f"each training problem was drawn {number(times)} times, by the epochs"


def _rose_first(quantities: Quantities, epoch: MetricSeries) -> bool:
    """Whether the held-out score rose beyond its noise over the first epoch or longer before it was at its best."""
    scores = heldout_scores(quantities)
    if not scores:
        return False
    score, known = scores[0].score, scores[0].variance
    variance = known if known > 0 else second_difference_variance(score.values)
    best = int(np.argmax(score.values))
    first = float(score.values[: max(len(score) // 10, 1)].mean())
    drawn = float(np.interp(score.steps[best], epoch.steps, epoch.values))
    return drawn >= 1 and float(score.values[best]) - first > RISEN * math.sqrt(variance)
