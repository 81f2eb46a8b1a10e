"""Chart of which refresh intervals are stable: the stability map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np

from grposcope.core.answer import Figure
from grposcope.core.text import number
from grposcope.instruments.dynamics import refresh
from grposcope.instruments.dynamics.stability import UpdateRule
from grposcope.maths.intervals import Z
from grposcope.render import charts as base
from grposcope.render.thinning import rounded

FLOOR = 0.7
"""Lower end of the vertical axis of the stability map."""

HEIGHT = 260


def stability_map(settings: Sequence[UpdateRule], names: Sequence[str]) -> Figure:
    """Refresh interval against ηκ: where it is stable, where it oscillates, where it blows up, and where runs stand.

    Drawn for the momentum of the first setting; the others must share it.
    """
    momentum = settings[0].momentum
    rules = {name: s for name, s in zip(names, settings, strict=True) if math.isfinite(s.curvature.value)}
    pulls = [s.step * s.curvature.value for s in rules.values()]
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
    if rules:
        data["runs"] = _standing(rules, pulls)
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
    return base.figure("stability", "Stability map", layers, data, caption=_legend(momentum, bool(rules)),
                       height=HEIGHT)  # fmt: skip


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


def _legend(momentum: float, measured: bool) -> str:
    where = (
        "The point: this run, with the 95% interval of its curvature."
        if measured
        else "The black line: the interval of this run, whose curvature is unknown."
    )
    return (
        f"For momentum {momentum:g}, without importance ratio; a ratio allows longer intervals. Green: a "
        "disturbance dies out. Yellow, above the dashed line: it dies out in swings. Red, above the "
        f"solid line: it grows. {where}"
    )
