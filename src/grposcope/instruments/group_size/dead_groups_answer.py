"""Dead groups: how many there are, how many are to be expected, and what another group size would change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import altair as alt
import numpy as np

from grposcope.core.answer import Answer, Figure, Table
from grposcope.core.outline import outline
from grposcope.core.run import Run, labels
from grposcope.core.text import percent
from grposcope.instruments.group_size import DEAD_GROUPS, allocation
from grposcope.instruments.group_size import dead_groups as facts
from grposcope.instruments.group_size.dead_groups import Windows
from grposcope.maths import dead_groups
from grposcope.maths.intervals import Z, interval
from grposcope.render import charts as base
from grposcope.render.curves import curve
from grposcope.render.thinning import columns, rounded, span

KINDS = {
    "seen": (dead_groups.observed, "var(--run-1)", [1, 0]),
    "expected": (dead_groups.predicted, "var(--run-2)", [6, 4]),
    "equal prompts": (dead_groups.alike, "var(--muted)", [2, 4]),
}
"""Shares that are drawn: how they follow from a histogram, their colour and dashes."""


def _section(runs: Sequence[Run]) -> Answer | None:
    """Observed and predicted share of dead groups, successes per group, and other group sizes."""
    said = {label: facts.of_run(run) for label, run in zip(labels(runs), runs, strict=True)}
    windowed = {label: dead.windows for label, dead in said.items() if dead.windows is not None}
    figures: list[Figure] = []
    if len(runs) == 1 and windowed:
        (windows,) = windowed.values()
        figures = [_predicted(windows), _successes(windows)]
    elif (recorded := curve("dead_fraction", runs)) is not None:
        figures = [recorded]
    if not figures:
        return None
    numbers: dict[str, Any] = {}
    for label, run in zip(said, runs, strict=True):
        shares = run.table.get("dead_fraction")
        numbers[label] = {} if shares is None else {"dead_fraction": outline(shares)}
        if label in windowed:
            numbers[label] |= _numbers(windowed[label])
    first, *others = [
        f"{label}: {dead.sentence()}" if len(runs) > 1 else dead.sentence() for label, dead in said.items()
    ]
    return Answer(
        "dead_groups",
        DEAD_GROUPS.question,
        "told" if windowed else "cannot tell",
        first,
        text=others,
        figures=figures,
        tables=[_sizes(windowed)] if windowed else [],
        document=numbers,
    )


def _numbers(windows: Windows) -> dict[str, Any]:
    total, last = windows.counts.sum(0), windows.counts[-1]
    return {
        "groups": int(total.sum()),
        "group_size": windows.group,
        "observed": asdict(windows.observed()),
        "predicted": asdict(windows.expected()),
        "alike": asdict(windows.alike()),
        "plugged_in_biased": dead_groups.plugged_in(total),
        "last_window": {
            "steps": [int(windows.first[-1]), int(windows.last[-1])],
            "observed": asdict(dead_groups.observed(last)),
            "predicted": asdict(dead_groups.predicted(last)),
        },
        "other_sizes_last_window": {str(group): asdict(share) for group, share, _ in windows.other_sizes()},
    }


def _sizes(windowed: Mapping[str, Windows]) -> Table:
    """Expected shares for other group sizes, a row per run and size."""
    rows = []
    for label, windows in windowed.items():
        for group, share, basis in windows.other_sizes():
            shown = "cannot tell" if share.flag else percent(share.value)
            cells = [str(group), f"{shown} ± {percent(Z * share.se, 1)}", basis]
            rows.append([label, *cells] if len(windowed) > 1 else cells)
    header = ("group size", "dead groups", "how")
    text = "Expected share at the end of the run, in the last window of steps; ± is half a 95% interval."
    return Table("With another group size", ("run", *header) if len(windowed) > 1 else header, rows, text)


def _predicted(windows: Windows) -> Figure:
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
    tips = base.tooltips(kind="share", steps="steps", shown="value (95%)", n="groups")
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
        "Expected: p^G + (1−p)^G averaged over prompts, with p from a Beta distribution whose moments are "
        "estimated without bias from pairs of rollouts. Equal prompts: the same if every prompt had the average p."
    )
    return base.figure("dead_groups", "Dead groups, seen and expected", layers, data, caption=text)


def _successes(windows: Windows) -> Figure:
    """Map of the share of groups with k successes, over training."""
    group = windows.group
    shares = windows.counts / np.maximum(windows.counts.sum(1, keepdims=True), 1)
    rows = [
        (int(first) - 0.5, int(last) + 0.5, k - 0.5, k + 0.5, f"{k} of {group}", round(float(share[k]), 4),
         span(first, last))
        for first, last, share in zip(windows.first, windows.last, shares, strict=True)
        for k in range(group + 1)
    ]  # fmt: skip
    data = {"cells": columns(("from", "to", "low", "high", "right", "share", "steps"), rows)}
    ticks = list(range(0, group + 1, max(1, group // 4)))
    y = alt.Y("low:Q").axis(values=ticks, grid=False).scale(domain=[-0.5, group + 0.5], nice=False)
    darkness = alt.Opacity("share:Q", legend=None, scale=alt.Scale(domain=[0, float(shares.max())], range=[0.03, 1]))
    tips = [
        alt.Tooltip("right:N"),
        alt.Tooltip("steps:N"),
        alt.Tooltip("share:Q", format=".1%", title="share of groups"),
    ]

    cells = base.dataset("cells").mark_rect(color="var(--run-1)")
    cells = cells.encode(base.steps("from"), y, darkness, alt.X2("to"), alt.Y2("high"), tooltip=tips)
    text = (
        f"The stronger the colour, the more groups with that many of {group} rollouts right. The top and bottom rows "
        "are the dead groups; "
        "what lies between them is what the update can learn from."
    )
    return base.figure("successes", "Right answers per group", [cells], data, unit=f"of {group}", caption=text)


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """Dead groups, and what an allocator did about them."""
    return [sections for sections in (_section(runs), allocation.section(runs)) if sections is not None]
