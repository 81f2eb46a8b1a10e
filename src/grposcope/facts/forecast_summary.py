"""What the dynamics room says of one reward curve, gathered for the page and for `grposcope fit`.

Models ranked on later steps, phases, and a forecast of half as many further steps as there were. A long run is
averaged to POINTS means of neighbouring rewards first: fits of a smooth curve lose little by it, and a page stays
quick to make.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from grposcope.dynamics import fit
from grposcope.formatting import number
from grposcope.timeseries.model_comparison import last_level
from grposcope.timeseries.noise import Array
from grposcope.timeseries.reward_curve import RewardCurve, averaged, clean, each_batch

POINTS = 1000
"""Points that a curve is averaged to, at most; the page takes fewer."""

BEGINNINGS = {
    "rising": "Rising",
    "falling": "Falling",
    "level": "Level",
    "cannot tell": "Cannot tell whether it goes on rising",
}


@dataclass(frozen=True)
class Outlook:
    """series: what was fitted. compared: None where the models were not asked for. truth: later steps and rewards
    that were hidden from the fits, averaged like the rest; empty unless some were."""

    series: RewardCurve
    compared: fit.Comparison | None
    phases: tuple[fit.Phase, ...]
    ahead: fit.Forecast
    truth: tuple[Array, Array]


def outlook(
    steps: ArrayLike,
    reward: ArrayLike,
    horizon: float | None = None,
    coverage: float = 0.9,
    until: float | None = None,
    interval: int = 1,
    points: int = POINTS,
    models: bool = True,
) -> Outlook:
    """Fit and forecast; UserError for data that cannot be a curve.

    horizon: further steps; if None up to the last hidden one, or else half of those seen. until: the last step
    to be seen. interval: optimiser
    steps on each batch of rollouts. models: whether to compare models, most of the work.
    """
    whole = each_batch(clean(steps, reward), interval)
    known = np.ones(len(whole.steps), bool) if until is None else whole.steps <= until
    seen = clean(whole.steps[known], whole.reward[known])
    series = averaged(RewardCurve(seen.steps, seen.reward, whole.notes), points)
    size = -(-len(seen.steps) // points)
    later = whole.steps[~known], whole.reward[~known]
    kept = len(later[0]) // size * size
    truth = tuple(column[:kept].reshape(-1, size).mean(1) for column in later)
    span = float(series.steps[-1] - series.steps[0])
    further = horizon if horizon is not None else max(1.0, later[0][-1] - series.steps[-1] if kept else span / 2)
    compared = fit.compare(series.steps, series.reward) if models else None
    ahead = fit.forecast(series.steps, series.reward, further, coverage=coverage)
    ahead = replace(ahead, flag="; ".join(filter(None, (ahead.flag, *series.notes))))
    return Outlook(series, compared, fit.phases(series.steps, series.reward), ahead, (truth[0], truth[1]))


def sentence(found: Outlook) -> str:
    """Where the reward is going, in words: what is expected, and what stopping now would lose."""
    ahead, series = found.ahead, found.series
    if series.constant:
        return "Constant reward: there is nothing to fit, and no gradient to learn from."
    further = float(ahead.steps[-1] - series.steps[-1])
    said = (
        f"{BEGINNINGS[ahead.verdict]}: in {number(further)} further steps {number(ahead.mean[-1])} is expected, "
        f"{ahead.coverage:.0%} of rewards between {number(ahead.low[-1])} and {number(ahead.high[-1])}"
    )
    low, high = ahead.gain_between
    if ahead.verdict == "cannot tell":
        return f"{said}; going on may change it by anything from {signed(low)} to {signed(high)}."
    if ahead.verdict == "falling":
        return f"{said}; stopping now spares {number(-ahead.gain.value)} ({number(-high)} to {number(-low)})."
    return f"{said}; stopping now loses {number(ahead.gain.value)} ({number(low)} to {number(high)})."


def ending(found: Outlook) -> str:
    """Where the curve ends, or that this cannot be told."""
    plateau = found.ahead.plateau
    if plateau.flag or not math.isfinite(plateau.value):
        return f"Plateau: {plateau.flag}."
    return (
        f"Plateau: {number(plateau.value)} ± {number(plateau.se)}, 95% of the way at step "
        f"{number(found.ahead.plateau_step)}, if the curve stays what it was."
    )


def signed(value: float) -> str:
    """A change with its sign."""
    return ("+" if value > 0 else "−" if value < 0 else "") + number(abs(value))


def numbers(found: Outlook) -> dict[str, Any]:
    """Everything as plain data, for the last line of output."""
    ahead = found.ahead
    said: dict[str, Any] = {"n": len(found.series.steps), "notes": list(found.series.notes)}
    if found.compared is not None:
        compared = found.compared
        said |= {
            "ceiling": compared.ceiling,
            "best": compared.best,
            "comparison": compared.flag,
            "models": {
                c.model: {
                    "held_out": c.held_out,
                    "explained": c.explained,
                    "r2": c.fit.r2 if c.fit else math.nan,
                    "parameters": dict(c.fit.parameters) if c.fit else {},
                    "flag": c.fit.flag if c.fit else "",
                }
                for c in compared.contenders
            },
        }
    said |= {
        "phases": found.phases,
        "forecast": {
            "step": float(ahead.steps[-1]),
            "mean": float(ahead.mean[-1]),
            "low": float(ahead.low[-1]),
            "high": float(ahead.high[-1]),
            "coverage": ahead.coverage,
            "level": ahead.level,
            "gain": ahead.gain,
            "gain_between": list(ahead.gain_between),
            "learning": ahead.learning,
            "plateau": ahead.plateau,
            "plateau_step": ahead.plateau_step,
            "verdict": ahead.verdict,
            "advice": ahead.advice,
            "flag": ahead.flag,
        },
    }
    if len(found.truth[0]):
        said["truth"] = truth(found)
    return said


def truth(found: Outlook) -> dict[str, float]:
    """How the forecast fared on the hidden steps that it reaches: share covered, and error ÷ that of the last level."""
    steps, values = found.truth
    ahead = found.ahead
    inside = steps <= ahead.steps[-1]
    steps, values = steps[inside], values[inside]
    if not len(steps):
        return {"points": 0, "covered": math.nan, "error": math.nan}
    low, high, mean = (np.interp(steps, ahead.steps, line) for line in (ahead.low, ahead.high, ahead.mean))
    base = float(np.sqrt(np.mean((values - last_level(found.series.reward)) ** 2)))
    error = float(np.sqrt(np.mean((values - mean) ** 2)))
    return {
        "points": len(steps),
        "covered": float(((low <= values) & (values <= high)).mean()),
        "error": error / base if base else math.nan,
    }
