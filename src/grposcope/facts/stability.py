"""Stability of a run's refresh interval: the check of `dynamics.refresh` at its curvature, with what to conclude."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from grposcope.dynamics import refresh
from grposcope.dynamics.stability import UpdateRule, update_rule, with_curvature
from grposcope.errors import UserError
from grposcope.facts.forecast_summary import POINTS
from grposcope.formatting import number
from grposcope.runs.run import Run
from grposcope.timeseries.curves import fit_series
from grposcope.timeseries.reward_curve import averaged, clean, each_batch

NEAR = 0.5
"""Share of the largest stable interval up to which an interval is called stable without a warning."""

MEASURE = "measure it on the model of the run with `grposcope stability`"


@dataclass(frozen=True)
class Stability:
    """The check of one update rule.

    margin: where its interval stands, None where the curvature is not known. between: largest stable interval at both
    ends of the 95 % interval of the curvature, NaN where that has no standard error, ∞ where it reaches 0. verdict:
    stable, "stable, near the threshold", unstable or cannot tell.
    """

    rule: UpdateRule
    margin: refresh.Margin | None
    between: tuple[float, float]
    verdict: str
    sentence: str


def from_reward(run: Run) -> UpdateRule:
    """Update rule of a run with the curvature that the time constant of its reward implies; UserError without reward.

    Directions that the reward does not see may be stiffer, so a stable interval from this curvature is an upper bound.
    """
    rule = update_rule(run)
    if "reward" not in run.table:
        raise UserError(f"{run.meta.source} records no reward")
    curve = each_batch(clean(run.table["step"], run.table["reward"]), rule.interval)
    return with_curvature(rule, fit_series(averaged(curve, POINTS), "exponential"))


def of_rule(rule: UpdateRule, ratio: refresh.Ratio = "none") -> Stability:
    """Check the refresh interval of a rule; `ratio`: the importance ratio that its gradient carries."""
    if not math.isfinite(rule.curvature.value):
        sentence = f"Stability: curvature unknown, since {rule.missing}; {MEASURE}."
        return Stability(rule, None, (math.nan, math.nan), "cannot tell", sentence)
    margin = refresh.margin(rule.step, rule.momentum, rule.curvature.value, rule.interval, ratio)
    between = _between(rule, ratio)
    verdict = _verdict(margin, between)
    return Stability(rule, margin, between, verdict, _sentence(margin, between))


def _between(rule: UpdateRule, ratio: refresh.Ratio) -> tuple[float, float]:
    if not math.isfinite(rule.curvature.se):
        return math.nan, math.nan
    low, high = rule.curvature.interval()
    least, most = (refresh.threshold(rule.step, rule.momentum, k, ratio) if k > 0 else math.inf for k in (high, low))
    return least, most


def _verdict(margin: refresh.Margin, between: tuple[float, float]) -> str:
    if margin.stable is None or (math.isfinite(between[0]) and between[0] < margin.interval <= between[1]):
        return "cannot tell"
    if not margin.stable:
        return "unstable"
    return "stable" if margin.share <= NEAR else "stable, near the threshold"


def _sentence(margin: refresh.Margin, between: tuple[float, float]) -> str:
    """For a curvature that comes from the time constant of the reward."""
    least, most = between
    unclear = " That range holds the interval of this run, so its stability cannot be told."
    return (
        f"Stability: this run takes {_steps(margin.interval)} on each batch of rollouts. Judged by how fast its reward "
        f"settles, training would blow up beyond {number(margin.threshold)} ({number(least)} to {number(most)})."
        f"{unclear if least < margin.interval <= most else ''} The steepest direction decides, and the reward does not "
        f"show it, so the true bound may be far lower: {MEASURE}."
    )


def _steps(count: int) -> str:
    return "1 optimiser step" if count == 1 else f"{count:,} optimiser steps"


def numbers(stability: Stability) -> dict[str, Any]:
    """All numbers by the keys of a page's JSON; NaN where the curvature is not known."""
    rule, margin = stability.rule, stability.margin
    return {
        "step": rule.step,
        "momentum": rule.momentum,
        "interval": rule.interval,
        "optimizer": rule.optimizer,
        "curvature": rule.curvature,
        "threshold": margin.threshold if margin else math.nan,
        "share": margin.share if margin else math.nan,
        "onset": margin.onset if margin else math.nan,
        "missing": rule.missing,
    }
