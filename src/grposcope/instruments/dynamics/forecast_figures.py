"""Charts of where a reward is going: the forecast fan and the phase portrait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
from scipy.fft import dct

from grposcope.core.answer import Figure
from grposcope.core.run import Floats
from grposcope.instruments.dynamics import fit
from grposcope.instruments.dynamics.forecast_summary import ForecastSummary
from grposcope.instruments.dynamics.reward_curve import RewardCurve
from grposcope.maths.intervals import Z
from grposcope.maths.timeseries.noise import Array, residual_variances
from grposcope.render import charts as base
from grposcope.render.thinning import extremes, joined, rounded

AHEAD = 60
"""Steps of the fan that are drawn."""

SMOOTH = 0.06
"""Width of the portrait's smoothing, a Gaussian's standard deviation as a share of the run."""

ARROWS = (11, 7)
"""Arrows of the flow along the reward and along its rate."""

HEIGHT = 260


def fan(summaries: Sequence[ForecastSummary], names: Sequence[str]) -> Figure:
    """Rewards and their forecast with two intervals; for a single run also the fitted models."""
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
    if len(summaries) == 1 and (models := _models(summaries[0])):
        data["models"] = models
        shades = {name: base.colour(i) for i, name in enumerate(summaries[0].fits, 1)}
        line = base.dataset("models").mark_line(strokeWidth=1.6, strokeDash=[5, 3])
        layers.append(line.encode(x, y, base.colours("model", shades, alt.Legend(symbolType="stroke", columns=4))))
    tips = [
        *([alt.Tooltip("run:N")] if len(summaries) > 1 else []),
        alt.Tooltip("step:Q", format=",.0f"),
        *(alt.Tooltip(f"{bound}:Q", format=".3~g") for bound in ("value", "low", "high")),
    ]

    layers += [ahead.mark_line(strokeWidth=2.5), base.on_hover(ahead.encode(tooltip=tips))]
    title, caption = "Where the reward is going", _explained(summaries)
    drawn = base.figure("forecast", title, layers, data, caption=caption, height=HEIGHT, wide=True)
    return base.independent(drawn, "color")


def portrait(summary: ForecastSummary) -> Figure | None:
    """The smoothed reward against its rate, with the flow of the fitted oscillator; None where nothing rises."""
    inertial = summary.fits.get("inertial")
    if inertial is None or inertial.flag.startswith(("no rise", "constant")):
        return None
    level, rate, error = _local_lines(summary.series, SMOOTH)
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
        "Solid: the reward, smoothed over about a tenth of the run, against its change per step, from "
        "start to end. Dashed: the fitted oscillator; grey lines, which end in dots, show where it would "
        "go from elsewhere. Within the grey band a change is no more than noise (95%). A curve that goes "
        "straight to rate 0 saturates; one that circles a point oscillates."
    )
    if inertial.parameters["plateau"].flag:
        text += f" The fitted plateau is unreliable: {inertial.parameters['plateau'].flag}."
    drawn = base.figure("portrait", "Phase portrait", layers, data, caption=text, height=HEIGHT)
    return replace(drawn, group="phase portrait")


def _local_lines(curve: RewardCurve, bandwidth: float) -> tuple[Array, Array, Array]:
    """Level, rate per step and the standard error of the rate, (n,) each, by local straight lines.

    Weights are Gaussian, their standard deviation `bandwidth` a share of the run.
    """
    distance = curve.share[None] - curve.share[:, None]
    weight = np.exp(-0.5 * (distance / bandwidth) ** 2)
    s0, s1, s2 = (np.sum(weight * distance**k, 1) for k in range(3))
    spread = s0 * s2 - s1**2
    for_level = weight * (s2[:, None] - s1[:, None] * distance) / spread[:, None]
    for_rate = weight * (s0[:, None] * distance - s1[:, None]) / spread[:, None]
    level, rate = for_level @ curve.reward, for_rate @ curve.reward
    variances = residual_variances(np.ones((len(level), 1)), curve.reward - level)
    error = np.sqrt(dct(for_rate, axis=1, norm="ortho") ** 2 @ variances)
    span = float(curve.steps[-1] - curve.steps[0])
    return level, rate / span, error / span


def _line(steps: Floats, values: Floats) -> dict[str, list[Any]]:
    shown = extremes(values)
    return {"step": rounded(steps[shown], 9), "value": rounded(values[shown])}


def _ahead(summary: ForecastSummary) -> dict[str, list[Any]]:
    ahead = summary.ahead
    shown = np.unique(np.linspace(0, len(ahead.steps) - 1, AHEAD).astype(int))
    parts = {"value": ahead.mean, "low": ahead.low, "high": ahead.high, "inner low": ahead.inner_low,
             "inner high": ahead.inner_high}  # fmt: skip
    return {"step": rounded(ahead.steps[shown], 9), **{name: rounded(values[shown]) for name, values in parts.items()}}


def _models(summary: ForecastSummary) -> dict[str, list[Any]]:
    """The fitted curves, with the name of the model; empty where none was fitted."""
    if summary.series.constant:
        return {}
    steps = np.linspace(summary.series.steps[0], summary.series.steps[-1], 80)
    parts = [{"step": rounded(steps, 9), "value": rounded(fit.predict(steps))} for fit in summary.fits.values()]
    return joined(parts, list(summary.fits), key="model") if parts else {}


def _explained(summaries: Sequence[ForecastSummary]) -> str:
    coverage = summaries[0].ahead.coverage
    text = (
        f"Right of the curve: the expected reward, and the intervals that hold {coverage:.0%} and half of single "
        "rewards, noise included."
    )
    if len(summaries) == 1 and summaries[0].fits:
        text += " Dashed: closed forms fitted to what was seen; the forecast does not use them."
    if any(len(o.truth[0]) for o in summaries):
        text += " Grey: later rewards, which the fits did not see."
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
