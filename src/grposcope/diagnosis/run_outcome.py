"""What became of a run: by its held-out score if that was evaluated to the end, else by its reward."""

from __future__ import annotations

import numpy as np

from grposcope.diagnosis import outcome
from grposcope.diagnosis.heldout import heldout_scores
from grposcope.diagnosis.outcome import Outcome
from grposcope.diagnosis.quantities import LEAST, MetricSeries, Quantities
from grposcope.timeseries.change import LATE

TWO = 2
"""Evaluations that are enough where each has its standard error."""


def of_run(quantities: Quantities) -> Outcome:
    """What became of the run; by its reward where its evaluations cannot tell."""
    reward = quantities.get("reward", least=1)
    scored = heldout_scores(quantities, TWO)
    if scored and _is_current(scored[0].score, reward):
        held = scored[0].score
        rows = quantities.run.evaluations.of(held.name)
        shares = held.values.min() >= 0 and held.values.max() <= 1
        ends, margin = ((0.0, 1.0), outcome.STILL) if shares else (None, None)
        errors = rows.se[np.isfinite(rows.value)]
        by_score = outcome.of_evaluations(held.steps, held.values, errors, ends, margin, held.name)
        if by_score.fate != "cannot tell" or reward is None:
            return by_score
    if reward is None:
        return Outcome("cannot tell")
    margin = quantities.reward_margin(outcome.STILL)
    if len(reward) < LEAST:
        return Outcome("cannot tell", reward.name)
    return outcome.of_reward(reward.steps, reward.curve, reward.line, quantities.reward_range, margin, reward.name)


def _is_current(held: MetricSeries, reward: MetricSeries | None) -> bool:
    """Whether the last evaluation lies in the last part of the run."""
    if reward is None:
        return True
    begin, end = reward.steps[0], reward.steps[-1]
    return bool(held.steps[-1] >= begin + LATE[0] * (end - begin))
