"""Charts of the group size: rollouts needed against G, where the error comes from, the optimum by block and step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import altair as alt

from grposcope.core.answer import Figure
from grposcope.core.text import number, percent
from grposcope.instruments.group_size import mse
from grposcope.instruments.group_size.planning import Plan
from grposcope.maths.moments import Moments
from grposcope.render import charts as base
from grposcope.render.thinning import columns, rounded

SIZES = (*range(2, 17), 20, 24, 28, 32, 40, 48, 56, 64)
"""Group sizes of the curves."""

FARTHEST = 64.0
"""Optima beyond this group size are drawn at the edge."""

BEYOND = f"a G* above {FARTHEST:g}, or an infinite one, is drawn at the edge."

PARTS = {"drawing prompts": "var(--run-1)", "an oracle's rollouts": "var(--run-3)",
         "not knowing the value": "var(--run-2)"}  # fmt: skip
"""Parts of the error and their colours."""


def curve(plans: Mapping[str, Plan], order: Sequence[str]) -> Figure | None:
    """Rollouts needed for the same error, over those of the best group size; a line and band per probe."""
    rows = []
    for label, plan in plans.items():
        for point in plan.curve:
            if math.isfinite(point.loss):
                low, high = point.loss_interval
                shown = f"{percent(point.loss)} more", f"{percent(low)} to {percent(high)}"
                rows.append((label, point.group, *rounded([1 + point.loss, 1 + low, 1 + high]), *shown))
    if not rows:
        return None
    finite = {label: plan for label, plan in plans.items() if math.isfinite(plan.continuous.value)}
    data = {
        "curve": columns(("run", "group", "needed", "low", "high", "shown", "interval"), rows),
        "optima": columns(OPTIMUM, [(label, *_optimum(plan)) for label, plan in finite.items()]),
    }
    most = max(1.25, *(value for row in rows for value in (row[2], row[4]) if value is not None))
    y = alt.Y("needed:Q").axis(format=".2~g", tickCount=5).scale(type="log", base=2, domain=[1, most], nice=False)
    colours = base.colours("run", base.palette(list(plans), order))
    optima = base.dataset("optima").encode(_groups("best"), colours)
    needed = base.dataset("curve").encode(_groups("group"), y, colours)
    tips = base.tooltips(run="probe", group="G", shown="rollouts", interval="95%")
    layers = [
        optima.mark_rect(opacity=0.14).encode(_groups("from"), alt.X2("to")),
        optima.mark_rule(strokeWidth=1.5, strokeDash=[5, 3]),
        *_band(needed, data["curve"]),
        needed.mark_line(strokeWidth=2),
        base.on_hover(needed.encode(tooltip=tips)),
    ]
    text = (
        "Rollouts needed for the same mean-squared error of the gradient, as a multiple of those at the best group "
        "size, with a 95% band over prompts. Dashed: the optimum G*; shaded: its 95% interval"
    )
    infinite = [label for label in plans if label not in finite]
    text += f"; G* is unknown for {', '.join(infinite)}." if infinite else "."
    return base.figure("group_size", "Rollouts needed against the group size", layers, data, unit="× the best",
                       caption=text, height=240, wide=len(plans) > 1)  # fmt: skip


def budget(moments: Moments, groups: Sequence[int]) -> Figure | None:
    """What the error is made of at equal numbers of rollouts: G V_p + Σ₁ + Δ/(G−1), over the least total."""
    splits = {group: mse.budget(moments, 1, group) for group in groups}
    least = min((group * split.total.value for group, split in splits.items()), default=math.nan)
    if not (math.isfinite(least) and least > 0):
        return None
    rows, totals = [], []
    for group, split in splits.items():
        for index, (name, share) in enumerate(zip(PARTS, (split.prompts, split.oracle, split.residual), strict=True)):
            shown = f"{percent(share.value / split.total.value)} of the error"
            rows.append((str(group), name, index, *rounded([group * share.value / least]), shown))
        low, high = moments.interval(lambda s, group=group: mse.second_moment(s, group) - s.mean2)  # type: ignore[misc]
        totals.append((str(group), *rounded([group * low / least, group * high / least])))
    data = {
        "parts": columns(("group", "part", "order", "height", "share"), rows),
        "totals": columns(("group", "low", "high"), totals),
    }
    x = alt.X("group:O", sort=[str(group) for group in splits]).axis(title="G", labelAngle=0)
    y = alt.Y("height:Q", stack="zero").scale(zero=True)
    colours = base.colours("part", PARTS, alt.Legend(symbolType="square", columns=1))
    tips = base.tooltips(group="G", part="part", share="share")
    bars = base.dataset("parts").mark_bar(opacity=0.85).encode(x, y, colours, alt.Order("order:Q"), tooltip=tips)
    ends = (
        base.dataset("totals").mark_rule(color="var(--ink)", strokeWidth=1.2).encode(x, alt.Y("low:Q"), alt.Y2("high"))
    )
    text = (
        "The error at an equal number of rollouts, relative to the smallest: the parts from drawing prompts (G·V_p), "
        "from the rollouts of an oracle that knows each prompt's value (Σ₁), and from using the group's mean instead "
        "of that value (Δ/(G−1)). Lines: 95% interval of the total"
    )
    negative = min(value for value in data["parts"]["height"] if value is not None) < -0.005
    text += ". Parts below 0 are estimates that noise made negative." if negative else "."
    return base.figure("variance_budget", "Where the error comes from", [bars, ends], data, caption=text, height=240)


def efficiency(ratios: Mapping[str, Mapping[int, tuple[float, float, float]]], order: Sequence[str]) -> Figure | None:
    """Error over that of the oracle given the prompt, from (ratio, low, high) by probe and group size."""
    rows = [
        (label, group, *rounded([ratio, low, high]), f"{number(ratio)} ({number(low)} to {number(high)})")
        for label, by_group in ratios.items()
        for group, (ratio, low, high) in by_group.items()
        if math.isfinite(ratio)
    ]
    if not rows:
        return None
    data = {"ratios": columns(("run", "group", "ratio", "low", "high", "shown"), rows)}
    y = alt.Y("ratio:Q").axis(format="~g").scale(zero=False)
    points = base.dataset("ratios").encode(_groups("group"), y, base.colours("run", base.palette(list(ratios), order)))
    tips = base.tooltips(run="probe", group="G", shown="ratio")
    layers = [
        *_band(points, data["ratios"]),
        points.mark_line(strokeWidth=2),
        base.on_hover(points.encode(tooltip=tips)),
    ]
    text = (
        "Squared error of a group's gradient, divided by that of an oracle that knows the prompt's value, 1 + "
        "Δ/((G−1) Σ₁): what a baseline made from the group costs. 1 means it costs nothing. 95% bands."
    )
    return base.figure("oracle_ratio", "Efficiency against the oracle", layers, data, unit="÷ oracle", caption=text)


def blocks(whole: Plan, by_block: Mapping[str, Plan]) -> Figure | None:
    """The optimum of each block by itself, with its interval."""
    planned = {name: plan for name, plan in {"all": whole, **by_block}.items() if not math.isnan(plan.continuous.value)}
    if len(planned) < 3:
        return None
    data = {"blocks": columns(("block", *OPTIMUM[1:]), [(name, *_optimum(plan)) for name, plan in planned.items()])}
    ticks = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64]
    x = _groups("best", alt.Axis(title="G*", grid=True, format="d", values=ticks, labelOverlap="greedy"))
    y = alt.Y("block:N", sort=list(planned)).axis(grid=False)
    shade = alt.when(alt.datum.block == "all").then(alt.value("var(--run-2)")).otherwise(alt.value("var(--run-1)"))
    optima = base.dataset("blocks").encode(x, y, color=shade)
    tips = base.tooltips(block="block", shown="G* (95%)")
    layers = [
        optima.mark_rule(strokeWidth=2, opacity=0.55).encode(alt.X("from:Q"), alt.X2("to")),
        optima.mark_point(filled=True, size=60, opacity=1).encode(tooltip=tips),
    ]
    text = (
        "G* of each part of the network if only that part were trained, from the sum of its layers' Gram "
        f"matrices, with 95% intervals; {BEYOND}"
    )
    height = max(200, 20 * len(planned) + 20)
    return base.figure("group_size_blocks", "The optimum by block", layers, data, unit="G*", caption=text,
                       height=height)  # fmt: skip


def over_steps(course: Mapping[str, Sequence[tuple[int, Plan]]]) -> Figure | None:
    """The optimum at every step that was probed."""
    rows = [
        (label, *_optimum(plan), step)
        for label, plans in course.items()
        for step, plan in plans
        if not math.isnan(plan.continuous.value)
    ]
    if len(rows) < 2:
        return None
    data = {"course": columns((*OPTIMUM, "step"), rows)}
    y = alt.Y("best:Q").axis(format="~g").scale(type="log", base=2, nice=False)
    shades = base.palette(list(dict.fromkeys(data["course"]["run"])), list(course))
    points = base.dataset("course").encode(base.steps(), y, base.colours("run", shades))
    tips = base.tooltips(run="run", step="step", shown="G* (95%)")
    layers = [
        points.mark_area(opacity=0.14).encode(alt.Y("from:Q"), alt.Y2("to")),
        base.dotted_line(points),
        base.on_hover(points.encode(tooltip=tips)),
    ]
    text = f"G* of each probe of the run, with 95% intervals; {BEYOND}"
    return base.figure("group_size_steps", "The optimum over training", layers, data, unit="G*", caption=text)


OPTIMUM = ("run", "best", "from", "to", "shown")
"""Columns of an optimum with its interval."""


def _optimum(plan: Plan) -> tuple[float | None, float | None, float | None, str]:
    """G* and the ends of its interval, each at most FARTHEST, and all three as text."""
    best, (low, high) = plan.continuous.value, plan.interval
    drawn = rounded(min(value, FARTHEST) if not math.isnan(value) else math.nan for value in (best, low, high))
    return drawn[0], drawn[1], drawn[2], f"{number(best)} ({number(low)} to {number(high)})"


def _groups(field: str, axis: alt.Axis | None = None) -> alt.X:
    """Horizontal encoding of group sizes, with labels at powers of two unless another axis is given."""
    axis = axis or alt.Axis(title="G", values=[1, 2, 4, 8, 16, 32, 64], format="d")
    return alt.X(f"{field}:Q", axis=axis).scale(type="log", base=2, nice=False)


def _band(layer: alt.Chart, data: Mapping[str, Sequence[float | None]]) -> list[alt.Chart]:
    """The area between the columns low and high; none if both hold no number."""
    if all(value is None for value in (*data["low"], *data["high"])):
        return []
    return [layer.mark_area(opacity=0.16).encode(alt.Y("low:Q"), alt.Y2("high"))]
