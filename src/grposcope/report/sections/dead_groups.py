"""Dead groups: how many there are, how many are to be expected, and what another group size would change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from grposcope.diagnosis.group_signal import successes
from grposcope.formatting import percent
from grposcope.records import Estimate
from grposcope.report.charts import base
from grposcope.report.charts import dead_groups as charts
from grposcope.report.charts.dead_groups import Windows
from grposcope.report.elements import Figure, PageTable, Section
from grposcope.runs.run import Groups, Run, labels
from grposcope.ustat import dead_groups
from grposcope.ustat.dead_groups import Counts

GROUPS_PER_WINDOW, WINDOWS = 150, 50


def section(runs: Sequence[Run]) -> Section | None:
    """Observed and predicted share of dead groups, successes per group, and other group sizes."""
    found = [None if _replaced(run) else windows(run.groups) for run in runs]
    drawn: list[Figure] = []
    numbers: dict[str, Any] = {}
    for label, run, found_in in zip(labels(runs), runs, found, strict=True):
        recorded = {"dead_fraction": base.outline(run.table["dead_fraction"])} if "dead_fraction" in run.table else {}
        numbers[label] = recorded if found_in is None else recorded | _numbers(found_in)
    if len(runs) == 1 and found[0] is not None:
        drawn = [charts.predicted(found[0]), charts.successes(found[0])]
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


def _sizes(names: Sequence[str], found: Sequence[Windows | None]) -> PageTable | None:
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
    return PageTable("With another group size", header, rows, text)
