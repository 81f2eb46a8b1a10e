"""Charts of where a reward is going: the forecast fan, the phase portrait, and the stability map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np

from grposcope.dynamics import fit, refresh
from grposcope.dynamics.stability import UpdateRule
from grposcope.facts.forecast_summary import ForecastSummary
from grposcope.facts.intervals import Z
from grposcope.formatting import number
from grposcope.report.charts import base
from grposcope.report.charts.thinning import extremes, joined, rounded
from grposcope.report.elements import Figure
from grposcope.runs.run import Floats
from grposcope.timeseries.curve_models import MODELS
from grposcope.timeseries.reward_curve import local_lines

AHEAD = 60
"""Steps of the fan that are drawn."""

SMOOTH = 0.06
"""Width of the portrait's smoothing, a Gaussian's standard deviation as a share of the run."""

ARROWS = (11, 7)
"""Arrows of the flow along the reward and along its rate."""

FLOOR = 0.7
"""Lower end of the vertical axis of the stability map."""

HEIGHT = 260


def fan(summaries: Sequence[ForecastSummary], names: Sequence[str]) -> Figure:
    """Rewards and their forecast with two intervals; for a single run also the fitted models and the change points."""
    shares = all(float(o.series.reward.min()) >= 0 and float(o.series.reward.max()) <= 1 for o in summaries)
    x, colours = base.steps(), base.colours("run", base.palette(names))
    y = alt.Y("value:Q").axis(format=".3~g").scale(zero=shares, nice=True)
    ahead = base.dataset("ahead").encode(x, y, colours)
    layers = [
        ahead.mark_area(opacity=0.16).encode(alt.Y("low:Q"), alt.Y2("high")),
        ahead.mark_area(opacity=0.26).encode(alt.Y("inner low:Q"), alt.Y2("inner high")),
        base.dataset("seen").mark_line(strokeWidth=1.2, opacity=0.75).encode(x, y, colours),
    ]
    data: dict[str, Mapping[str, Sequence[Any]]] = {
        "seen": joined([_line(o.series.steps, o.series.reward) for o in summaries], names),
        "ahead": joined([_ahead(o) for o in summaries], names),
    }
    if any(len(o.truth[0]) for o in summaries):
        data["later"] = joined([_line(*o.truth) for o in summaries], names)
        later = base.dataset("later").mark_line(strokeWidth=1, color="var(--muted)")
        layers.append(later.encode(x, y, alt.Detail("run:N")))
    if len(summaries) == 1 and summaries[0].phases[1:]:
        data["changes"] = _changes(summaries[0])
        tips = [alt.Tooltip("phase:N", title="from here on"), alt.Tooltip("from:N"), alt.Tooltip("to:N")]

        change = base.dataset("changes").encode(x, tooltip=tips)
        layers.append(change.mark_rect(color="var(--rest)", opacity=0.16).encode(base.steps("from"), alt.X2("to")))
        layers.append(change.mark_rule(color="var(--muted)", strokeDash=[2, 3]))
    if len(summaries) == 1 and (models := _models(summaries[0])):
        data["models"] = models
        drawn = [name for name in MODELS if name != "constant"]
        shades = {name: base.colour(i) for i, name in enumerate(drawn, 1)}
        line = base.dataset("models").mark_line(strokeWidth=1.6, strokeDash=[5, 3])
        layers.append(line.encode(x, y, base.colours("model", shades, alt.Legend(symbolType="stroke", columns=4))))
    tips = [
        *([alt.Tooltip("run:N")] if len(summaries) > 1 else []),
        alt.Tooltip("step:Q", format=",.0f"),
        *(alt.Tooltip(f"{part}:Q", format=".3~g") for part in ("value", "low", "high")),
    ]

    layers += [ahead.mark_line(strokeWidth=2.5), base.on_hover(ahead.encode(tooltip=tips))]
    return base.figure("forecast", "Where the reward is going", layers, data, caption=_explained(summaries),
                       height=HEIGHT, wide=True, resolve={"scale": {"color": "independent"}})  # fmt: skip


def portrait(summary: ForecastSummary) -> Figure | None:
    """The smoothed reward against its rate, with the flow of the fitted oscillator; None where nothing rises."""
    inertial = summary.compared["inertial"].fit if summary.compared is not None else None
    if inertial is None or inertial.flag.startswith(("no rise", "constant")):
        return None
    level, rate, error = local_lines(summary.series, SMOOTH)
    noise = float(np.median(Z * error))
    fitted = inertial.predict(summary.series.steps)
    fitted_rate = np.gradient(fitted, summary.series.steps)
    every = max(1, len(level) // 100)
    step = rounded(summary.series.steps[::every], 6)
    data = {
        "path": {"value": rounded(level[::every]), "rate": rounded(rate[::every]), "step": step},
        "model": {"value": rounded(fitted[::every]), "rate": rounded(fitted_rate[::every]), "step": step},
        "flow": _flow(inertial, level, np.append(rate, [-noise, noise])),
        "noise": {"low": [-noise], "high": [noise]},
    }
    x = alt.X("value:Q").axis(title="smoothed reward").scale(zero=False, nice=True)
    y = alt.Y("rate:Q").axis(title="change per step", format="~g")
    path, flow = base.dataset("path").encode(x, y), base.dataset("flow").encode(x, y)
    tips = [
        alt.Tooltip("step:Q", format=",.0f"),
        alt.Tooltip("value:Q", format=".3~g", title="reward"),
        alt.Tooltip("rate:Q", format=".3~g", title="change per step"),
    ]

    layers = [
        base.dataset("noise").mark_rect(color="var(--rest)", opacity=0.18).encode(alt.Y("low:Q"), alt.Y2("high")),
        flow.mark_rule(color="var(--rest)", strokeWidth=1).encode(alt.X2("to value"), alt.Y2("to rate")),
        flow.mark_circle(color="var(--rest)", size=12, opacity=1).encode(alt.X("to value:Q"), alt.Y("to rate:Q")),
        base.dataset("model").mark_line(color="var(--run-2)", strokeDash=[5, 3]).encode(x, y, alt.Order("step:Q")),
        path.mark_line(color="var(--run-1)", strokeWidth=2).encode(alt.Order("step:Q")),
        path.mark_point(color="var(--run-1)", filled=True, size=18).encode(tooltip=tips),
    ]
    text = (
        "Solid: the reward, smoothed over about a tenth of the run, against its change per step, from start to end. "
        "Dashed: the fitted oscillator; grey lines, which end in dots, show where it would go from elsewhere. Within "
        "the grey band a change is no more than noise (95%). A curve that slows down straight towards rate 0 "
        "saturates; one that turns around a point oscillates."
    )
    if inertial.parameters["plateau"].flag:
        text += f" The fitted plateau is unreliable: {inertial.parameters['plateau'].flag}."
    drawn = base.figure("portrait", "Phase portrait", layers, data, caption=text, height=HEIGHT)
    return replace(drawn, group="phase portrait")


def stability_map(settings: Sequence[UpdateRule], names: Sequence[str]) -> Figure:
    """Refresh interval against ηκ: where it is stable, where it oscillates, where it blows up, and where runs stand.

    Drawn for the momentum of the first setting; the others must share it.
    """
    momentum = settings[0].momentum
    known = {name: s for name, s in zip(names, settings, strict=True) if math.isfinite(s.curvature.value)}
    pulls = [s.step * s.curvature.value for s in known.values()]
    intervals = [s.interval for s in settings]
    ends = 1.9 * (1 + momentum)
    low, high = (min(pulls) / 10, min(max(pulls) * 10, ends)) if pulls else (ends / 1e5, ends)
    grid = np.geomspace(min(low, high / 100), high, 50)
    limit = np.array([refresh.threshold(1.0, momentum, float(p)) for p in grid])
    onset = np.array([refresh.onset(1.0, momentum, float(p)) for p in grid])
    top = 3 * max(float(limit.max()), *intervals)
    drawn = np.maximum(limit, FLOOR)
    data: dict[str, Mapping[str, Sequence[Any]]] = {
        "lines": {
            "pull": rounded(grid),
            "limit": rounded(drawn),
            "onset": rounded(np.minimum(onset, drawn)),
            "floor": [FLOOR] * len(grid),
            "top": [top] * len(grid),
        }
    }
    x = (
        alt.X("pull:Q")
        .axis(title="ηκ, effective step × curvature", format="~g", tickCount=4)
        .scale(type="log", nice=False)
    )
    y = (
        alt.Y("limit:Q")
        .axis(title="optimiser steps on each batch, N", format="~s", grid=False)
        .scale(type="log", domain=[FLOOR, top], nice=False)
    )
    lines = base.dataset("lines").encode(x, y)
    layers = [
        lines.mark_area(color="var(--run-3)", opacity=0.12).encode(alt.Y("floor:Q"), alt.Y2("onset")),
        lines.mark_area(color="var(--run-5)", opacity=0.12).encode(alt.Y("onset:Q"), alt.Y2("limit")),
        lines.mark_area(color="var(--alarm)", opacity=0.12).encode(alt.Y2("top")),
        lines.mark_line(color="var(--alarm)", strokeWidth=1.8),
        lines.mark_line(color="var(--run-5)", strokeWidth=1.8, strokeDash=[5, 3]).encode(alt.Y("onset:Q")),
    ]
    if known:
        data["runs"] = _standing(known, pulls)
        tips = [
            alt.Tooltip("run:N"),
            alt.Tooltip("pull:Q", format=".3~g", title="ηκ"),
            alt.Tooltip("interval:N", title="N"),
            alt.Tooltip("largest:N", title="largest stable N"),
        ]

        standing = base.dataset("runs").encode(x, alt.Y("interval:Q"), base.colours("run", base.palette(names)))
        layers += [
            standing.mark_rule(strokeWidth=2).encode(alt.X("low:Q"), alt.X2("high")),
            standing.mark_point(filled=True, size=110, opacity=1).encode(tooltip=tips),
        ]
    else:
        data["wanted"] = {"interval": intervals}
        layers.append(base.dataset("wanted").mark_rule(color="var(--ink)", strokeWidth=1.5).encode(alt.Y("interval:Q")))
    return base.figure("stability", "Stability map", layers, data, caption=_legend(momentum, bool(known)),
                       height=HEIGHT)  # fmt: skip


def _line(steps: Floats, values: Floats) -> dict[str, list[Any]]:
    kept = extremes(values)
    return {"step": rounded(steps[kept], 9), "value": rounded(values[kept])}


def _ahead(summary: ForecastSummary) -> dict[str, list[Any]]:
    ahead = summary.ahead
    kept = np.unique(np.linspace(0, len(ahead.steps) - 1, AHEAD).astype(int))
    parts = {"value": ahead.mean, "low": ahead.low, "high": ahead.high, "inner low": ahead.inner_low,
             "inner high": ahead.inner_high}  # fmt: skip
    return {"step": rounded(ahead.steps[kept], 9), **{name: rounded(values[kept]) for name, values in parts.items()}}


def _changes(summary: ForecastSummary) -> dict[str, list[Any]]:
    """Steps at which a phase begins, with the interval of each."""
    phases = summary.phases[1:]
    return {
        "step": rounded([phase.begin for phase in phases], 9),
        "from": rounded([phase.begins_between[0] for phase in phases], 9),
        "to": rounded([phase.begins_between[1] for phase in phases], 9),
        "phase": [phase.name for phase in phases],
    }


def _models(summary: ForecastSummary) -> dict[str, list[Any]]:
    """The fitted curves, with the name of the model; empty where none was fitted."""
    if summary.compared is None or summary.series.constant:
        return {}
    steps = np.linspace(summary.series.steps[0], summary.series.steps[-1], 80)
    fits = {name: summary.compared[name].fit for name in MODELS if name != "constant"}
    parts = {name: {"step": rounded(steps, 9), "value": rounded(f.predict(steps))} for name, f in fits.items() if f}
    return joined(list(parts.values()), list(parts), key="model")


def _explained(summaries: Sequence[ForecastSummary]) -> str:
    coverage = summaries[0].ahead.coverage
    text = (
        f"Right of the curve: the expected reward, and the intervals that hold {coverage:.0%} and half of single "
        "rewards, noise included."
    )
    if len(summaries) == 1 and summaries[0].compared is not None:
        text += " Dashed: models fitted to what was seen; most predict later rewards worse than the last level does."
    if len(summaries) == 1 and len(summaries[0].phases) > 1:
        text += " Dotted: where a phase begins, with its 95% interval."
    if any(len(o.truth[0]) for o in summaries):
        text += " Grey: the rewards that came later, hidden from the fits."
    notes = dict.fromkeys(note for o in summaries for note in o.series.notes)
    return " ".join([text, *(f"{note[0].upper()}{note[1:]}." for note in notes)])


def _flow(inertial: fit.Fit, level: Floats, rate: Floats) -> dict[str, list[Any]]:
    """Short lines in the direction (ṙ, −(c ṙ + k (r − r∞))/m) in which the fitted oscillator moves, of equal length."""
    tau, zeta = inertial.parameters["time_constant"].value, inertial.parameters["damping_ratio"].value
    damping, square = 4 * zeta**2 / tau, 4 * zeta**2 / tau**2
    wide, tall = float(np.ptp(level)) or 1.0, float(np.ptp(rate)) or 1.0
    r, v = (a.reshape(-1) for a in np.meshgrid(np.linspace(level.min(), level.max(), ARROWS[0]),
                                               np.linspace(rate.min(), rate.max(), ARROWS[1])))  # fmt: skip
    along = v / wide
    up = -(damping * v + square * (r - inertial.parameters["plateau"].value)) / tall
    length = np.maximum(np.hypot(along, up), 1e-300)
    return {
        "value": rounded(r),
        "rate": rounded(v),
        "to value": rounded(r + 0.05 * wide * along / length),
        "to rate": rounded(v + 0.05 * tall * up / length),
    }


def _standing(known: Mapping[str, UpdateRule], pulls: Sequence[float]) -> dict[str, list[Any]]:
    """Where runs stand on the stability map, with the 95% interval of ηκ, at most a decade to each side."""
    rules = list(known.values())
    ends = [s.step * np.array(replace(s.curvature, se=np.nan_to_num(s.curvature.se)).interval(Z)) for s in rules]
    return {
        "run": list(known),
        "pull": rounded(pulls),
        "low": rounded([max(float(e[0]), p / 10) for e, p in zip(ends, pulls, strict=True)]),
        "high": rounded([min(float(e[1]), p * 10) for e, p in zip(ends, pulls, strict=True)]),
        "interval": [s.interval for s in rules],
        "largest": [number(refresh.threshold(s.step, s.momentum, s.curvature.value)) for s in rules],
    }


def _legend(momentum: float, known: bool) -> str:
    where = (
        "The point: this run, with the 95% interval of its curvature."
        if known
        else "The black line: the interval of this run, whose curvature is unknown."
    )
    return (
        f"For momentum {momentum:g} and a force frozen between refreshes, that is without importance ratio; a ratio "
        "makes it less strict. Green: a disturbance dies out. Yellow, above the dashed line: it dies out in swings. "
        f"Red, above the solid line: it grows. {where}"
    )
