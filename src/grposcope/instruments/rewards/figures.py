"""Effective shares over the run, beside those that were asked for."""

from __future__ import annotations

import altair as alt

from grposcope.core.answer import Figure
from grposcope.core.text import percent, visible
from grposcope.instruments.rewards.found import RewardsFound
from grposcope.render import charts as base
from grposcope.render.thinning import columns, rounded, span


def over_run(what: RewardsFound) -> Figure:
    """Share of the effective weights of each reward in windows of steps, with 95 % bands, and the share asked for."""
    rows, asked = [], []
    ends = what.windows[0][0], what.windows[-1][1]
    names = [visible(component.name, 40) for component in what.weights.components]
    for j, component in enumerate(what.weights.components):
        asked += [(step, component.intended_share, names[j]) for step in ends]
        for first, last, measured in what.windows:
            share = measured[j]
            low, high = (min(max(end, 0.0), 1.0) for end in share.interval())
            shown = f"{percent(share.value, 1)} ({percent(low)} to {percent(high)})"
            numbers = rounded([(first + last) / 2, share.value, low, high])
            rows.append((*numbers, names[j], span(first, last), shown))
    data = {
        "windows": columns(("step", "value", "low", "high", "reward", "steps", "shown"), rows),
        "asked": columns(("step", "value", "reward"), asked),
    }
    legend = alt.Legend(symbolType="stroke", symbolStrokeWidth=2, symbolSize=180, symbolOpacity=1, columns=3)
    colours = base.colours("reward", base.palette(names), legend)
    shares = base.dataset("windows").encode(base.steps(), base.share("value"), colours)
    tips = base.tooltips(reward="reward", steps="steps", shown="share (95%)")
    layers = [
        shares.mark_area(opacity=0.14).encode(base.share("low"), alt.Y2("high")),
        base.dataset("asked").mark_line(strokeDash=[4, 4], strokeWidth=1).encode(
            base.steps(), base.share("value"), colours),
        shares.mark_line(strokeWidth=2),
        base.on_hover(shares.encode(tooltip=tips)),
    ]  # fmt: skip
    text = (
        "Share of the effective weights λσ/σ_S, mean over the live groups of a window, with 95% bands. Dashed: the "
        "share of |λ| in the settings."
    )
    return base.figure("rewards", "What each reward weighs, over the run", layers, data, caption=text)
