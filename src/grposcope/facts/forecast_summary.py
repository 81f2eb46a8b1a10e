"""Forecast of a reward curve: models ranked on later steps, phases, and a forecast, with the sentences about them.

The forecast reaches half as many further steps as there were. A long run is averaged to POINTS means of neighbouring
rewards first: a level and a smooth curve lose little by it, and a page stays quick to make.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from grposcope.diagnosis.quantities import Quantities
from grposcope.dynamics import fit
from grposcope.dynamics.stability import refresh_interval
from grposcope.errors import UserError
from grposcope.formatting import number, span
from grposcope.records import Estimate
from grposcope.runs.metrics import variant
from grposcope.runs.run import Run
from grposcope.timeseries.model_comparison import last_level
from grposcope.timeseries.noise import Array
from grposcope.timeseries.reward_curve import RewardCurve, averaged, clean, each_batch
from grposcope.timeseries.reward_range import RewardRange

POINTS = 1000
"""Points that a curve is averaged to, at most."""

ENDING = ("exponential", "inertial", "logistic")
"""Models that end at a plateau within any useful time."""


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
    the forecast, None without them. plateau: where the curve ends and the step by which 95 % of its rise is done; NaN
    with the reason where no fitted curve tells, or where the forecast does not agree with it. sentence: what is
    expected, and the verdict. plateau_sentence, phase_clauses: the same in words, phases without capital and full stop.
    """

    series: RewardCurve
    compared: fit.Comparison | None
    phases: tuple[fit.Phase, ...]
    ahead: fit.Forecast
    truth: tuple[Array, Array]
    hindsight: Hindsight | None
    plateau: Estimate
    plateau_step: float
    sentence: str
    plateau_sentence: str
    phase_clauses: tuple[str, ...]


def of_run(
    run: Run, horizon: float | None = None, coverage: float = 0.9, until: float | None = None, models: bool = True
) -> ForecastSummary:
    """Fit and forecast the reward of a run, as `summarize`; UserError where it logs none."""
    name = reward_column(run)
    if name is None:
        raise UserError(f"{run.meta.source} logs no reward; its columns are: {', '.join(run.table)}")
    known = Quantities(run).column("reward") if name == "reward" else None
    limits = reward_limits(run) if name == "reward" else None
    sampling = known.sampling.low if known is not None and known.sampling is not None else None
    return summarize(
        run.table["step"], run.table[name], horizon, coverage, until, refresh_interval(run), models, limits, sampling
    )


def reward_column(run: Run) -> str | None:
    """The column that is forecast; None where no reward is logged."""
    logged = [name for name, values in run.table.items() if np.isfinite(values).any()]
    return variant("reward", logged)


def reward_limits(run: Run) -> RewardRange | None:
    """The range of the mean reward: of the settings reward_low and reward_high, else from what was logged, else None.

    Logged are 0/1 rewards, the least and largest reward, or components that all lie between 0 and 1.
    """
    low, high = run.setting("reward_low"), run.setting("reward_high")
    if isinstance(low, int | float) and isinstance(high, int | float):
        return RewardRange(low, high)
    quantities = Quantities(run)
    if quantities.binary_rewards:
        return RewardRange(0.0, 1.0)
    if quantities.reward_range is not None:
        return RewardRange(*quantities.reward_range)
    parts = [part.values for part in quantities.components().values()]
    bounded = parts and all(part.min() >= 0 and part.max() <= 1 for part in parts)
    return RewardRange(0.0, float(len(parts))) if bounded else None


def summarize(
    steps: ArrayLike,
    reward: ArrayLike,
    horizon: float | None = None,
    coverage: float = 0.9,
    until: float | None = None,
    interval: int = 1,
    models: bool = True,
    limits: RewardRange | None = None,
    sampling: float | None = None,
) -> ForecastSummary:
    """Fit and forecast; UserError for data that cannot be a curve.

    horizon: further steps; if None up to the last hidden one, or else half of those seen. until: the last step to be
    seen. interval: optimizer steps on each batch of rollouts. models: whether to compare models, most of the work.
    limits: the range of the reward; inferred from the rewards if None. sampling: the variance that each reward has
    because its rollouts are drawn anew, where it is known.
    """
    whole = each_batch(clean(steps, reward), interval)
    known = np.ones(len(whole.steps), bool) if until is None else whole.steps <= until
    seen = clean(whole.steps[known], whole.reward[known])
    series = averaged(RewardCurve(seen.steps, seen.reward, whole.notes), POINTS)
    size = -(-len(seen.steps) // POINTS)
    later = whole.steps[~known], whole.reward[~known]
    kept = len(later[0]) // size * size
    truth = tuple(column[:kept].reshape(-1, size).mean(1) for column in later)
    seen_steps = float(series.steps[-1] - series.steps[0])
    further = horizon if horizon is not None else max(1.0, later[0][-1] - series.steps[-1] if kept else seen_steps / 2)
    compared = fit.compare(series.steps, series.reward) if models else None
    ahead = fit.forecast(series.steps, series.reward, further, coverage, limits, sampling and sampling / size)
    ahead = replace(ahead, flag="; ".join(filter(None, (ahead.flag, *series.notes))))
    phases = fit.phases(series.steps, series.reward)
    plateau, reached = _plateau(compared, ahead)
    return ForecastSummary(
        series=series,
        compared=compared,
        phases=phases,
        ahead=ahead,
        truth=(truth[0], truth[1]),
        hindsight=None if until is None else _hindsight(series, ahead, *truth),
        plateau=plateau,
        plateau_step=reached,
        sentence=_expected(series, ahead),
        plateau_sentence=_ends(plateau, reached),
        phase_clauses=tuple(map(_phase, phases)),
    )


def _expected(series: RewardCurve, ahead: fit.Forecast) -> str:
    """What is expected, the verdict, and the change of the level that it rests on."""
    if series.constant:
        return "Constant reward: there is nothing to fit, and no gradient to learn from."
    further, now = float(ahead.steps[-1] - series.steps[-1]), number(ahead.level.value)
    expected = (
        f"Expected after {number(further)} more steps: {number(ahead.mean[-1])}, {ahead.coverage:.0%} band "
        f"{span(ahead.low[-1], ahead.high[-1])}; verdict: {ahead.verdict}"
    )
    between = " to ".join(map(signed, ahead.change_between))
    if ahead.verdict == "cannot tell":
        return f"{expected} whether it rises or falls: the level, now {now}, may change by {between}."
    if ahead.verdict == "flat":
        noise = number(ahead.margin)
        expects = f"{expected}: the level, now {now}, is expected to change by {between}"
        return f"{expects}, less than a step's noise, {noise}."
    return f"{expected}: the level, now {now}, is expected to change by {signed(ahead.change.value)} ({between})."


def _plateau(compared: fit.Comparison | None, ahead: fit.Forecast) -> tuple[Estimate, float]:
    """Plateau of the identified curve with the least residual, and the step by which 95 % of its rise is done.

    It must be in the range of the reward and within two standard errors of the level that the forecast expects.
    """
    fitted = [c.fit for c in compared.contenders if c.fit is not None and c.model in ENDING] if compared else []
    fits = [f for f in fitted if not any(p.flag for p in f.parameters.values())]
    n = ahead.level.n
    if not fits:
        return Estimate(math.nan, math.nan, n, "cannot tell: no curve that ends is identified"), math.nan
    best = min(fits, key=lambda f: f.rmse)
    value = best.parameters["plateau"].value
    error = math.hypot(best.parameters["plateau"].se, float(np.std([f.parameters["plateau"].value for f in fits])))
    expected = ahead.level.value + ahead.change.value
    if error > 0.5 * abs(value - best.parameters["start"].value):
        return Estimate(math.nan, math.nan, n, "cannot tell: it is not known to half of the rise"), math.nan
    agrees = abs(value - expected) <= 2 * math.hypot(error, ahead.change.se)
    if not agrees or not ahead.limits.low <= value <= ahead.limits.high:
        reason = f"cannot tell: the fitted curves end at {number(value)}, which the forecast does not expect"
        return Estimate(math.nan, math.nan, n, reason), math.nan
    return Estimate(value, error, n), best.reaches(0.95)


def _ends(plateau: Estimate, reached: float) -> str:
    if plateau.flag:
        return f"Plateau: {plateau.flag}."
    return f"Plateau: {number(plateau.value)} ± {number(plateau.se)}, 95% of the way at step {number(reached)}."


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
        "plateau": summary.plateau,
        "plateau_step": summary.plateau_step,
        "forecast": {
            "step": float(ahead.steps[-1]),
            "mean": float(ahead.mean[-1]),
            "low": float(ahead.low[-1]),
            "high": float(ahead.high[-1]),
            "coverage": ahead.coverage,
            "range": [ahead.limits.low, ahead.limits.high],
            "level": ahead.level,
            "change": ahead.change,
            "change_between": list(ahead.change_between),
            "margin": ahead.margin,
            "verdict": ahead.verdict,
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
