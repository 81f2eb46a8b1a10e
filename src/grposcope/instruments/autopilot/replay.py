"""What an autopilot would have said of a run that is recorded, fed step by step as the run was."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import Estimate
from grposcope.core.not_finite import STOPPED, is_written_null, not_finite
from grposcope.core.run import Run
from grposcope.instruments.autopilot.events import Story
from grposcope.instruments.autopilot.pilot import Pilot, Situation
from grposcope.instruments.autopilot.policy import AutopilotPolicy

Floats = NDArray[np.float64]

ACCURACIES = ("pass@1", "accuracy", "reward")
"""Metrics of evaluations that are taken, the first that the run has."""


def replay(run: Run, policy: AutopilotPolicy) -> Story:
    """What a pilot of `policy` would have decided. After each decision the run is taken to go on as it did.

    Groups of rollouts are used where the run has them; else the mean reward of a step is one value.
    """
    pilot, decisions = Pilot(policy), []
    rewards, accuracies, norms = _rewards(run), _accuracies(run), _norms(run)
    if not len(run.groups) and all(0 <= float(values.min()) <= 1 for values, _ in rewards.values()):
        pilot.reward.low, pilot.reward.high = 0.0, 1.0  # means vary less than the rewards that they are of
    interval = run.refresh_interval
    for step in sorted({*rewards, *accuracies, *norms}):
        if step in rewards:
            pilot.batch(step, *rewards[step])
        if step in norms:
            pilot.update(norms[step])
        if step in accuracies:
            pilot.evaluation(step, accuracies[step])
        if (alarm := pilot.alarm(step)) is not None:
            checkpoints = [at for at in accuracies if at < step] or [at for at in rewards if at < step]
            decisions.append(pilot.decide(alarm, Situation(step, interval, checkpoints=checkpoints)))
    return Story(decisions)


def _rewards(run: Run) -> dict[int, tuple[Floats, Floats | None]]:
    """Rewards (P, G) of each step, NaN where a group is smaller, and which completions were cut."""
    groups = run.groups
    if not len(groups):
        values = run.table.get("reward")
        if values is None:
            return {}
        pairs = zip(run.table["step"].tolist(), values, strict=True)
        return {int(step): (np.array([[value]]), None) for step, value in pairs if np.isfinite(value)}
    position = np.repeat(np.arange(len(groups)), groups.sizes), np.concatenate([np.arange(n) for n in groups.sizes])
    padded = np.full((len(groups), int(groups.sizes.max())), np.nan)
    padded[position] = groups.rewards
    cut = None
    if groups.truncated is not None:
        whole = np.full(padded.shape, np.nan)
        whole[position] = groups.truncated
        cut = np.nanmean(whole, 1, keepdims=True)
    return {
        int(step): (padded[groups.step == step], None if cut is None else cut[groups.step == step])
        for step in np.unique(groups.step)
    }


def _accuracies(run: Run) -> dict[int, Estimate]:
    evaluations = run.evaluations
    for name in ACCURACIES:
        if name in evaluations.metrics:
            series = evaluations.of(name)
            rows = zip(series.step.tolist(), series.value.tolist(), series.se.tolist(), series.n.tolist(), strict=True)
            return {int(step): Estimate(value, se, int(n)) for step, value, se, n in rows}
    return {}


def _norms(run: Run) -> dict[int, float]:
    """Gradient norm of each step that has one, NaN where it was written as that.

    Nulls may be a column that has stopped, so that they count from the row on at which a diagnosis of the rows so far
    would count them, the one after STOPPED in a row.
    """
    norms = run.table.get("grad_norm")
    if norms is None:
        return {}
    odd = not_finite(run.table).get("grad_norm", np.zeros(len(norms), bool))
    nulls = is_written_null(norms)
    early = nulls & ~np.array([nulls[max(0, k - STOPPED) : k + 1].sum() > STOPPED for k in range(len(nulls))], bool)
    rows = zip(run.table["step"].tolist(), norms.tolist(), odd & ~early, strict=True)
    return {int(step): math.nan if bad else norm for step, norm, bad in rows if bad or math.isfinite(norm)}
