"""Charts of one probe: spectra, ranks by place and by setting, how few tokens carry the credit, the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from grposcope.facts.geometry import ranged
from grposcope.facts.learning import Z
from grposcope.formatting import number, percent, visible
from grposcope.records import Estimate
from grposcope.report.charts import base as figures
from grposcope.report.elements import Figure
from grposcope.runs.probe import LayerRecord, ProbeRecord
from grposcope.runs.run import Floats

ORDER = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Projections as the data flows; others follow as they come."""

LINES = 72
"""Spectra in a chart; of deeper models some blocks are left out."""

LEAST = 1e-3
"""Singular values below this share of the largest are not drawn."""

DEFINITIONS = {
    "stable": "stable",
    "participation": "participation",
    "entropy_sq": "entropy",
    "energy_90": "90% of energy",
}
"""Ranks that are drawn by setting, and their short names."""

OUTSIDE = "none"


def layers(probe: ProbeRecord) -> list[LayerRecord]:
    """The matrices with a spectrum of the probe's own gradient, first blocks first."""
    measured = [layer for layer in probe.layers if probe.recipe in layer.spectra]
    return sorted(measured, key=lambda layer: math.inf if layer.depth is None else layer.depth)


def spectra(probe: ProbeRecord) -> Figure | None:
    """Singular values of every matrix's gradient over the largest one."""
    found = layers(probe)
    blocks = sorted({layer.depth for layer in found if layer.depth is not None})
    roles = _roles(found)
    many = max(1, math.ceil(len(found) / LINES))
    kept = {*blocks[::many], *blocks[-1:]}
    rows: dict[str, list[Any]] = {name: [] for name in ("layer", "projection", "block", "k", "share", "rank")}
    for layer in found:
        if layer.depth is not None and layer.depth not in kept:
            continue
        spectrum = layer.spectra[probe.recipe]
        values = np.array(spectrum.values, float)
        for k in _thinned(len(values)):
            share = values[k - 1] / values[0] if values[0] > 0 else 0.0
            if share >= LEAST:
                cells = (visible(layer.name), visible(layer.role), _block(layer), k, float(f"{share:.4g}"),
                         number(spectrum.ranks["stable"]))  # fmt: skip
                for column, cell in zip(rows.values(), cells, strict=True):
                    column.append(cell)
    if not rows["k"]:
        return None
    x = {"field": "k", "type": "quantitative", "scale": {"type": "log", "base": 2, "nice": False},
         "axis": {"title": "k", "values": [1, 2, 4, 8, 16, 32, 64], "format": "d"}}  # fmt: skip
    y = {"field": "share", "type": "quantitative", "scale": {"type": "log", "domain": [LEAST, 1]},
         "axis": {"title": None, "values": [0.001, 0.01, 0.1, 1], "format": "~g"}}  # fmt: skip
    colours = {"field": "projection", "type": "nominal", "legend": {"symbolType": "stroke", "columns": 4},
               "scale": {"domain": roles, "range": [figures.colour(i) for i in range(len(roles))]}}  # fmt: skip
    tips = [{"field": "layer"}, {"field": "k"}, {"field": "share", "title": "σ_k / σ₁"},
            {"field": "rank", "title": "stable rank"}]  # fmt: skip
    source = {"data": {"name": "values"}}
    layers_ = [
        {**source, "mark": {"type": "line", "strokeWidth": 1.3, "opacity": 0.65},
         "encoding": {"x": x, "y": y, "color": colours, "detail": {"field": "layer"}}},
        {**source, "mark": {"type": "point", "filled": True, "size": 90, "opacity": 0},
         "encoding": {"x": x, "y": y, "color": colours, "tooltip": tips}},
    ]  # fmt: skip
    text = "Singular values of the gradient of each weight matrix, as shares of its largest; a line per matrix. "
    text += f"Steep lines are gradients of few directions. Shares below {LEAST:g} are not drawn"
    if probe.tier != "exact":
        text += "; the fast tier knows the leading values, the rest of its energy is in the ranks"
    text += f"; of {len(blocks)} blocks {len(kept)} are drawn." if len(kept) < len(blocks) else "."
    return Figure("geometry_spectra", "Singular values by layer", figures.spec(layers_, 260), {"values": rows},
                  "σ_k / σ₁", text)  # fmt: skip


def ranks(probe: ProbeRecord) -> Figure | None:
    """Stable rank by block and projection."""
    found = layers(probe)
    rows: dict[str, list[Any]] = {name: [] for name in ("layer", "projection", "block", "rank", "shown", "others")}
    for layer in found:
        all_ranks = layer.spectra[probe.recipe].ranks
        if math.isfinite(all_ranks["stable"]):
            others = ", ".join(f"{name} {number(all_ranks[key])}" for key, name in list(DEFINITIONS.items())[1:])
            cells = (visible(layer.name), visible(layer.role), _block(layer), float(f"{all_ranks['stable']:.4g}"),
                     f"{all_ranks['stable']:.1f}", others)  # fmt: skip
            for column, cell in zip(rows.values(), cells, strict=True):
                column.append(cell)
    if not rows["rank"]:
        return None
    blocks = list(dict.fromkeys(rows["block"]))
    plain = {"grid": False, "title": None}
    x = {"field": "block", "type": "ordinal", "sort": blocks,
         "axis": {**plain, "title": "block", "labelAngle": 0, "labelFlush": False}}  # fmt: skip
    y = {"field": "projection", "type": "nominal", "sort": _roles(found), "axis": plain}
    shade = {"field": "rank", "type": "quantitative", "legend": None,
             "scale": {"domain": [1, max(rows["rank"])], "range": [0.06, 0.75], "clamp": True}}  # fmt: skip
    tips = [{"field": "layer"}, {"field": "rank", "title": "stable rank"}, {"field": "others", "title": "other ranks"}]
    cells_ = {"data": {"name": "cells"}, "mark": {"type": "rect", "color": "var(--run-1)"},
              "encoding": {"x": x, "y": y, "opacity": shade, "tooltip": tips}}  # fmt: skip
    drawn = [cells_]
    if len(blocks) <= 12:
        words = {"mark": {"type": "text", "fontSize": 11, "color": "var(--ink)"}, "data": {"name": "cells"},
                 "encoding": {"x": x, "y": y, "text": {"field": "shown"}}}  # fmt: skip
        drawn.append(words)
    text = (
        f"Stable rank Σσ²/σ₁² of each matrix's gradient, from {number(min(rows['rank']))} to "
        f"{number(max(rows['rank']))}; darker is higher. Point at a cell for other definitions."
    )
    height = max(200, 26 * len(set(rows["projection"])))
    return Figure("geometry_ranks", "Rank by depth and projection", figures.spec(drawn, height), {"cells": rows},
                  caption=text)  # fmt: skip


def compared_ranks(found: Sequence[tuple[str, ProbeRecord]], order: Sequence[str]) -> Figure | None:
    """Mean stable rank over the matrices of each block, a line per probe; `order`: all names of the page."""
    rows: dict[str, list[Any]] = {name: [] for name in ("run", "block", "rank", "shown")}
    for label, probe in found:
        by_block: dict[int, list[float]] = {}
        for layer in layers(probe):
            if layer.depth is not None:
                by_block.setdefault(layer.depth, []).append(layer.spectra[probe.recipe].ranks["stable"])
        for block, values in by_block.items():
            mean = Estimate.mean([v for v in values if math.isfinite(v)])
            if math.isfinite(mean.value):
                for column, cell in zip(rows.values(), (label, block, mean.value, ranged(mean)), strict=True):
                    column.append(cell)
    if not rows["rank"]:
        return None
    names = [label for label, _ in found]
    shades = [figures.colour(list(order).index(name)) for name in names]
    colours = {"field": "run", "type": "nominal", "legend": None, "scale": {"domain": names, "range": shades}}
    x = {"field": "block", "type": "quantitative", "axis": {"title": "block", "format": "d", "tickMinStep": 1}}
    y = {"field": "rank", "type": "quantitative", "axis": {"title": None}, "scale": {"zero": False}}
    source, shared = {"data": {"name": "blocks"}}, {"x": x, "y": y, "color": colours}
    tips = [{"field": "run", "title": "probe"}, {"field": "block"}, {"field": "shown", "title": "stable rank (95%)"}]
    drawn = [
        {**source, "mark": {"type": "line", "strokeWidth": 2, "point": {"filled": True, "size": 40}},
         "encoding": shared},
        figures.hover(source, {**shared, "tooltip": tips}),
    ]  # fmt: skip
    text = "Stable rank of the gradients of a block's weight matrices, their mean, a line per probe."
    return Figure("geometry_blocks", "Rank by depth", figures.spec(drawn), {"blocks": rows}, caption=text)


def weightings(probe: ProbeRecord) -> Figure | None:
    """Ranks of each weighting: recipes, group sizes, controls. None for the recipe alone."""
    names = list(probe.weightings)
    if len(names) < 2:
        return None
    rows: dict[str, list[Any]] = {name: [] for name in ("setting", "definition", "value", "low", "high", "shown")}
    for name in names:
        for definition, short in DEFINITIONS.items():
            value = probe.rank(definition, name)
            if math.isfinite(value.value):
                error = value.se if math.isfinite(value.se) else 0.0
                cells = (visible(name), short, *figures.short([value.value, value.value - Z * error,
                         value.value + Z * error]), ranged(value))  # fmt: skip
                for column, cell in zip(rows.values(), cells, strict=True):
                    column.append(cell)
    if not rows["value"]:
        return None
    kinds = list(DEFINITIONS.values())
    y = {"field": "setting", "type": "nominal", "sort": [visible(name) for name in names],
         "axis": {"title": None, "grid": True, "labelLimit": 110}}  # fmt: skip
    x = {"field": "value", "type": "quantitative", "scale": {"type": "log", "base": 2, "nice": False},
         "axis": {"title": "rank", "format": "~g", "grid": True, "tickCount": 5}}  # fmt: skip
    colours = {"field": "definition", "type": "nominal", "legend": {"columns": 2},
               "scale": {"domain": kinds, "range": [figures.colour(i) for i in range(len(kinds))]}}  # fmt: skip
    source = {"data": {"name": "ranks"}}
    tips = [{"field": "setting"}, {"field": "definition"}, {"field": "shown", "title": "rank (95%)"}]
    drawn = [
        {**source, "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.6},
         "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": colours}},
        {**source, "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
         "encoding": {"y": y, "x": x, "color": colours, "tooltip": tips}},
    ]  # fmt: skip
    text = (
        "Four definitions of rank for each gradient of the same rollouts, mean over matrices with 95% bars over "
        "matrices (not over batches). G=… uses the first rollouts of every group. Controls: shuffled advantages, "
        "random_tokens an advantage per token, no_baseline the bare rewards, nll advantage 1, steps a reward per step."
    )
    height = max(200, 22 * len(names) + 20)
    return Figure("geometry_settings", "Rank by setting", figures.spec(drawn, height), {"ranks": rows}, caption=text)


def tokens(shares: Sequence[tuple[str, Floats]], title: str, text: str, order: Sequence[str] = ()) -> Figure | None:
    """Share held by the largest tokens, a line per (name, non-negative numbers of all tokens).

    order: all names of the page, where the lines are runs.
    """
    rows: dict[str, list[Any]] = {name: [] for name in ("kind", "tokens", "held", "shown")}
    for name, sizes in shares:
        if not sizes.sum() > 0:
            continue
        held = np.cumsum(np.sort(sizes)[::-1]) / sizes.sum()
        for k in np.unique(np.geomspace(1, len(held), 120).round().astype(int)):
            cells = (name, float(f"{k / len(held):.4g}"), round(float(held[k - 1]), 5),
                     f"{percent(held[k - 1], 1)} in {percent(k / len(held), 1)} of tokens")  # fmt: skip
            for column, cell in zip(rows.values(), cells, strict=True):
                column.append(cell)
    if not rows["held"]:
        return None
    kinds = list(dict.fromkeys(rows["kind"]))
    legend = {"symbolType": "stroke", "columns": 1} if len(kinds) > 1 else None
    shades = [figures.colour(list(order or kinds).index(kind)) for kind in kinds]
    colours = {"field": "kind", "type": "nominal", "legend": legend, "scale": {"domain": kinds, "range": shades}}
    x = {"field": "tokens", "type": "quantitative", "scale": {"type": "log", "nice": False},
         "axis": {"title": "share of tokens, largest first", "format": "~%", "tickCount": 4}}  # fmt: skip
    y = {"field": "held", "type": "quantitative", "scale": {"domain": [0, 1]}, "axis": {"title": None, "format": "~%"}}
    source = {"data": {"name": "tokens"}}
    shared = {"x": x, "y": y, "color": colours}
    drawn = [
        {**source, "mark": {"type": "line", "strokeWidth": 2}, "encoding": shared},
        figures.hover(source, {**shared, "tooltip": [{"field": "kind", "title": "of"},
                                                     {"field": "shown", "title": "held"}]}),
    ]  # fmt: skip
    return Figure("geometry_tokens", title, figures.spec(drawn), {"tokens": rows}, caption=text)


def baseline(probe: ProbeRecord) -> Figure | None:
    """b* − V of every prompt and pooled, with intervals."""
    each = [(prompt, one.covariance, one.mean, one.optimal) for prompt, one in enumerate(probe.baselines)]
    known = [row for row in each if math.isfinite(row[1].value) and math.isfinite(row[1].se)]
    pooled = probe.baseline.covariance
    if not known or not math.isfinite(pooled.se):
        return None
    known.sort(key=lambda row: row[1].value)
    rows: dict[str, list[Any]] = {
        name: [] for name in ("place", "prompt", "gap", "low", "high", "shown", "mean", "best")
    }
    for place, (prompt, gap, mean, best) in enumerate(known, 1):
        cells = (place, prompt + 1, *figures.short([gap.value, *gap.interval(Z)]), ranged(gap),
                 number(mean.value), number(best.value))  # fmt: skip
        for column, cell in zip(rows.values(), cells, strict=True):
            column.append(cell)
    low, high = pooled.interval(Z)
    band = {"low": figures.short([low]), "gap": figures.short([pooled.value]), "high": figures.short([high])}
    x = {"field": "place", "type": "quantitative", "axis": {"title": "prompts, by gap", "labels": False},
         "scale": {"domain": [0.3, len(known) + 0.7], "nice": False}}  # fmt: skip
    y: dict[str, Any] = {"type": "quantitative", "axis": {"title": None}}
    tips = [{"field": "prompt"}, {"field": "shown", "title": "b* − mean"}, {"field": "mean", "title": "group mean"},
            {"field": "best", "title": "b*"}]  # fmt: skip
    drawn = [
        {"data": {"name": "pooled"}, "mark": {"type": "rect", "color": "var(--run-2)", "opacity": 0.18},
         "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}}},
        {"data": {"name": "pooled"}, "mark": {"type": "rule", "color": "var(--run-2)", "strokeWidth": 2},
         "encoding": {"y": {**y, "field": "gap"}}},
        {"mark": {"type": "rule", "color": "var(--muted)", "strokeDash": [3, 3]},
         "data": {"name": "zero"}, "encoding": {"y": {**y, "field": "gap"}}},
        {"data": {"name": "prompts"}, "mark": {"type": "rule", "color": "var(--run-1)", "opacity": 0.55},
         "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}},
        {"data": {"name": "prompts"}, "mark": {"type": "point", "filled": True, "size": 45, "color": "var(--run-1)",
                                               "opacity": 1},
         "encoding": {"x": x, "y": {**y, "field": "gap"}, "tooltip": tips}},
    ]  # fmt: skip
    text = (
        "b* − V: how far the best constant baseline lies above (below) the group mean, for each prompt whose rewards "
        "differ, and over all (orange, band), with 95% intervals. 0 (dashed): the group mean is the best there is."
    )
    data = {"prompts": rows, "pooled": band, "zero": {"gap": [0]}}
    return Figure("geometry_baseline", "Is the group mean the best baseline?", figures.spec(drawn), data, caption=text)


def _roles(layers: Sequence[LayerRecord]) -> list[str]:
    have = list(dict.fromkeys(layer.role for layer in layers))
    return [visible(role) for role in [*(r for r in ORDER if r in have), *(r for r in have if r not in ORDER)]]


def _block(layer: LayerRecord) -> str:
    return OUTSIDE if layer.depth is None else str(layer.depth)


def _thinned(count: int) -> list[int]:
    """1, 2, … 16 and then ever fewer up to `count`."""
    few = range(1, min(count, 16) + 1)
    return sorted({*few, *map(int, np.geomspace(16, count, 12))}) if count > 16 else list(few)
