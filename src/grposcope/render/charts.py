"""Shared parts of all charts: the theme, the encodings of steps, shares and runs, the hover layer, and export to files.

A chart is a list of Altair layers over named data sets; the columns of those travel in the `Figure`, next to the
specification, and Altair never sees them. Specifications are validated against the schema of Vega-Lite by the tests
alone, because validation takes longer than everything else about a chart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt

from grposcope.core.answer import Columns, Figure
from grposcope.core.errors import UserError
from grposcope.core.files import atomic

COLOURS = 10
"""Number of colours for runs; further ones use them again, so that more lines need dashes or labels."""

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"

THEME: dict[str, Any] = {
    "background": "transparent",
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
"""The look of every chart; colours are the variables of assets/page.css, so that both themes of the page apply."""

LIGHT = {
    "run-1": "#2166ac", "run-2": "#c8501e", "run-3": "#2c8a57", "run-4": "#8457b5", "run-5": "#a67c00",
    "run-6": "#c2457b", "run-7": "#3d8797", "run-8": "#6b6b6b",
    "run-9": "#12305e", "run-10": "#7a2e1d",
    "ink": "#1c2430", "muted": "#5b6675", "grid": "#ebe8e2", "line": "#cfcac1", "alarm": "#c0392b", "rest": "#a9a49a",
}  # fmt: skip
"""The colours of the light theme of assets/page.css, for exported files."""


def figure(
    name: str, title: str, layers: Sequence[alt.Chart | dict[str, Any]], data: Mapping[str, Columns], *,
    unit: str = "", caption: str = "", height: int = 200, wide: bool = False,
) -> Figure:  # fmt: skip
    """A figure of layers, or of what `specified` made of them, as wide as its place on the page, in the theme."""
    spec: dict[str, Any] = {"$schema": SCHEMA, "config": THEME, "width": "container", "height": height}
    spec["layer"] = specified(layers)
    return Figure(name, title, spec, data, unit, caption, wide)


def independent(drawn: Figure, channel: str) -> Figure:
    """The figure with a scale of its own per layer for a channel, such as "y"."""
    return replace(drawn, spec={**drawn.spec, "resolve": {"scale": {channel: "independent"}}})


def specified(layers: Sequence[alt.Chart | dict[str, Any]]) -> list[dict[str, Any]]:
    """Layers as parts of a Vega-Lite specification."""
    context = {"top_level": False}
    return [layer if isinstance(layer, dict) else layer.to_dict(validate=False, context=context) for layer in layers]


def dataset(name: str) -> alt.Chart:
    """A layer over the data set `name` of its figure, to be given a mark and encodings."""
    return alt.Chart(alt.NamedData(name))


@cache
def steps(field: str = "step") -> alt.X:
    """Horizontal encoding of steps."""
    return alt.X(f"{field}:Q").axis(title="step", format="~s").scale(nice=False, zero=False)


@cache
def share(field: str) -> alt.Y:
    """Vertical encoding of a share, in percent from 0 to 100."""
    return alt.Y(f"{field}:Q").axis(format="~%").scale(domain=[0, 1])


@cache
def value(field: str) -> alt.Y:
    """Vertical encoding of a number, with the axis around the values."""
    return alt.Y(f"{field}:Q").axis(format="~g").scale(zero=False)


def colour(index: int) -> str:
    """The colour of the run at `index`: that of the run COLOURS before it from the eleventh on."""
    return f"var(--run-{index % COLOURS + 1})"


METRICS = {"reward": 0, "heldout": 1, "entropy": 2, "kl": 3, "length": 4, "dead_fraction": 5, "grad_norm": 6}
"""Metric -> its colour on every chart of a page about one run; all others have OTHERS."""

OTHERS = 7


def metric_colour(name: str) -> str:
    """The colour of a metric on the page of one run; heldout stands for the held-out score."""
    return colour(METRICS.get(name, OTHERS))


def palette(names: Sequence[str], order: Sequence[str] = ()) -> dict[str, str]:
    """The colour of each name, by its place in `order` (all names of the page), or else among `names`."""
    places = list(order or names)
    return {name: colour(places.index(name)) for name in names}


def colours(field: str, shades: Mapping[str, str], legend: alt.Legend | None = None) -> alt.Color:
    """Colour encoding of a field of names, each in its shade; runs need no legend, as the page names them."""
    return alt.Color(f"{field}:N", legend=legend, scale=alt.Scale(domain=list(shades), range=list(shades.values())))


def tooltips(**titles: str) -> list[alt.Tooltip]:
    """Tooltip of columns that are shown as they are, each with its title."""
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in titles.items()]


def on_hover(layer: alt.Chart) -> alt.Chart:
    """The points of a layer, each shown, with its tooltip, while the pointer is near its horizontal place."""
    near, opacity = _near()
    return layer.mark_point(filled=True, size=60).encode(opacity).add_params(near)


@cache
def _near() -> tuple[alt.Parameter, alt.OpacityValue]:
    near = alt.selection_point(name="near", on="pointerover", nearest=True, encodings=["x"], clear="pointerout")
    return near, alt.OpacityValue(0, condition={"param": "near", "empty": False, "value": 1})


def dotted_line(layer: alt.Chart) -> alt.Chart:
    """A line with a dot at every point, for few points."""
    return layer.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(filled=True, size=40))


def _with_data(figure: Figure) -> dict[str, Any]:
    """The specification with its data in rows, as Vega-Lite expects them."""
    rows = {
        name: [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        for name, columns in figure.data.items()
    }
    return {**figure.spec, "datasets": rows}


def drawn(figure: Figure, kind: str) -> bytes:
    """A figure as a png or svg file, in the light theme on white."""
    import vl_convert

    chart = json.loads(_light(_with_data(figure)))
    chart |= {"width": 900 if figure.wide else 560, "height": 320, "background": "white", "padding": 16}
    chart["title"] = {"text": figure.title + (f" ({figure.unit})" if figure.unit else ""), "anchor": "start",
                      "color": LIGHT["ink"], "fontSize": 14, "offset": 12}  # fmt: skip
    if kind == "png":
        return bytes(vl_convert.vegalite_to_png(chart, scale=2))
    return str(vl_convert.vegalite_to_svg(chart)).encode()


def chart(figure: Figure) -> alt.LayerChart:
    """A figure as a chart of Altair in the colours of the light theme, with its data."""
    spec = json.loads(_light(_with_data(figure)))
    spec |= {"width": 900 if figure.wide else 560, "title": {"text": figure.title, "anchor": "start"}}
    for layer in spec["layer"]:
        if layer.pop("params", None):  # the selection of the page, of whose name Altair would make two
            layer["encoding"]["opacity"] = {"value": 0}
    made: alt.LayerChart = alt.LayerChart.from_dict(spec, validate=False)
    return made


def _light(spec: Mapping[str, Any]) -> str:
    """A specification as JSON, with the variables of the page's style as the colours of the light theme."""
    return re.sub(r"var\(--([a-z0-9-]+)\)", lambda m: LIGHT[m.group(1)], json.dumps(spec))


def export(figures: Sequence[Figure], folder: Path, kind: str) -> list[Path]:
    """Write every figure as a png or svg file into `folder`, which is made; UserError if it cannot be written."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            path = folder / f"{figure.name}.{kind}"
            with atomic(path) as file:
                file.write(drawn(figure, kind))
            written.append(path)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from None
    return written
