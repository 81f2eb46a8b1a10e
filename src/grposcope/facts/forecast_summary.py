"""Forecast of a reward curve: models ranked on later steps, phases, and a forecast, with the sentences about them.

The forecast reaches half as many further steps as there were. A long run is averaged to POINTS means of neighbouring
rewards first: fits of a smooth curve lose little by it, and a page stays quick to make.
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
class Hindsight:
    """Test of a forecast on later rewards that were hidden from it.

    points: hidden rewards that it reaches. covered: share of them inside the predictive interval. error: root mean
    square error of the expected rewards ÷ that of the last level; NaN where there is nothing to divide by.
    """

    points: int
    covered: float
    error: float
    sentence: str


@dataclass(frozen=True)
class ForecastSummary:
    """Facts of one reward curve.

    series: the fitted rewards. compared: the ranked models, None where they were not asked for. truth: later steps and
    rewards that were hidden from the fits, averaged like the rest; empty unless some were. hindsight: what they say of
    the forecast, None without them. sentence: what is expected, and what stopping now would lose. plateau: where the
    curve ends, or that this cannot be told. phase_clauses: one for each phase, without capital and full stop.
    """

    series: RewardCurve
    compared: fit.Comparison | None
    phases: tuple[fit.Phase, ...]
    ahead: fit.Forecast
    truth: tuple[Array, Array]
    hindsight: Hindsight | None
    sentence: str
    plateau: str
    phase_clauses: tuple[str, ...]


def summarize(
    steps: ArrayLike,
    reward: ArrayLike,
    horizon: float | None = None,
    coverage: float = 0.9,
    until: float | None = None,
    interval: int = 1,
    points: int = POINTS,
    models: bool = True,
) -> ForecastSummary:
    """Fit and forecast; UserError for data that cannot be a curve.

    horizon: further steps; if None up to the last hidden one, or else half of those seen. until: the last step to be
    seen. interval: optimizer steps on each batch of rollouts. models: whether to compare models, most of the work.
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
    phases = fit.phases(series.steps, series.reward)
    return ForecastSummary(
        series=series,
        compared=compared,
        phases=phases,
        ahead=ahead,
        truth=(truth[0], truth[1]),
        hindsight=None if until is None else _hindsight(series, ahead, *truth),
        sentence=_expected(series, ahead),
        plateau=_plateau(ahead),
        phase_clauses=tuple(map(_phase, phases)),
    )


def _expected(series: RewardCurve, ahead: fit.Forecast) -> str:
    """Sentence about what is expected, and what stopping now would lose."""
    if series.constant:
        return "Constant reward: there is nothing to fit, and no gradient to learn from."
    further = float(ahead.steps[-1] - series.steps[-1])
    expected = (
        f"{BEGINNINGS[ahead.verdict]}: in {number(further)} further steps {number(ahead.mean[-1])} is expected, "
        f"{ahead.coverage:.0%} of rewards between {number(ahead.low[-1])} and {number(ahead.high[-1])}"
    )
    low, high = ahead.gain_between
    if ahead.verdict == "cannot tell":
        return f"{expected}; going on may change it by anything from {signed(low)} to {signed(high)}."
    if ahead.verdict == "falling":
        return f"{expected}; stopping now spares {number(-ahead.gain.value)} ({number(-high)} to {number(-low)})."
    return f"{expected}; stopping now loses {number(ahead.gain.value)} ({number(low)} to {number(high)})."


def _plateau(ahead: fit.Forecast) -> str:
    plateau = ahead.plateau
    if plateau.flag or not math.isfinite(plateau.value):
        return f"Plateau: {plateau.flag}."
    return (
        f"Plateau: {number(plateau.value)} ± {number(plateau.se)}, 95% of the way at step "
        f"{number(ahead.plateau_step)}, if the curve stays what it was."
    )


def _phase(phase: fit.Phase) -> str:
    low, high = phase.begins_between
    between = f" ({number(low)} to {number(high)})" if high > low else ""
    return (
        f"{phase.name} from step {number(phase.begin)}{between} to {number(phase.end)}, {signed(phase.slope.value)} ± "
        f"{number(phase.slope.se)} per step"
    )


def signed(value: float) -> str:
    """A change with its sign."""
    return ("+" if value > 0 else "−" if value < 0 else "") + number(abs(value))


def numbers(summary: ForecastSummary) -> dict[str, Any]:
    """All numbers by the keys of the commands' JSON."""
    ahead = summary.ahead
    content: dict[str, Any] = {"n": len(summary.series.steps), "notes": list(summary.series.notes)}
    if summary.compared is not None:
        compared = summary.compared
        content |= {
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
    content |= {
        "phases": summary.phases,
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
    if summary.hindsight is not None and len(summary.truth[0]):
        content["truth"] = {name: getattr(summary.hindsight, name) for name in ("points", "covered", "error")}
    return content


def _hindsight(series: RewardCurve, ahead: fit.Forecast, steps: Array, values: Array) -> Hindsight:
    inside = steps <= ahead.steps[-1]
    steps, values = steps[inside], values[inside]
    covered = error = math.nan
    if len(steps):
        low, high, mean = (np.interp(steps, ahead.steps, part) for part in (ahead.low, ahead.high, ahead.mean))
        covered = float(((low <= values) & (values <= high)).mean())
        base = float(np.sqrt(np.mean((values - last_level(series.reward)) ** 2)))
        error = float(np.sqrt(np.mean((values - mean) ** 2))) / base if base else math.nan
    sentence = (
        f"Hidden steps: {len(steps)} rewards, {covered:.0%} of them inside the {ahead.coverage:.0%} interval; error ÷ "
        f"that of the last level {number(error)}."
    )
    return Hindsight(len(steps), covered, error, sentence)
