"""Charts of the group size: rollouts needed against G, where the error comes from, the optimum by block and step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from grposcope.formatting import number, percent
from grposcope.report.charts import base as figures
from grposcope.report.elements import Figure
from grposcope.ustat import mse
from grposcope.ustat.moments import Moments
from grposcope.ustat.planning import Plan

SIZES = (*range(2, 17), 20, 24, 28, 32, 40, 48, 56, 64)
"""Group sizes of the curves."""

FARTHEST = 64.0
"""Optima beyond this group size are drawn at the edge."""


def curve(plans: Mapping[str, Plan], order: Sequence[str]) -> Figure | None:
    """Rollouts needed for the same error, over those of the best group size; a line and band per probe."""
    rows: dict[str, list[Any]] = {name: [] for name in ("run", "group", "needed", "low", "high", "shown", "interval")}
    optima: dict[str, list[Any]] = {name: [] for name in ("run", "best", "from", "to", "shown")}
    for label, plan in plans.items():
        for point in plan.curve:
            if math.isfinite(point.loss):
                low, high = point.loss_interval
                cells = (label, point.group, *figures.short([1 + point.loss, 1 + low, 1 + high]),
                         f"{percent(point.loss)} more", f"{percent(low)} to {percent(high)}")  # fmt: skip
                _append(rows, cells)
        if math.isfinite(plan.continuous.value):
            _append(optima, (label, *_optimum(plan)))
    if not rows["needed"]:
        return None
    x = {**_groups(), "field": "group"}
    most = max(1.25, *(v for v in (*rows["needed"], *rows["high"]) if v is not None))
    y: dict[str, Any] = {"type": "quantitative", "scale": {"type": "log", "base": 2, "domain": [1, most]},
                         "axis": {"title": None, "format": ".2~g", "tickCount": 5}}  # fmt: skip
    colours = _colours(list(plans), order)
    tips = [{"field": "run", "title": "probe"}, {"field": "group", "title": "G"},
            {"field": "shown", "title": "rollouts"}, {"field": "interval", "title": "95%"}]  # fmt: skip
    drawn: list[dict[str, Any]] = [
        {"data": {"name": "optima"}, "mark": {"type": "rect", "opacity": 0.14},
         "encoding": {"x": {**x, "field": "from"}, "x2": {"field": "to"}, "color": colours}},
        {"data": {"name": "optima"}, "mark": {"type": "rule", "strokeWidth": 1.5, "strokeDash": [5, 3]},
         "encoding": {"x": {**x, "field": "best"}, "color": colours}},
        *_band("curve", rows, x, y, colours),
        {"data": {"name": "curve"}, "mark": {"type": "line", "strokeWidth": 2},
         "encoding": {"x": x, "y": {**y, "field": "needed"}, "color": colours}},
        figures.hover({"data": {"name": "curve"}},
                      {"x": x, "y": {**y, "field": "needed"}, "color": colours, "tooltip": tips}),
    ]  # fmt: skip
    text = (
        "Rollouts needed for the same mean-squared error of the gradient, as a multiple of those at the best group "
        "size, with a 95% band over prompts. Dashed: the optimum G*, shaded its 95% interval"
    )
    gone = [label for label, plan in plans.items() if not math.isfinite(plan.continuous.value)]
    text += f"; of {', '.join(gone)} there is no finite one." if gone else "."
    return Figure("group_size", "Rollouts needed against the group size", figures.spec(drawn, 240),
                  {"curve": rows, "optima": optima}, "× the best", text, wide=len(plans) > 1)  # fmt: skip


def budget(found: Moments, groups: Sequence[int]) -> Figure | None:
    """What the error is made of at equal numbers of rollouts: G V_p + Σ₁ + Δ/(G−1), over the least total."""
    kinds = {"drawing prompts": lambda s: s.prompts, "an oracle's rollouts": lambda s: s.oracle,
             "not knowing the value": lambda s: s.residual}  # fmt: skip
    splits = {group: mse.budget(found, 1, group) for group in groups}
    least = min((group * split.total.value for group, split in splits.items()), default=math.nan)
    if not (math.isfinite(least) and least > 0):
        return None
    rows: dict[str, list[Any]] = {name: [] for name in ("group", "part", "order", "height", "share")}
    totals: dict[str, list[Any]] = {name: [] for name in ("group", "low", "high", "total")}
    for group, split in splits.items():
        for order, (kind, part) in enumerate(kinds.items()):
            value = part(split).value
            cells = (str(group), kind, order, *figures.short([group * value / least]),
                     f"{percent(value / split.total.value)} of the error")  # fmt: skip
            _append(rows, cells)
        low, high = found.interval(lambda s, group=group: mse.second_moment(s, group) - s.mean2)  # type: ignore[misc]
        _append(totals, (str(group), *figures.short([group * low / least, group * high / least]),
                         number(group * split.total.value / least)))  # fmt: skip
    names = list(kinds)
    sizes = [str(group) for group in splits]
    x = {"field": "group", "type": "ordinal", "sort": sizes, "axis": {"title": "G", "labelAngle": 0}}
    y = {"type": "quantitative", "axis": {"title": None}, "scale": {"zero": True}}
    colours = {"field": "part", "type": "nominal", "sort": names, "legend": {"symbolType": "square", "columns": 1},
               "scale": {"domain": names, "range": ["var(--run-1)", "var(--run-3)", "var(--run-2)"]}}  # fmt: skip
    tips = [{"field": "group", "title": "G"}, {"field": "part"}, {"field": "share"}]
    drawn = [
        {"data": {"name": "parts"}, "mark": {"type": "bar", "opacity": 0.85},
         "encoding": {"x": x, "y": {**y, "field": "height", "stack": "zero"}, "color": colours,
                      "order": {"field": "order"}, "tooltip": tips}},
        {"data": {"name": "totals"}, "mark": {"type": "rule", "color": "var(--ink)", "strokeWidth": 1.2},
         "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}},
    ]  # fmt: skip
    text = (
        "The error at an equal number of rollouts, in units of the least: drawing prompts (G·V_p), rollouts of an "
        "oracle that knows each prompt's value (Σ₁), and putting the group's mean in its place (Δ/(G−1)). "
        "Lines: 95% interval of the total"
    )
    negative = min(v for v in rows["height"] if v is not None) < -0.005
    text += ". Parts below 0 are estimates that noise made negative." if negative else "."
    return Figure("variance_budget", "Where the error comes from", figures.spec(drawn, 240),
                  {"parts": rows, "totals": totals}, caption=text)  # fmt: skip


def efficiency(found: Mapping[str, Mapping[int, tuple[float, float, float]]], order: Sequence[str]) -> Figure | None:
    """Error over that of the oracle given the prompt, from (ratio, low, high) by probe and group size."""
    rows: dict[str, list[Any]] = {name: [] for name in ("run", "group", "ratio", "low", "high", "shown")}
    for label, ratios in found.items():
        for group, (ratio, low, high) in ratios.items():
            if math.isfinite(ratio):
                shown = f"{number(ratio)} ({number(low)} to {number(high)})"
                _append(rows, (label, group, *figures.short([ratio, low, high]), shown))
    if not rows["ratio"]:
        return None
    x = {**_groups(), "field": "group"}
    y: dict[str, Any] = {"type": "quantitative", "scale": {"zero": False}, "axis": {"title": None, "format": "~g"}}
    colours = _colours(list(found), order)
    shared = {"x": x, "y": {**y, "field": "ratio"}, "color": colours}
    source = {"data": {"name": "ratios"}}
    tips = [{"field": "run", "title": "probe"}, {"field": "group", "title": "G"}, {"field": "shown", "title": "ratio"}]
    drawn = [
        *_band("ratios", rows, x, y, colours),
        {**source, "mark": {"type": "line", "strokeWidth": 2}, "encoding": shared},
        figures.hover(source, {**shared, "tooltip": tips}),
    ]  # fmt: skip
    text = (
        "Squared error of a group's gradient over that of an oracle which knows the prompt's value, "
        "1 + Δ/((G−1) Σ₁): the price of a baseline made from the group. 1 is no price. 95% bands."
    )
    return Figure("oracle_ratio", "Efficiency against the oracle", figures.spec(drawn), {"ratios": rows}, "÷ oracle",
                  text)  # fmt: skip


def blocks(whole: Plan, found: Mapping[str, Plan]) -> Figure | None:
    """The optimum of each block by itself, with its interval."""
    known = {name: plan for name, plan in {"all": whole, **found}.items() if not math.isnan(plan.continuous.value)}
    if len(known) < 3:
        return None
    rows: dict[str, list[Any]] = {name: [] for name in ("block", "best", "from", "to", "shown")}
    for name, plan in known.items():
        _append(rows, (name, *_optimum(plan)))
    y = {"field": "block", "type": "nominal", "sort": list(known), "axis": {"title": None, "grid": False}}
    ticks = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64]
    axis = {"title": "G*", "grid": True, "format": "d", "values": ticks, "labelOverlap": "greedy"}
    x = {**_groups(), "field": "best", "axis": axis}
    colour = {"condition": {"test": "datum.block == 'all'", "value": "var(--run-2)"}, "value": "var(--run-1)"}
    source = {"data": {"name": "blocks"}}
    tips = [{"field": "block"}, {"field": "shown", "title": "G* (95%)"}]
    drawn = [
        {**source, "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.55},
         "encoding": {"y": y, "x": {**x, "field": "from"}, "x2": {"field": "to"}, "color": colour}},
        {**source, "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
         "encoding": {"y": y, "x": x, "color": colour, "tooltip": tips}},
    ]  # fmt: skip
    text = (
        "G* of each part of the network as if it alone were trained, from the sum of its layers' Gram matrices, with "
        f"95% intervals; G* beyond {FARTHEST:g} or infinite is drawn at the edge."
    )
    height = max(200, 20 * len(known) + 20)
    return Figure("group_size_blocks", "The optimum by block", figures.spec(drawn, height), {"blocks": rows},
                  "G*", text)  # fmt: skip


def over_steps(course: Mapping[str, Sequence[tuple[int, Plan]]]) -> Figure | None:
    """The optimum at every step that was probed."""
    rows: dict[str, list[Any]] = {name: [] for name in ("run", "step", "best", "from", "to", "shown")}
    for label, found in course.items():
        for step, plan in found:
            if not math.isnan(plan.continuous.value):
                _append(rows, (label, step, *_optimum(plan)))
    if len(rows["step"]) < 2:
        return None
    colours = _colours(list(dict.fromkeys(rows["run"])), list(course))
    x = figures.step_axis()
    y: dict[str, Any] = {"type": "quantitative", "axis": {"title": None, "format": "~g"},
                         "scale": {"type": "log", "base": 2, "nice": False}}  # fmt: skip
    source = {"data": {"name": "course"}}
    shared = {"x": x, "y": {**y, "field": "best"}, "color": colours}
    tips = [{"field": "run", "title": "run"}, {"field": "step"}, {"field": "shown", "title": "G* (95%)"}]
    drawn = [
        {**source, "mark": {"type": "area", "opacity": 0.14},
         "encoding": {"x": x, "y": {**y, "field": "from"}, "y2": {"field": "to"}, "color": colours}},
        {**source, "mark": {"type": "line", "strokeWidth": 2, "point": {"filled": True, "size": 45}},
         "encoding": shared},
        figures.hover(source, {**shared, "tooltip": tips}),
    ]  # fmt: skip
    text = f"G* of each probe of the run, with 95% intervals; beyond {FARTHEST:g} or infinite is drawn at the edge."
    return Figure("group_size_steps", "The optimum over training", figures.spec(drawn), {"course": rows}, "G*", text)


def _optimum(plan: Plan) -> tuple[float | None, float | None, float | None, str]:
    """G* with its interval, cut to what is drawn, and in words."""
    low, high = plan.interval
    drawn = [
        min(value, FARTHEST) if not math.isnan(value) else math.nan for value in (plan.continuous.value, low, high)
    ]
    best, first, last = figures.short(drawn)
    return best, first, last, f"{number(plan.continuous.value)} ({number(low)} to {number(high)})"


def _groups() -> dict[str, Any]:
    """The horizontal encoding of group sizes."""
    return {"type": "quantitative", "scale": {"type": "log", "base": 2, "nice": False},
            "axis": {"title": "G", "values": [1, 2, 4, 8, 16, 32, 64], "format": "d"}}  # fmt: skip


def _colours(names: Sequence[str], order: Sequence[str]) -> dict[str, Any]:
    """The colours that the page gives these runs."""
    shades = [figures.colour(list(order).index(name)) for name in names]
    return {"field": "run", "type": "nominal", "legend": None, "scale": {"domain": list(names), "range": shades}}


def _band(name: str, rows: Mapping[str, Sequence[Any]], x: Any, y: Any, colours: Any) -> list[dict[str, Any]]:
    """A layer of the data set `name` between low and high; none where nothing is known of them."""
    if all(value is None for value in (*rows["low"], *rows["high"])):
        return []
    encoding = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colours}
    return [{"data": {"name": name}, "mark": {"type": "area", "opacity": 0.16}, "encoding": encoding}]


def _append(rows: dict[str, list[Any]], cells: Sequence[Any]) -> None:
    for column, cell in zip(rows.values(), cells, strict=True):
        column.append(cell)
