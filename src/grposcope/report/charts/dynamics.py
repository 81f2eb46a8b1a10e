"""Charts of where a reward is going: the forecast fan, the phase portrait, and the stability map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from grposcope.dynamics import fit, refresh
from grposcope.dynamics.stability import UpdateRule
from grposcope.facts.forecast_summary import Outlook
from grposcope.facts.learning import Z
from grposcope.formatting import number
from grposcope.report.charts import base
from grposcope.report.elements import Columns, Figure
from grposcope.runs.run import Floats
from grposcope.timeseries.curve_models import MODELS
from grposcope.timeseries.reward_curve import local_lines

AHEAD = 60
"""Steps of the fan that are drawn."""

SMOOTH = 0.06
"""Width of the portrait's smoothing, a Gaussian's standard deviation as a share of the run."""

ARROWS = (11, 7)
"""Arrows of the flow along the reward and along its rate."""


def fan(found: Sequence[Outlook], names: Sequence[str]) -> Figure:
    """Rewards, what is expected next with its 50 and 90 % intervals; of a single run the fitted models too."""
    shares = _shares(found)
    colours = _colours(names)
    x, y = base.step_axis(), _axis("value", shares)
    tips = [
        *([{"field": "run"}] if len(found) > 1 else []),
        {"field": "step", "type": "quantitative", "format": ",.0f"},
        *({"field": part, "type": "quantitative", "format": ".3~g"} for part in ("value", "low", "high")),
    ]
    layers: list[dict[str, Any]] = [
        _band("low", "high", 0.16, x, shares, colours),
        _band("inner low", "inner high", 0.26, x, shares, colours),
        {"data": {"name": "seen"}, "mark": {"type": "line", "strokeWidth": 1.2, "opacity": 0.75},
         "encoding": {"x": x, "y": y, "color": colours}},
    ]  # fmt: skip
    data: dict[str, Columns] = {
        "seen": base.joined([_line(o.series.steps, o.series.reward) for o in found], names),
        "ahead": base.joined([_ahead(o) for o in found], names),
    }
    if any(len(o.truth[0]) for o in found):
        data["later"] = base.joined([_line(*o.truth) for o in found], names)
        layers.append({"data": {"name": "later"}, "mark": {"type": "line", "strokeWidth": 1, "color": "var(--muted)"},
                       "encoding": {"x": x, "y": y, "detail": {"field": "run"}}})  # fmt: skip
    if len(found) == 1:
        layers += _details(found[0], x, y, data)
    expected = {"x": x, "y": y, "color": colours}
    layers += [
        {"data": {"name": "ahead"}, "mark": {"type": "line", "strokeWidth": 2.5}, "encoding": expected},
        base.hover({"data": {"name": "ahead"}}, {**expected, "tooltip": tips}),
    ]
    return Figure("forecast", "Where the reward is going",
                  base.spec(layers, height=260, resolve={"scale": {"color": "independent"}}), data,
                  caption=_explained(found), wide=True)  # fmt: skip


def portrait(found: Outlook) -> Figure | None:
    """The smoothed reward against its rate, with the flow of the fitted oscillator; None where nothing rises."""
    inertial = found.compared["inertial"].fit if found.compared is not None else None
    if inertial is None or inertial.flag.startswith(("no rise", "constant")):
        return None
    level, rate, error = local_lines(found.series, SMOOTH)
    noise = float(np.median(Z * error))
    fitted = inertial.predict(found.series.steps)
    fitted_rate = np.gradient(fitted, found.series.steps)
    every = max(1, len(level) // 100)
    path = {
        "value": base.short(level[::every]),
        "rate": base.short(rate[::every]),
        "step": base.short(found.series.steps[::every], 6),
    }
    model = {"value": base.short(fitted[::every]), "rate": base.short(fitted_rate[::every]), "step": path["step"]}
    flow = _flow(inertial, level, np.append(rate, [-noise, noise]))
    x = {**_axis("value", False), "axis": {"title": "smoothed reward"}}
    y = {"field": "rate", "type": "quantitative", "axis": {"title": "change per step", "format": "~g"}}
    order = {"field": "step", "type": "quantitative"}
    layers = [
        {"data": {"name": "noise"}, "mark": {"type": "rect", "color": "var(--rest)", "opacity": 0.18},
         "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}}},
        {"data": {"name": "flow"}, "mark": {"type": "rule", "color": "var(--rest)", "strokeWidth": 1},
         "encoding": {"x": x, "y": y, "x2": {"field": "to value"}, "y2": {"field": "to rate"}}},
        {"data": {"name": "flow"}, "mark": {"type": "circle", "color": "var(--rest)", "size": 12, "opacity": 1},
         "encoding": {"x": {**x, "field": "to value"}, "y": {**y, "field": "to rate"}}},
        {"data": {"name": "model"}, "mark": {"type": "line", "color": "var(--run-2)", "strokeDash": [5, 3]},
         "encoding": {"x": x, "y": y, "order": order}},
        {"data": {"name": "path"}, "mark": {"type": "line", "color": "var(--run-1)", "strokeWidth": 2},
         "encoding": {"x": x, "y": y, "order": order}},
        {"data": {"name": "path"}, "mark": {"type": "point", "color": "var(--run-1)", "filled": True, "size": 18},
         "encoding": {"x": x, "y": y, "tooltip": [{"field": "step", "type": "quantitative", "format": ",.0f"},
                      {"field": "value", "type": "quantitative", "format": ".3~g", "title": "reward"},
                      {"field": "rate", "type": "quantitative", "format": ".3~g", "title": "change per step"}]}},
    ]  # fmt: skip
    text = (
        "Solid: the reward, smoothed over about a tenth of the run, against its change per step, from start to end. "
        "Dashed: the fitted oscillator; grey lines, which end in dots, show where it would go from elsewhere. Within "
        "the grey band a change is no more than noise (95%). A curve that slows down straight towards rate 0 "
        "saturates; one that turns around a point oscillates."
    )
    if inertial.parameters["plateau"].flag:
        text += f" The fitted end is not to be relied on: {inertial.parameters['plateau'].flag}."
    data: dict[str, Columns] = {"path": path, "model": model, "flow": flow,
                                "noise": {"low": [-noise], "high": [noise]}}  # fmt: skip
    return Figure("portrait", "Phase portrait", base.spec(layers, height=260), data, caption=text)


def stability_map(settings: Sequence[UpdateRule], names: Sequence[str]) -> Figure:
    """Refresh interval against ηκ: where it is stable, where it oscillates, where it blows up, and where runs stand.

    Drawn for the momentum of the first setting; the others must share it.
    """
    momentum = settings[0].momentum
    known = [s for s in settings if math.isfinite(s.curvature.value)]
    pulls = [s.step * s.curvature.value for s in known]
    intervals = [s.interval for s in settings]
    ends = 1.9 * (1 + momentum)
    low, high = (min(pulls) / 10, min(max(pulls) * 10, ends)) if pulls else (ends / 1e5, ends)
    grid = np.geomspace(min(low, high / 100), high, 50)
    limit = np.array([refresh.threshold(1.0, momentum, float(p)) for p in grid])
    onset = np.array([refresh.onset(1.0, momentum, float(p)) for p in grid])
    top = 3 * max(float(limit.max()), *intervals)
    lines: dict[str, list[Any]] = {
        "pull": base.short(grid),
        "limit": base.short(np.maximum(limit, 0.7)),
        "onset": base.short(np.minimum(onset, np.maximum(limit, 0.7))),
        "floor": [0.7] * len(grid),
        "top": [top] * len(grid),
    }
    x = {"field": "pull", "type": "quantitative", "scale": {"type": "log", "nice": False},
         "axis": {"title": "ηκ, effective step × curvature", "format": "~g", "tickCount": 4}}  # fmt: skip
    y = {"type": "quantitative", "scale": {"type": "log", "domain": [0.7, top], "nice": False},
         "axis": {"title": "optimiser steps on each batch, N", "format": "~s", "grid": False}}  # fmt: skip
    regions = (("floor", "onset", "var(--run-3)"), ("onset", "limit", "var(--run-5)"), ("limit", "top", "var(--alarm)"))
    layers: list[dict[str, Any]] = [_region(*part, x, y) for part in regions]
    layers += [
        {"data": {"name": "lines"}, "mark": {"type": "line", "color": colour, "strokeWidth": 1.8, "strokeDash": dash},
         "encoding": {"x": x, "y": {**y, "field": field}}}
        for field, colour, dash in (("limit", "var(--alarm)", [1, 0]), ("onset", "var(--run-5)", [5, 3]))
    ]  # fmt: skip
    data: dict[str, Columns] = {"lines": lines}
    if known:
        data["runs"] = _standing(known, [n for n, s in zip(names, settings, strict=True) if s in known], pulls)
        colours = _colours(names)
        tips = [{"field": "run"}, {"field": "pull", "type": "quantitative", "format": ".3~g", "title": "ηκ"},
                {"field": "interval", "title": "N"}, {"field": "largest", "title": "largest stable N"}]  # fmt: skip
        at = {"x": x, "y": {**y, "field": "interval"}, "color": colours}
        layers += [
            {"data": {"name": "runs"}, "mark": {"type": "rule", "strokeWidth": 2},
             "encoding": {**at, "x": {**x, "field": "low"}, "x2": {"field": "high"}}},
            {"data": {"name": "runs"}, "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
             "encoding": {**at, "tooltip": tips}},
        ]  # fmt: skip
    else:
        data["wanted"] = {"interval": intervals}
        layers.append({"data": {"name": "wanted"}, "mark": {"type": "rule", "color": "var(--ink)", "strokeWidth": 1.5},
                       "encoding": {"y": {**y, "field": "interval"}}})  # fmt: skip
    return Figure("stability", "Stability map", base.spec(layers, height=260), data,
                  caption=_legend(momentum, bool(known)))  # fmt: skip


def _colours(names: Sequence[str]) -> dict[str, Any]:
    scale = {"domain": list(names), "range": [base.colour(i) for i in range(len(names))]}
    return {"field": "run", "type": "nominal", "legend": None, "scale": scale}


def _shares(found: Sequence[Outlook]) -> bool:
    return all(float(o.series.reward.min()) >= 0 and float(o.series.reward.max()) <= 1 for o in found)


def _axis(field: str, shares: bool) -> dict[str, Any]:
    return {"field": field, "type": "quantitative", "axis": {"title": None, "format": ".3~g"},
            "scale": {"zero": shares, "nice": True}}  # fmt: skip


def _band(low: str, high: str, opacity: float, x: Any, shares: bool, colours: Any) -> dict[str, Any]:
    return {"data": {"name": "ahead"}, "mark": {"type": "area", "opacity": opacity},
            "encoding": {"x": x, "y": _axis(low, shares), "y2": {"field": high}, "color": colours}}  # fmt: skip


def _line(steps: Floats, values: Floats) -> dict[str, list[Any]]:
    kept = base.extremes(values)
    return {"step": base.short(steps[kept], 9), "value": base.short(values[kept])}


def _ahead(found: Outlook) -> dict[str, list[Any]]:
    ahead = found.ahead
    kept = np.unique(np.linspace(0, len(ahead.steps) - 1, AHEAD).astype(int))
    parts = {"value": ahead.mean, "low": ahead.low, "high": ahead.high, "inner low": ahead.inner_low,
             "inner high": ahead.inner_high}  # fmt: skip
    return {"step": base.short(ahead.steps[kept], 9),
            **{name: base.short(values[kept]) for name, values in parts.items()}}  # fmt: skip


def _details(found: Outlook, x: Any, y: Any, data: dict[str, Columns]) -> list[dict[str, Any]]:
    """Layers of the fitted models and of the change points, whose data sets are added to `data`."""
    layers: list[dict[str, Any]] = []
    changes = found.phases[1:]
    if changes:
        data["changes"] = {
            "step": base.short([p.begin for p in changes], 9),
            "from": base.short([p.begins_between[0] for p in changes], 9),
            "to": base.short([p.begins_between[1] for p in changes], 9),
            "phase": [p.name for p in changes],
        }
        tip = [{"field": "phase", "title": "from here on"}, {"field": "from"}, {"field": "to"}]
        source = {"data": {"name": "changes"}}
        layers += [
            {**source, "mark": {"type": "rect", "color": "var(--rest)", "opacity": 0.16},
             "encoding": {"x": {**x, "field": "from"}, "x2": {"field": "to"}, "tooltip": tip}},
            {**source, "mark": {"type": "rule", "color": "var(--muted)", "strokeDash": [2, 3]},
             "encoding": {"x": x, "tooltip": tip}},
        ]  # fmt: skip
    if found.compared is not None and not found.series.constant:
        drawn = [name for name, model in MODELS.items() if model.shape is not None]
        steps = np.linspace(found.series.steps[0], found.series.steps[-1], 80)
        fits = [found.compared[name].fit for name in drawn]
        parts = [{"step": base.short(steps, 9), "value": base.short(f.predict(steps))} for f in fits if f]
        lines = base.joined(parts, drawn)
        data["models"] = {("model" if name == "run" else name): column for name, column in lines.items()}
        shades = {"field": "model", "type": "nominal", "sort": drawn, "legend": {"symbolType": "stroke", "columns": 4},
                  "scale": {"domain": drawn, "range": [base.colour(i + 1) for i in range(len(drawn))]}}  # fmt: skip
        layers.append({"data": {"name": "models"}, "mark": {"type": "line", "strokeWidth": 1.6, "strokeDash": [5, 3]},
                       "encoding": {"x": x, "y": y, "color": shades}})  # fmt: skip
    return layers


def _explained(found: Sequence[Outlook]) -> str:
    text = (
        f"Right of the curve: the expected reward, and the intervals that hold {found[0].ahead.coverage:.0%} and half "
        "of single rewards, noise included."
    )
    if len(found) == 1 and found[0].compared is not None:
        text += " Dashed: fitted models over what was seen; further on most of them are worse than the last level."
    if len(found) == 1 and len(found[0].phases) > 1:
        text += " Dotted: where a phase begins, with its 95% interval."
    if any(len(o.truth[0]) for o in found):
        text += " Grey: the rewards that came later, hidden from the fits."
    notes = dict.fromkeys(note for o in found for note in o.series.notes)
    return " ".join([text, *(f"{note[0].upper()}{note[1:]}." for note in notes)])


def _flow(inertial: fit.Fit, level: Floats, rate: Floats) -> dict[str, list[Any]]:
    """Short lines along (ṙ, −(c ṙ + k (r − r∞))/m) of the fitted oscillator, all of one length on the chart."""
    tau, zeta = inertial.parameters["time_constant"].value, inertial.parameters["damping_ratio"].value
    damping, square = 4 * zeta**2 / tau, 4 * zeta**2 / tau**2
    wide, tall = float(np.ptp(level)) or 1.0, float(np.ptp(rate)) or 1.0
    r, v = (a.reshape(-1) for a in np.meshgrid(np.linspace(level.min(), level.max(), ARROWS[0]),
                                               np.linspace(rate.min(), rate.max(), ARROWS[1])))  # fmt: skip
    along = v / wide
    up = -(damping * v + square * (r - inertial.parameters["plateau"].value)) / tall
    length = np.maximum(np.hypot(along, up), 1e-300)
    return {
        "value": base.short(r),
        "rate": base.short(v),
        "to value": base.short(r + 0.05 * wide * along / length),
        "to rate": base.short(v + 0.05 * tall * up / length),
    }


def _region(low: str, high: str, colour: str, x: Any, y: Any) -> dict[str, Any]:
    return {"data": {"name": "lines"}, "mark": {"type": "area", "color": colour, "opacity": 0.12},
            "encoding": {"x": x, "y": {**y, "field": low}, "y2": {"field": high}}}  # fmt: skip


def _standing(known: Sequence[UpdateRule], names: Sequence[str], pulls: Sequence[float]) -> dict[str, list[Any]]:
    ends = [s.step * np.array(replace(s.curvature, se=np.nan_to_num(s.curvature.se)).interval(Z)) for s in known]
    return {
        "run": list(names),
        "pull": base.short(pulls),
        "low": base.short([max(float(e[0]), p / 10) for e, p in zip(ends, pulls, strict=True)]),
        "high": base.short([min(float(e[1]), p * 10) for e, p in zip(ends, pulls, strict=True)]),
        "interval": [s.interval for s in known],
        "largest": [number(refresh.threshold(s.step, s.momentum, s.curvature.value)) for s in known],
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
