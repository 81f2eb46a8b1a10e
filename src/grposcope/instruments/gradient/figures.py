"""Charts of one probe: spectra, ranks by layer and by weighting, how few tokens carry the credit, the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt
import numpy as np

from grposcope.core.answer import Figure
from grposcope.core.estimate import Estimate
from grposcope.core.run import Floats
from grposcope.core.text import number, percent, visible
from grposcope.instruments.gradient.findings import ranged
from grposcope.instruments.gradient.probe_record import LayerRecord, ProbeRecord
from grposcope.maths.intervals import Z
from grposcope.render import charts as base
from grposcope.render.thinning import columns, rounded

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
"""Ranks that are drawn by weighting, and their short names."""

OUTSIDE = "none"


def layers(probe: ProbeRecord) -> list[LayerRecord]:
    """The matrices with a spectrum of the probe's own gradient, first blocks first."""
    measured = [layer for layer in probe.layers if probe.recipe in layer.spectra]
    return sorted(measured, key=lambda layer: math.inf if layer.depth is None else layer.depth)


def spectra(probe: ProbeRecord) -> Figure | None:
    """Singular values of every matrix's gradient over the largest one."""
    measured = layers(probe)
    blocks = sorted({layer.depth for layer in measured if layer.depth is not None})
    every = max(1, math.ceil(len(measured) / LINES))
    shown = {*blocks[::every], *blocks[-1:]}
    rows = []
    for layer in measured:
        spectrum = layer.spectra[probe.recipe]
        if (layer.depth is None or layer.depth in shown) and spectrum.values and spectrum.values[0] > 0:
            labels = (visible(layer.name), visible(layer.role), _block(layer), number(spectrum.ranks["stable"]))
            for k in _thinned(len(spectrum.values)):
                share = spectrum.values[k - 1] / spectrum.values[0]
                if share >= LEAST:
                    rows.append((*labels, k, *rounded([share], 4)))
    if not rows:
        return None
    data = {"values": columns(("layer", "projection", "block", "rank", "k", "share"), rows)}
    x = alt.X("k:Q").axis(title="k", values=[1, 2, 4, 8, 16, 32, 64], format="d").scale(type="log", base=2, nice=False)
    y = alt.Y("share:Q").axis(values=[0.001, 0.01, 0.1, 1], format="~g").scale(type="log", domain=[LEAST, 1])
    colours = base.colours("projection", base.palette(_roles(measured)), alt.Legend(symbolType="stroke", columns=4))
    values = base.dataset("values").encode(x, y, colours)
    tips = base.tooltips(layer="layer", k="k", share="σ_k / σ₁", rank="stable rank")
    drawn = [
        values.mark_line(strokeWidth=1.3, opacity=0.65).encode(alt.Detail("layer:N")),
        values.mark_point(filled=True, size=90, opacity=0).encode(tooltip=tips),
    ]
    text = (
        "Singular values of the gradient of each weight matrix, relative to the largest; one line per "
        f"matrix. A steep line means a gradient with few directions. Values below {LEAST:g} are not drawn"
    )
    if probe.tier != "exact":
        text += "; only the leading values are computed (fast tier), but ranks include the rest of the energy"
    text += f"; {len(shown)} of {len(blocks)} blocks are drawn." if len(shown) < len(blocks) else "."
    return base.figure("geometry_spectra", "Singular values by layer", drawn, data, unit="σ_k / σ₁", caption=text,
                       height=260)  # fmt: skip


def ranks(probe: ProbeRecord) -> Figure | None:
    """Stable rank by block and projection."""
    measured = layers(probe)
    rows = []
    for layer in measured:
        by_name = layer.spectra[probe.recipe].ranks
        stable = by_name["stable"]
        if math.isfinite(stable):
            others = ", ".join(f"{name} {number(by_name[key])}" for key, name in list(DEFINITIONS.items())[1:])
            labels = (visible(layer.name), visible(layer.role), _block(layer), f"{stable:.1f}", others)
            rows.append((*labels, float(f"{stable:.4g}")))
    if not rows:
        return None
    data = columns(("layer", "projection", "block", "shown", "others", "rank"), rows)
    blocks = list(dict.fromkeys(data["block"]))
    least, largest = min(data["rank"]), max(data["rank"])
    x = alt.X("block:O", sort=blocks).axis(title="block", grid=False, labelAngle=0, labelFlush=False)
    y = alt.Y("projection:N", sort=_roles(measured)).axis(grid=False)
    darkness = alt.Opacity("rank:Q", legend=None, scale=alt.Scale(domain=[1, largest], range=[0.06, 0.75], clamp=True))
    tips = base.tooltips(layer="layer", rank="stable rank", others="other ranks")
    cells = base.dataset("cells").encode(x, y)
    drawn = [cells.mark_rect(color="var(--run-1)").encode(darkness, tooltip=tips)]
    if len(blocks) <= 12:
        drawn.append(cells.mark_text(fontSize=11, color="var(--ink)").encode(alt.Text("shown:N")))
    text = (
        f"Stable rank Σσ²/σ₁² of each matrix's gradient, from {number(least)} to {number(largest)}; darker is higher. "
        "Point at a cell for other definitions."
    )
    height = max(200, 26 * len(set(data["projection"])))
    return base.figure("geometry_ranks", "Rank by depth and projection", drawn, {"cells": data}, caption=text,
                       height=height)  # fmt: skip


def compared_ranks(probes: Sequence[tuple[str, ProbeRecord]], order: Sequence[str]) -> Figure | None:
    """Mean stable rank over the matrices of each block, a line per probe; `order`: all names of the page."""
    rows = []
    for label, probe in probes:
        by_block: dict[int, list[float]] = {}
        for layer in layers(probe):
            if layer.depth is not None:
                by_block.setdefault(layer.depth, []).append(layer.spectra[probe.recipe].ranks["stable"])
        for block, values in by_block.items():
            mean = Estimate.mean([v for v in values if math.isfinite(v)])
            if math.isfinite(mean.value):
                rows.append((label, block, mean.value, ranged(mean)))
    if not rows:
        return None
    x = alt.X("block:Q").axis(title="block", format="d", tickMinStep=1)
    y = alt.Y("rank:Q").scale(zero=False)
    shades = base.palette([label for label, _ in probes], order)
    points = base.dataset("blocks").encode(x, y, base.colours("run", shades))
    tips = base.tooltips(run="probe", block="block", shown="stable rank (95%)")
    drawn = [base.dotted_line(points), base.on_hover(points.encode(tooltip=tips))]
    data = {"blocks": columns(("run", "block", "rank", "shown"), rows)}
    text = "Mean stable rank of the gradients of each block's weight matrices, one line per probe."
    return base.figure("geometry_blocks", "Rank by depth", drawn, data, caption=text)


def weightings(probe: ProbeRecord) -> Figure | None:
    """Ranks of each weighting: recipes, group sizes, controls. None for the recipe alone."""
    names = list(probe.weightings)
    if len(names) < 2:
        return None
    rows = []
    for name in names:
        for definition, short in DEFINITIONS.items():
            rank = probe.rank(definition, name)
            if math.isfinite(rank.value):
                margin = Z * rank.se if math.isfinite(rank.se) else 0.0
                ends = rounded([rank.value, rank.value - margin, rank.value + margin])
                rows.append((visible(name), short, *ends, ranged(rank)))
    if not rows:
        return None
    data = {"ranks": columns(("setting", "definition", "value", "low", "high", "shown"), rows)}
    x = alt.X("value:Q").axis(title="rank", format="~g", grid=True, tickCount=5).scale(type="log", base=2, nice=False)
    y = alt.Y("setting:N", sort=[visible(name) for name in names]).axis(grid=True, labelLimit=110)
    colours = base.colours("definition", base.palette(list(DEFINITIONS.values())), alt.Legend(columns=2))
    points = base.dataset("ranks").encode(x, y, colours)
    tips = base.tooltips(setting="setting", definition="definition", shown="rank (95%)")
    drawn = [
        points.mark_rule(strokeWidth=1.5, opacity=0.6).encode(alt.X("low:Q"), alt.X2("high")),
        points.mark_point(filled=True, size=55, opacity=1).encode(tooltip=tips),
    ]
    text = (
        "Four definitions of rank for each gradient of the same rollouts, mean over matrices with 95% bars over "
        "matrices (not over batches). G=… uses the first rollouts of every group. Controls: shuffled permutes "
        "advantages in groups; random_tokens gives every token a random one; no_baseline uses the bare rewards, nll "
        "advantage 1, steps a reward per step."
    )
    height = max(200, 22 * len(names) + 20)
    return base.figure("geometry_settings", "Rank by setting", drawn, data, caption=text, height=height)


def tokens(sizes: Sequence[tuple[str, Floats]], title: str, text: str, order: Sequence[str] = ()) -> Figure | None:
    """Share held by the largest tokens, a line per (name, non-negative numbers of all tokens).

    order: all names of the page, where the lines are runs.
    """
    rows = []
    for name, values in sizes:
        if not values.sum() > 0:
            continue
        shares = np.cumsum(np.sort(values)[::-1]) / values.sum()
        for k in np.unique(np.geomspace(1, len(shares), 120).round().astype(int)):
            shown = f"{percent(shares[k - 1], 1)} in {percent(k / len(shares), 1)} of tokens"
            rows.append((name, *rounded([k / len(shares)], 4), round(float(shares[k - 1]), 5), shown))
    if not rows:
        return None
    data = {"tokens": columns(("kind", "tokens", "held", "shown"), rows)}
    kinds = list(dict.fromkeys(data["tokens"]["kind"]))
    legend = alt.Legend(symbolType="stroke", columns=1) if len(kinds) > 1 else None
    x = (
        alt.X("tokens:Q")
        .axis(title="share of tokens, largest first", format="~%", tickCount=4)
        .scale(type="log", nice=False)
    )
    points = base.dataset("tokens").encode(
        x, base.share("held"), base.colours("kind", base.palette(kinds, order), legend)
    )
    tips = base.tooltips(kind="of", shown="held")
    drawn = [points.mark_line(strokeWidth=2), base.on_hover(points.encode(tooltip=tips))]
    return base.figure("geometry_tokens", title, drawn, data, caption=text)


def baseline(probe: ProbeRecord) -> Figure | None:
    """b* − V of every prompt and pooled, with intervals."""
    gaps = [
        (prompt, baseline)
        for prompt, baseline in enumerate(probe.baselines, 1)
        if math.isfinite(baseline.covariance.value) and math.isfinite(baseline.covariance.se)
    ]
    pooled = probe.baseline.covariance
    if not gaps or not math.isfinite(pooled.se):
        return None
    gaps.sort(key=lambda pair: pair[1].covariance.value)
    rows = [
        (group, prompt, *rounded([baseline.covariance.value, *baseline.covariance.interval(Z)]),
         ranged(baseline.covariance),
         number(baseline.mean.value), number(baseline.optimal.value))
        for group, (prompt, baseline) in enumerate(gaps, 1)
    ]  # fmt: skip
    data = {
        "prompts": columns(("place", "prompt", "gap", "low", "high", "shown", "mean", "best"), rows),
        "pooled": columns(("gap", "low", "high"), [rounded([pooled.value, *pooled.interval(Z)])]),
        "zero": {"gap": [0]},
    }
    x = alt.X("place:Q").axis(title="prompts, by gap", labels=False).scale(domain=[0.3, len(gaps) + 0.7], nice=False)
    y = alt.Y("gap:Q")
    tips = base.tooltips(prompt="prompt", shown="b* − mean", mean="group mean", best="b*")
    band, zero = base.dataset("pooled").encode(y), base.dataset("zero").encode(y)
    prompts = base.dataset("prompts").encode(x, y)
    drawn = [
        band.mark_rect(color="var(--run-2)", opacity=0.18).encode(alt.Y("low:Q"), alt.Y2("high")),
        band.mark_rule(color="var(--run-2)", strokeWidth=2),
        zero.mark_rule(color="var(--muted)", strokeDash=[3, 3]),
        prompts.mark_rule(color="var(--run-1)", opacity=0.55).encode(alt.Y("low:Q"), alt.Y2("high")),
        prompts.mark_point(filled=True, size=45, color="var(--run-1)", opacity=1).encode(tooltip=tips),
    ]
    text = (
        "b* − V: how far the best constant baseline lies above (below) the group mean, for each prompt "
        "whose rewards differ, and over all prompts (orange, band), with 95% intervals. At 0 (dashed) "
        "the group mean is the best constant baseline."
    )
    return base.figure("geometry_baseline", "Is the group mean the best baseline?", drawn, data, caption=text)


def _roles(layers: Sequence[LayerRecord]) -> list[str]:
    """Projections in the order of the data flow, then the others."""
    have = list(dict.fromkeys(layer.role for layer in layers))
    return [visible(role) for role in [*(r for r in ORDER if r in have), *(r for r in have if r not in ORDER)]]


def _block(layer: LayerRecord) -> str:
    return OUTSIDE if layer.depth is None else str(layer.depth)


def _thinned(count: int) -> list[int]:
    """1, 2, … 16 and then ever fewer up to `count`."""
    few = range(1, min(count, 16) + 1)
    return sorted({*few, *map(int, np.geomspace(16, count, 12))}) if count > 16 else list(few)
