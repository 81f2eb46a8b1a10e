"""Charts of dead groups over training: seen and expected, and how many rollouts of a group succeed."""

from __future__ import annotations

import altair as alt
import numpy as np

from grposcope.facts.dead_groups import Windows
from grposcope.facts.intervals import interval
from grposcope.formatting import percent
from grposcope.report.charts import base
from grposcope.report.charts.thinning import columns, rounded, span
from grposcope.report.elements import Figure
from grposcope.ustat import dead_groups

KINDS = {
    "seen": (dead_groups.observed, "var(--run-1)", [1, 0]),
    "expected": (dead_groups.predicted, "var(--run-2)", [6, 4]),
    "equal prompts": (dead_groups.alike, "var(--muted)", [2, 4]),
}
"""Shares that are drawn: how they follow from a histogram, their colour and dashes."""


def predicted(windows: Windows) -> Figure:
    """Observed share of dead groups, the share predicted for prompts of unequal and of equal difficulty, and bands."""
    rows = []
    for kind, (function, _, _) in KINDS.items():
        for first, last, counts in zip(windows.first, windows.last, windows.counts, strict=True):
            share = function(counts)
            low, high = interval(share) if kind == "seen" else share.interval()
            low, high = max(low, 0), min(high, 1)
            shown = f"{percent(share.value, 1)} ({percent(low)} to {percent(high)})"
            numbers = rounded([(first + last) / 2, share.value, low, high])
            rows.append((*numbers, kind, span(first, last), shown, share.n))
    data = {"windows": columns(("step", "value", "low", "high", "kind", "steps", "shown", "n"), rows)}
    legend = alt.Legend(symbolType="stroke", symbolStrokeWidth=2, symbolSize=180, symbolOpacity=1, columns=3)
    colours = base.colours("kind", {kind: shade for kind, (_, shade, _) in KINDS.items()}, legend)
    dashes = alt.Scale(domain=list(KINDS), range=[dash for _, _, dash in KINDS.values()])
    tips = [
        alt.Tooltip("kind:N", title="share"),
        alt.Tooltip("steps:N"),
        alt.Tooltip("shown:N", title="value (95%)"),
        alt.Tooltip("n:N", title="groups"),
    ]
    shares = base.dataset("windows").encode(base.steps(), base.share("value"), colours)
    banded = shares.transform_filter(alt.datum.kind != "equal prompts")
    layers = [
        banded.mark_area(opacity=0.14).encode(base.share("low"), alt.Y2("high")),
        shares.mark_line(strokeWidth=2).encode(strokeDash=alt.StrokeDash("kind:N", legend=legend, scale=dashes)),
        base.on_hover(shares.encode(tooltip=tips)),
    ]
    per = int(np.median(windows.counts.sum(1)))
    group = windows.group
    text = (
        f"Share of groups whose {group} rewards were all equal, over windows of about {per} groups, with 95% bands. "
        "Expected: p^G + (1−p)^G averaged over prompts, p spread as a Beta distribution with the moments that "
        "pairs of rollouts give without bias. Equal prompts: the same if all had the average p."
    )
    return base.figure("dead_groups", "Dead groups, seen and expected", layers, data, caption=text)


def successes(windows: Windows) -> Figure:
    """How many rollouts of a group succeed, as a map over training."""
    group = windows.group
    shares = windows.counts / windows.counts.sum(1, keepdims=True)
    rows = [
        (int(first) - 0.5, int(last) + 0.5, k - 0.5, k + 0.5, f"{k} of {group}", round(float(share[k]), 4),
         span(first, last))
        for first, last, share in zip(windows.first, windows.last, shares, strict=True)
        for k in range(group + 1)
    ]  # fmt: skip
    data = {"cells": columns(("from", "to", "low", "high", "right", "share", "steps"), rows)}
    ticks = list(range(0, group + 1, max(1, group // 4)))
    y = alt.Y(
        "low:Q",
        axis=alt.Axis(values=ticks, grid=False),
        scale=alt.Scale(domain=[-0.5, group + 0.5], nice=False),
    )
    darkness = alt.Opacity("share:Q", legend=None, scale=alt.Scale(domain=[0, float(shares.max())], range=[0.03, 1]))
    tips = [
        alt.Tooltip("right:N"),
        alt.Tooltip("steps:N"),
        alt.Tooltip("share:Q", format=".1%", title="share of groups"),
    ]
    cells = base.dataset("cells").mark_rect(color="var(--run-1)")
    cells = cells.encode(base.steps("from"), y, darkness, alt.X2("to"), alt.Y2("high"), tooltip=tips)
    text = (
        f"Darker: more groups with that many of {group} rollouts right. The top and bottom rows are the dead groups; "
        "what lies between them is what the update can learn from."
    )
    return base.figure("successes", "Right answers per group", [cells], data, unit=f"of {group}", caption=text)
