"""Charts as Vega-Lite specifications, drawn by the page or exported with vl-convert.

Long runs are thinned so that nothing extreme is lost: the thin line goes through the smallest and
the largest value of each bin of steps, the thick one through the mean of each window; captions say
how many steps those hold. Values that are not finite are gaps, marked above them.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grposcope.errors import UserError
from grposcope.records import Estimate
from grposcope.report.elements import Columns, Figure
from grposcope.runs.metrics import metric
from grposcope.runs.run import Floats, Ints, Run, labels

BINS = 300
"""Bins of the thin line; it has at most two points in each."""

WINDOWS = 80
"""Points of the thick line, about."""

COLOURS = 8
"""Colours for runs; further runs use them again."""

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"

CONFIG: dict[str, Any] = {
    "background": None,
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif",
    "padding": {"left": 2, "right": 8, "top": 6, "bottom": 2},
    "view": {"stroke": None},
    "axis": {
        "domain": False,
        "ticks": False,
        "grid": True,
        "gridColor": "var(--grid)",
        "labelColor": "var(--muted)",
        "labelFontSize": 11,
        "labelPadding": 8,
        "title": None,
        "titleColor": "var(--muted)",
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    },
    "axisX": {"grid": False, "domain": True, "domainColor": "var(--line)", "tickCount": 6, "labelOverlap": True,
              "labelFlush": True, "titleAnchor": "end", "titlePadding": 4},
    "axisY": {"tickCount": 5},
    "legend": {"orient": "top", "direction": "horizontal", "title": None, "labelColor": "var(--muted)",
               "labelFontSize": 11, "symbolSize": 60, "offset": 6, "columns": 2},
    "line": {"strokeCap": "round", "strokeJoin": "round"},
}  # fmt: skip

LIGHT = {
    "run-1": "#2166ac", "run-2": "#c8501e", "run-3": "#2c8a57", "run-4": "#8457b5", "run-5": "#a67c00",
    "run-6": "#c2457b", "run-7": "#3d8797", "run-8": "#6b6b6b",
    "ink": "#1c2430", "muted": "#5b6675", "grid": "#ebe8e2", "line": "#cfcac1", "alarm": "#c0392b", "rest": "#a9a49a",
}  # fmt: skip
"""The colours of assets/page.css in daylight, for exports."""


def colour(index: int) -> str:
    """The colour of the run at `index`."""
    return f"var(--run-{index % COLOURS + 1})"


def extremes(values: Floats, bins: int = BINS) -> Ints:
    """Places to keep of a long column: the smallest and largest value of each of `bins` bins, first and last.

    All places of a column of at most 2·bins values. A bin without finite values keeps its first place.
    """
    n = len(values)
    if n <= 2 * bins:
        return np.arange(n)
    edges = np.linspace(0, n, bins + 1).astype(np.int64)
    keep = {0, n - 1}
    for start, stop in itertools.pairwise(edges):
        part = values[start:stop]
        finite = np.flatnonzero(np.isfinite(part))
        if len(finite):
            keep |= {int(start + finite[part[finite].argmin()]), int(start + finite[part[finite].argmax()])}
        else:
            keep.add(int(start))
    return np.array(sorted(keep))


def window_size(runs: Sequence[Run], windows: int = WINDOWS) -> int:
    """Steps per point of the thick line, common to all runs, so that their curves are equally smooth."""
    return max(1, math.ceil(max(run.steps for run in runs) / windows))


def window_edges(n: int, size: int) -> NDArray[np.int64]:
    """Edges of windows of `size` rows over n rows; smaller ones if there would be fewer than ten."""
    size = max(1, min(size, n // 10))
    return np.append(np.arange(0, n, size), n) if n else np.zeros(1, np.int64)


def short(values: Sequence[float] | Floats, digits: int = 5) -> list[float | None]:
    """Numbers with few digits, None for what is not finite, which JSON lacks."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values]


def averages(step: Floats, values: Floats, size: int) -> dict[str, list[Any]]:
    """Mean, least and largest finite value per window of `size` rows, at the middle of its steps; None without any."""
    edges = window_edges(len(step), size)
    found: dict[str, list[Any]] = {"step": [], "mean": [], "least": [], "largest": [], "steps": []}
    for start, stop in itertools.pairwise(edges):
        part = values[start:stop]
        part = part[np.isfinite(part)]
        has = len(part) > 0
        found["step"].append(float(step[start] + step[stop - 1]) / 2)
        for name, function in (("mean", np.mean), ("least", np.min), ("largest", np.max)):
            found[name].append(float(function(part)) if has else math.nan)
        first, last = int(step[start]), int(step[stop - 1])
        found["steps"].append(f"{first:,}" if first == last else f"{first:,}-{last:,}")
    return {**{name: short(found[name]) for name in ("step", "mean", "least", "largest")}, "steps": found["steps"]}


def joined(parts: Sequence[Columns], names: Sequence[str]) -> dict[str, list[Any]]:
    """Data sets of several runs as one, with the run's name as a further column."""
    columns = list(parts[0]) if parts else []
    found: dict[str, list[Any]] = {column: [] for column in [*columns, "run"]}
    for part, name in zip(parts, names, strict=True):
        for column in columns:
            found[column] += part[column]
        found["run"] += [name] * len(part[columns[0]])
    return found


def run_colours(runs: Sequence[Run]) -> dict[str, Any]:
    """The colour encoding of runs; the page's own legend names them."""
    return {
        "field": "run",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": labels(runs), "range": [colour(i) for i in range(len(runs))]},
    }


def step_axis(title: str | None = "step") -> dict[str, Any]:
    """The horizontal encoding of steps."""
    return {
        "field": "step",
        "type": "quantitative",
        "axis": {"title": title, "format": "~s"},
        "scale": {"nice": False, "zero": False},
    }


def spec(layers: Sequence[Mapping[str, Any]], height: int = 200, **more: Any) -> dict[str, Any]:
    """A layered chart as wide as its place on the page."""
    return {"$schema": SCHEMA, "width": "container", "height": height, "config": CONFIG, "layer": list(layers), **more}


def value_axis(name: str, values: Floats) -> dict[str, Any]:
    """The vertical encoding of a metric: shares in percent, other numbers short; logarithmic when far apart."""
    finite = values[np.isfinite(values)]
    axis: dict[str, Any] = {"title": None}
    scale: dict[str, Any] = {"zero": False, "nice": True}
    if metric(name).unit == "share":
        axis["format"] = "~%"
        scale = {"zero": True, "nice": True}
        if len(finite) and finite.max() > 0.5:
            scale = {"domain": [0, 1]}
        elif len(finite) and finite.max() == 0:
            scale = {"domain": [0, 0.1]}
    elif len(finite) and finite.min() > 0 and finite.max() > 30 * np.median(finite):
        scale = {"type": "log", "nice": True}
    elif len(finite) and finite.min() >= 0:
        scale["zero"] = True
    if len(finite) and (finite.max() >= 1e4 or abs(finite).max() < 1e-3):
        axis["format"] = "~s" if finite.max() >= 1e4 else ".2~g"
    return {"type": "quantitative", "axis": axis, "scale": scale}


def curve(name: str, runs: Sequence[Run], scale: Mapping[str, Any] | None = None) -> Figure | None:
    """A metric of the step table against the step, a line per run; None if no run has a finite value of it."""
    names, about = labels(runs), metric(name)
    have = [i for i, run in enumerate(runs) if name in run.table and np.isfinite(run.table[name]).any()]
    if not have:
        return None
    size = window_size([runs[i] for i in have])
    thin: list[Columns] = []
    thick: list[Columns] = []
    gaps: list[Columns] = []
    for i in have:
        step, values = runs[i].table["step"], runs[i].table[name]
        kept = extremes(values)
        thin.append({"step": short(step[kept], 9), "value": short(values[kept])})
        thick.append(averages(step, values, size))
        missing = np.flatnonzero(~np.isfinite(values))
        missing = missing[:: max(1, math.ceil(len(missing) / BINS))]
        what = {True: "NaN", False: "infinite"}
        gaps.append({"step": short(step[missing], 9), "found": [what[bool(np.isnan(values[m]))] for m in missing]})
    chosen = [names[i] for i in have]
    colours = run_colours(runs)
    x, y = step_axis(), value_axis(name, np.concatenate([runs[i].table[name] for i in have]))
    y["scale"] = {**y["scale"], **(scale or {})}
    smoothed = size > 1
    form = y["axis"].get("format", ".3~g")
    tips = [
        *([{"field": "run", "title": "run"}] if len(runs) > 1 else []),
        {"field": "steps", "title": "steps" if smoothed else "step"},
        {"field": "mean", "type": "quantitative", "format": form, "title": "mean" if smoothed else about.title},
        *([{"field": part, "type": "quantitative", "format": form} for part in ("least", "largest")] * smoothed),
    ]
    faint = 0.38 if len(have) == 1 else 0.22
    layers: list[dict[str, Any]] = []
    if smoothed:
        layers.append({
            "data": {"name": "thin"},
            "mark": {"type": "line", "strokeWidth": 1, "opacity": faint},
            "encoding": {"x": x, "y": {**y, "field": "value"}, "color": colours},
        })  # fmt: skip
    shared = {"x": x, "y": {**y, "field": "mean"}, "color": colours}
    layers += [
        {"data": {"name": "thick"}, "mark": {"type": "line", "strokeWidth": 2}, "encoding": shared},
        hover({"data": {"name": "thick"}}, {**shared, "tooltip": tips}),
    ]
    if any(part["step"] for part in gaps):
        layers.append({
            "data": {"name": "gaps"},
            "mark": {"type": "tick", "color": "var(--alarm)", "thickness": 1.5, "height": 9, "orient": "vertical"},
            "encoding": {"x": x, "y": {"value": 0},
                         "tooltip": [{"field": "step"}, {"field": "found", "title": "value"}]},
        })  # fmt: skip
    data = {"thick": joined(thick, chosen)}
    if smoothed:
        data["thin"] = joined(thin, chosen)
    if any(part["step"] for part in gaps):
        data["gaps"] = joined(gaps, chosen)
    return Figure(
        name, about.title, spec(layers), data, about.unit.replace("share", ""), caption(name, [runs[i] for i in have])
    )


def hover(source: Mapping[str, Any], encoding: Mapping[str, Any]) -> dict[str, Any]:
    """A layer of points that show up, with their tooltip, when the pointer is near their step."""
    near = {"type": "point", "on": "pointerover", "nearest": True, "encodings": ["x"], "clear": "pointerout"}
    return {
        **source,
        "params": [{"name": "near", "select": near}],
        "mark": {"type": "point", "filled": True, "size": 60},
        "encoding": {**encoding, "opacity": {"condition": {"param": "near", "empty": False, "value": 1}, "value": 0}},
    }


def caption(name: str, runs: Sequence[Run]) -> str:
    """What the metric is, what was thinned and averaged, and what is not finite."""
    text = metric(name).definition
    longest = max(run.steps for run in runs)
    window = window_size(runs)
    if window > 1:
        thin = "every step"
        if longest > 2 * BINS:
            thin = f"smallest and largest of every {math.ceil(longest / BINS):,} steps"
        fewer = " or fewer" if min(run.steps for run in runs) < 10 * window else ""
        text += f". Thick: mean of {window:,} steps{fewer}; thin: {thin}"
    gaps = sum(int((~np.isfinite(run.table[name])).sum()) for run in runs)
    if gaps:
        text += f". Not finite at {gaps:,} step{'s' * (gaps > 1)}, marked in red"
    return text[0].upper() + text[1:] + "."


def outline(values: Floats) -> dict[str, Any]:
    """Numbers of a column for `--json`: mean of the first and last tenth, extremes, and what is not finite."""
    tenth = max(1, len(values) // 10)
    finite = values[np.isfinite(values)]
    return {
        "first_tenth": _mean(values[:tenth]),
        "last_tenth": _mean(values[-tenth:]),
        "least": float(finite.min()) if len(finite) else math.nan,
        "largest": float(finite.max()) if len(finite) else math.nan,
        "steps": len(values),
        "not_finite": len(values) - len(finite),
    }


def _mean(values: Floats) -> Estimate:
    found = Estimate.mean(values[np.isfinite(values)].tolist())
    if found.n < 2:
        return found
    return Estimate(found.value, found.se, found.n, "steps are not independent: the error is a lower bound")


def complete(figure: Figure) -> dict[str, Any]:
    """The specification with its data in rows, as Vega-Lite wants them."""
    rows = {
        name: [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        for name, columns in figure.data.items()
    }
    return {**figure.spec, "datasets": rows}


def export(figures: Sequence[Figure], folder: Path, kind: str) -> list[Path]:
    """Every figure as a png or svg file in `folder`, which is made; UserError if it cannot be written."""
    import vl_convert

    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            text = re.sub(r"var\(--([a-z0-9-]+)\)", lambda m: LIGHT[m.group(1)], json.dumps(complete(figure)))
            chart = json.loads(text)
            chart |= {"width": 900 if figure.wide else 560, "height": 320, "background": "white", "padding": 16}
            chart["title"] = {"text": figure.title + (f" ({figure.unit})" if figure.unit else ""), "anchor": "start",
                              "color": LIGHT["ink"], "fontSize": 14, "offset": 12}  # fmt: skip
            path = folder / f"{figure.name}.{kind}"
            if kind == "png":
                path.write_bytes(vl_convert.vegalite_to_png(chart, scale=2))
            else:
                path.write_text(vl_convert.vegalite_to_svg(chart))
            written.append(path)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; choose another --figures") from None
    return written
