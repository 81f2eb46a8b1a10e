"""Dead groups: how many there are, how many are to be expected, and what another group size would change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from grposcope.diagnosis.group_signal import successes
from grposcope.facts.learning import interval
from grposcope.formatting import percent
from grposcope.records import Estimate
from grposcope.report.charts import base
from grposcope.report.elements import Figure, Section, Table
from grposcope.runs.run import Groups, Ints, Run, labels
from grposcope.ustat import dead_groups
from grposcope.ustat.dead_groups import Counts

GROUPS_PER_WINDOW, WINDOWS = 150, 50


@dataclass(frozen=True)
class Windows:
    """Histograms of successes K over windows of steps: counts (W, G + 1), first and last step of each (W,)."""

    first: Ints
    last: Ints
    counts: Counts


def section(runs: Sequence[Run]) -> Section | None:
    """Observed and predicted share of dead groups, successes per group, and other group sizes."""
    found = [None if _replaced(run) else windows(run.groups) for run in runs]
    drawn: list[Figure] = []
    numbers: dict[str, Any] = {}
    for label, run, found_in in zip(labels(runs), runs, found, strict=True):
        recorded = {"dead_fraction": base.outline(run.table["dead_fraction"])} if "dead_fraction" in run.table else {}
        numbers[label] = recorded if found_in is None else recorded | _numbers(found_in)
    if len(runs) == 1 and found[0] is not None:
        drawn = [_predicted(found[0]), _successes(found[0])]
    elif (plain := base.curve("dead_fraction", runs)) is not None:
        drawn = [plain]
    if not drawn:
        return None
    tables = [table for table in (_sizes(labels(runs), found),) if table is not None]
    return Section("dead_groups", "Dead groups", text=_text(runs, found), figures=drawn, tables=tables, numbers=numbers)


def windows(groups: Groups) -> Windows | None:
    """Histograms over windows of steps of about equal numbers of groups; None where `successes` is."""
    solved = successes(groups)
    if solved is None:
        return None
    k, size = solved
    steps, starts = np.unique(groups.step, return_index=True)
    count = int(np.clip(len(groups) // GROUPS_PER_WINDOW, 1, min(WINDOWS, len(steps))))
    parts = np.array_split(np.arange(len(steps)), count)
    ends = np.append(starts, len(groups))
    counts = [np.bincount(k[ends[p[0]] : ends[p[-1] + 1]], minlength=size + 1) for p in parts]
    first, last = (np.array([steps[p[i]] for p in parts]) for i in (0, -1))
    return Windows(first, last, np.array(counts))


def _numbers(found: Windows) -> dict[str, Any]:
    total = found.counts.sum(0)
    group = len(total) - 1
    return {
        "groups": int(total.sum()),
        "group_size": group,
        "observed": asdict(dead_groups.observed(total)),
        "predicted": asdict(_whole(found)),
        "alike": asdict(_averaged([dead_groups.alike(c) for c in found.counts], found)),
        "plugged_in_biased": dead_groups.plugged_in(total),
        "last_window": {
            "steps": [int(found.first[-1]), int(found.last[-1])],
            "observed": asdict(dead_groups.observed(found.counts[-1])),
            "predicted": asdict(dead_groups.predicted(found.counts[-1])),
        },
        "other_sizes_last_window": {str(g): asdict(value) for g, value in _other_sizes(found.counts[-1])},
    }


def _whole(found: Windows) -> Estimate:
    return _averaged([dead_groups.predicted(c) for c in found.counts], found)


def _averaged(parts: Sequence[Estimate], found: Windows) -> Estimate:
    """Mean over windows, each weighed by its groups."""
    n = found.counts.sum(1)
    flags = {part.flag for part in parts if part.flag}
    value = sum(w * part.value for w, part in zip(n, parts, strict=True)) / n.sum()
    error = math.sqrt(sum((w * part.se) ** 2 for w, part in zip(n, parts, strict=True))) / n.sum()
    return Estimate(float(value), float(error), int(n.sum()), "; ".join(sorted(flags)))


def _other_sizes(counts: Counts) -> list[tuple[int, Estimate]]:
    """Expected share for other group sizes: unbiased below G, by the Beta prediction above."""
    group = len(counts) - 1
    smaller = [g for g in (group // 4, group // 2) if g >= 2]
    return [(g, dead_groups.subsets(counts, g)) for g in [*smaller, group]] + [
        (g, dead_groups.predicted(counts, g)) for g in (2 * group, 4 * group)
    ]


def _text(runs: Sequence[Run], found: Sequence[Windows | None]) -> list[str]:
    said = []
    for label, run, windowed in zip(labels(runs), runs, found, strict=True):
        who = f"{label}: " if len(runs) > 1 else ""
        if windowed is None:
            said.append(f"{who}{_why_not(run)}")
            continue
        seen, expected = dead_groups.observed(windowed.counts.sum(0)), _whole(windowed)
        text = f"{who}{percent(seen.value)} of {seen.n:,} groups were dead: all their rewards were equal, so they "
        text += "taught nothing. "
        if expected.flag:
            said.append(text + f"How many to expect cannot be told: {expected.flag}.")
            continue
        margin = 1.96 * math.hypot(seen.se, expected.se)
        text += f"Expected, with difficulty spread smoothly over prompts: {percent(expected.value)} ± "
        text += percent(1.96 * expected.se, 1)
        if abs(seen.value - expected.value) <= margin:
            text += ", which agrees with what was seen."
        else:
            less = "fewer" if seen.value < expected.value else "more"
            text += f". There were {less}: the spread is not smooth, as when some prompts can never be solved."
        said.append(text)
    return said


def _replaced(run: Run) -> bool:
    """Whether dead groups were replaced by further prompts, so that those on record are a selection."""
    return bool(run.config.get("objective", {}).get("resample_dead"))


def _why_not(run: Run) -> str:
    groups = run.groups
    if _replaced(run):
        return (
            "Dead groups were replaced by further prompts, so the groups on record are a selection, and what chance "
            "alone makes cannot be told from them; the curve counts all groups drawn."
        )
    if not len(groups):
        return "No groups are recorded, so the share to be expected cannot be told."
    if (groups.sizes != groups.sizes[0]).any():
        return "Groups differ in size, so the share to be expected is not computed."
    if groups.sizes[0] < 2:
        return "Groups of one rollout are always dead: there is nothing to compare."
    return "Rewards take more than two values, so the binomial share of dead groups does not apply."


def _predicted(found: Windows) -> Figure:
    """Observed share with intervals, the prediction, and the floor for prompts that are all alike."""
    middle = (found.first + found.last) / 2
    steps = [f"{a:,}-{b:,}" if a < b else f"{a:,}" for a, b in zip(found.first, found.last, strict=True)]
    kinds = {"seen": dead_groups.observed, "expected": dead_groups.predicted, "equal prompts": dead_groups.alike}
    data: dict[str, list[Any]] = {name: [] for name in ("step", "steps", "kind", "value", "low", "high", "shown", "n")}
    for kind, function in kinds.items():
        for at, span, counts in zip(middle, steps, found.counts, strict=True):
            estimate = function(counts)
            low, high = interval(estimate) if kind == "seen" else estimate.interval()
            row = (float(at), span, kind, estimate.value, max(low, 0), min(high, 1))
            shown = f"{percent(row[3], 1)} ({percent(row[4])} to {percent(row[5])})"
            for name, value in zip(data, (*row, shown, estimate.n), strict=True):
                data[name].append(base.short([value])[0] if isinstance(value, float) else value)
    names = list(kinds)
    legend = {"symbolType": "stroke", "symbolStrokeWidth": 2, "symbolSize": 180, "symbolOpacity": 1, "columns": 3}
    colours = {"field": "kind", "type": "nominal", "sort": names, "legend": legend,
               "scale": {"domain": names, "range": ["var(--run-1)", "var(--run-2)", "var(--muted)"]}}  # fmt: skip
    dashes = {"field": "kind", "type": "nominal", "sort": names, "legend": legend,
              "scale": {"domain": names, "range": [[1, 0], [6, 4], [2, 4]]}}  # fmt: skip
    axis: dict[str, Any] = {
        "type": "quantitative",
        "scale": {"domain": [0, 1]},
        "axis": {"format": "~%", "title": None},
    }
    x = base.step_axis()
    tips = [{"field": "kind", "title": "share"}, {"field": "steps"}, {"field": "shown", "title": "value (95%)"},
            {"field": "n", "title": "groups"}]  # fmt: skip
    source = {"data": {"name": "windows"}}
    band = [{"filter": "datum.kind != 'equal prompts'"}]
    shared = {"x": x, "y": {**axis, "field": "value"}, "color": colours}
    layers: list[dict[str, Any]] = [
        {**source, "transform": band, "mark": {"type": "area", "opacity": 0.14},
         "encoding": {"x": x, "y": {**axis, "field": "low"}, "y2": {"field": "high"}, "color": colours}},
        {**source, "mark": {"type": "line", "strokeWidth": 2}, "encoding": {**shared, "strokeDash": dashes}},
        base.hover(source, {**shared, "tooltip": tips}),
    ]  # fmt: skip
    per = int(np.median(found.counts.sum(1)))
    group = found.counts.shape[1] - 1
    text = (
        f"Share of groups whose {group} rewards were all equal, over windows of about {per} groups, with 95% bands. "
        "Expected: p^G + (1−p)^G averaged over prompts, p spread as a Beta distribution with the moments that "
        "pairs of rollouts give without bias. Equal prompts: the same if all had the average p."
    )
    return Figure("dead_groups", "Dead groups, seen and expected", base.spec(layers), {"windows": data}, caption=text)


def _successes(found: Windows) -> Figure:
    """How many rollouts of a group succeed, as a map over training."""
    group = found.counts.shape[1] - 1
    shares = found.counts / found.counts.sum(1, keepdims=True)
    rows: dict[str, list[Any]] = {"from": [], "to": [], "low": [], "high": [], "right": [], "share": [], "steps": []}
    for i, (a, b) in enumerate(zip(found.first, found.last, strict=True)):
        for k in range(group + 1):
            values = (int(a) - 0.5, int(b) + 0.5, k - 0.5, k + 0.5, f"{k} of {group}", round(float(shares[i, k]), 4))
            for name, value in zip(rows, (*values, f"{a:,}-{b:,}" if a < b else f"{a:,}"), strict=True):
                rows[name].append(value)
    x = {**base.step_axis(), "field": "from"}
    ticks = list(range(0, group + 1, max(1, group // 4)))
    y = {"field": "low", "type": "quantitative", "axis": {"values": ticks, "title": None, "grid": False},
         "scale": {"domain": [-0.5, group + 0.5], "nice": False}}  # fmt: skip
    fill = {"field": "share", "type": "quantitative", "legend": None,
            "scale": {"domain": [0, float(shares.max())], "range": [0.03, 1]}}  # fmt: skip
    tips = [{"field": "right"}, {"field": "steps"}, {"field": "share", "type": "quantitative", "format": ".1%",
             "title": "share of groups"}]  # fmt: skip
    layer = {
        "data": {"name": "cells"},
        "mark": {"type": "rect", "color": "var(--run-1)"},
        "encoding": {"x": x, "x2": {"field": "to"}, "y": y, "y2": {"field": "high"}, "opacity": fill, "tooltip": tips},
    }
    text = (
        f"Darker: more groups with that many of {group} rollouts right. The top and bottom rows are the dead groups; "
        "what lies between them is what the update can learn from."
    )
    title = "Right answers per group"
    return Figure("successes", title, base.spec([layer]), {"cells": rows}, f"of {group}", text)


def _sizes(names: Sequence[str], found: Sequence[Windows | None]) -> Table | None:
    have = [(name, w) for name, w in zip(names, found, strict=True) if w is not None]
    if not have:
        return None
    rows = []
    for name, w in have:
        group = w.counts.shape[1] - 1
        for g, value in _other_sizes(w.counts[-1]):
            how = "as sampled" if g == group else "subsets of groups, unbiased" if g < group else "Beta prediction"
            shown = percent(value.value) if value.flag == "" else "cannot tell"
            rows.append(([name] if len(have) > 1 else []) + [f"{g}", f"{shown} ± {percent(1.96 * value.se, 1)}", how])
    header = ("group size", "dead groups", "how") if len(have) == 1 else ("run", "group size", "dead groups", "how")
    text = "Expected share at the end of the run, in the last window of steps; ± is half a 95% interval."
    return Table("With another group size", header, rows, text)
