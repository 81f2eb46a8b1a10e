"""Dead groups: how many there are, how many are to be expected, and what another group size would change.

Dead groups of a run: how many were seen, how many chance explains, and how many other group sizes would have.

The success rates of a run change, so estimates are taken within windows of steps and averaged over these.

Where rollouts were spent: whose gradient that is, and live groups against the share that was promised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import altair as alt
import numpy as np

from grposcope.core.answer import Answer, Figure, Table
from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.outline import outline
from grposcope.core.run import Groups, Ints, Run, labels
from grposcope.core.text import percent
from grposcope.instruments.group_size import DEAD_GROUPS
from grposcope.lab.allocation import chosen
from grposcope.maths import dead_groups
from grposcope.maths.dead_groups import Counts, log_choose
from grposcope.maths.intervals import Z, interval
from grposcope.render import charts as base
from grposcope.render.curves import curve
from grposcope.render.thinning import columns, rounded, span


def _observed(counts: Counts) -> Estimate:
    """Observed share of dead groups with its binomial standard error (ddof 0); NaN without groups.

    The standard error is defined for a single group too, and √((n−1)/n) times that of `share`.
    """
    total = int(counts.sum())
    if not total:
        return Estimate(math.nan, math.nan, 0, "no groups")
    dead = float(counts[0] + counts[-1]) / total
    return Estimate(dead, math.sqrt(dead * (1 - dead) / total), total)


def _subsets(counts: Counts, size: int) -> Estimate:
    """Expected share of dead groups of `size` ≤ G of the logged rollouts; unbiased, whatever the prompts."""
    group = len(counts) - 1
    k = np.arange(group + 1)
    dead = np.exp(np.logaddexp(log_choose(k, size), log_choose(group - k, size)) - log_choose(group, size))
    total, weights = int(counts.sum()), counts / counts.sum()
    mean = float(weights @ dead)
    variance = float(weights @ (dead - mean) ** 2)
    return Estimate(mean, math.sqrt(variance / max(total - 1, 1)), total)


def _plugged_in(counts: Counts) -> float:
    """The biased average of (K/G)^G + (1 − K/G)^G, too large in expectation; shown for comparison only."""
    rates = np.arange(len(counts)) / (len(counts) - 1)
    group = len(counts) - 1
    return float(counts @ (rates**group + (1 - rates) ** group) / counts.sum())


KINDS = {
    "seen": (_observed, "var(--run-1)", [1, 0]),
    "expected": (dead_groups.predicted, "var(--run-2)", [6, 4]),
    "equal prompts": (dead_groups.alike, "var(--muted)", [2, 4]),
}
"""Shares that are drawn: how they follow from a histogram, their colour and dashes."""


def _section(runs: Sequence[Run]) -> Answer | None:
    """Observed and predicted share of dead groups, successes per group, and other group sizes."""
    said = {label: _dead_groups_of(run) for label, run in zip(labels(runs), runs, strict=True)}
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


def _numbers(windows: _Windows) -> dict[str, Any]:
    total, last = windows.counts.sum(0), windows.counts[-1]
    return {
        "groups": int(total.sum()),
        "group_size": windows.group,
        "observed": asdict(windows.observed()),
        "predicted": asdict(windows.expected()),
        "alike": asdict(windows.alike()),
        "plugged_in_biased": _plugged_in(total),
        "last_window": {
            "steps": [int(windows.first[-1]), int(windows.last[-1])],
            "observed": asdict(_observed(last)),
            "predicted": asdict(dead_groups.predicted(last)),
        },
        "other_sizes_last_window": {str(group): asdict(share) for group, share, _ in windows.other_sizes()},
    }


def _sizes(windowed: Mapping[str, _Windows]) -> Table:
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


def _predicted(windows: _Windows) -> Figure:
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


def _successes(windows: _Windows) -> Figure:
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
    return [sections for sections in (_section(runs), _allocation_section(runs)) if sections is not None]


GROUPS_PER_WINDOW, WINDOWS = 150, 50
"""Groups in a window at least, and windows at most."""

Basis = Literal["as sampled", "subsets of groups, unbiased", "Beta prediction"]

APART = 0.05
"""Shares of dead groups that are this near each other say nothing of the prompts, however sure they are."""


@dataclass(frozen=True)
class _Windows:
    """Histograms of successes K over windows of steps: counts (W, G + 1), first and last step of each (W,)."""

    first: Ints
    last: Ints
    counts: Counts

    @property
    def group(self) -> int:
        """Rollouts of a group, G."""
        return self.counts.shape[1] - 1

    def observed(self) -> Estimate:
        """Share of all groups that were dead."""
        return _observed(self.counts.sum(0))

    def expected(self) -> Estimate:
        """Share that chance explains, success rates spread over prompts as a Beta distribution."""
        return self._averaged([dead_groups.predicted(counts) for counts in self.counts])

    def alike(self) -> Estimate:
        """Share that chance explains if all prompts of a window were equally hard."""
        return self._averaged([dead_groups.alike(counts) for counts in self.counts])

    def other_sizes(self) -> list[tuple[int, Estimate, Basis]]:
        """Expected shares in the last window for a quarter of the group size to four times of it.

        The size, the share, and what the estimate rests on.
        """
        counts, group = self.counts[-1], self.group
        shares: list[tuple[int, Estimate, Basis]] = [
            (size, _subsets(counts, size), "subsets of groups, unbiased")
            for size in (group // 4, group // 2)
            if size >= 2
        ]
        shares.append((group, _subsets(counts, group), "as sampled"))
        shares += [(size, dead_groups.predicted(counts, size), "Beta prediction") for size in (2 * group, 4 * group)]
        return shares

    def _averaged(self, parts: Sequence[Estimate]) -> Estimate:
        """Mean over windows, each weighed by its groups."""
        n = self.counts.sum(1)
        flags = {estimate.flag for estimate in parts if estimate.flag}
        value = sum(w * estimate.value for w, estimate in zip(n, parts, strict=True)) / n.sum()
        error = math.sqrt(sum((w * estimate.se) ** 2 for w, estimate in zip(n, parts, strict=True))) / n.sum()
        return Estimate(float(value), float(error), int(n.sum()), "; ".join(sorted(flags)))


@dataclass(frozen=True)
class _DeadGroups:
    """Dead groups of a run, observed and expected; windows is None where chance cannot be told, for this reason."""

    windows: _Windows | None
    reason: str = ""

    def sentence(self) -> str:
        """The observed share against the expected one, or why the latter cannot be told."""
        if self.windows is None:
            return self.reason
        seen, expected = self.windows.observed(), self.windows.expected()
        text = f"{percent(seen.value)} of {seen.n:,} groups were dead: all their rewards were equal, so they "
        text += "taught nothing. "
        if expected.flag:
            return text + f"Cannot tell how many to expect: {expected.flag}."
        margin = percent(Z * expected.se, 1)
        text += f"Expected, with difficulty spread smoothly over prompts: {percent(expected.value)} ± {margin}"
        if abs(seen.value - expected.value) <= Z * math.hypot(seen.se, expected.se):
            return text + ", which agrees with what was seen."
        if abs(seen.value - expected.value) < APART:
            return text + ", which is close to what was seen."
        if seen.value < expected.value:
            return text + ". Fewer were dead: hardly any prompt is always or never solved."
        return text + ". More were dead: look for prompts that are always or never solved, or answers that repeat."


def _dead_groups_of(run: Run) -> _DeadGroups:
    """Dead groups of a run, from its record of groups."""
    groups = run.groups
    if run.resamples_dead:
        reason = (
            "Dead groups were replaced by further prompts, so the recorded groups are a selection that does "
            "not show what chance alone would give; the curve counts all groups drawn."
        )
    elif str(run.setting("allocate") or "uniform").partition(":")[0] != "uniform":
        reason = (
            "Problems were drawn by their success rates, so the recorded groups are a selection that does "
            "not show what chance alone would give."
        )
    elif not len(groups):
        reason = "No groups are recorded, so the expected share is unknown."
    elif (groups.sizes != groups.sizes[0]).any():
        reason = "Groups differ in size, so the expected share is not computed."
    elif groups.sizes[0] < 2:
        reason = "Groups of one rollout are always dead: there is nothing to compare with."
    elif (windows := _windows(groups)) is not None:
        return _DeadGroups(windows)
    else:
        reason = "Rewards take more than two values, so the binomial share of dead groups does not apply."
    return _DeadGroups(None, reason)


def _counted_successes(groups: Groups) -> Ints | None:
    """Successes of every group (N,), for groups of one size; None unless rewards take two values at most.

    The larger of the two values is a success, and 1 where there is one value only.
    """
    low, high = groups.rewards.min(), groups.rewards.max()
    if not np.isfinite([low, high]).all() or not ((groups.rewards == low) | (groups.rewards == high)).all():
        return None
    threshold = (low + high) / 2 if low < high else 0.5
    return np.asarray((groups.rewards > threshold).reshape(len(groups), -1).sum(1))


def _windows(groups: Groups) -> _Windows | None:
    """Histograms over windows of steps with about equal numbers of groups; None where `successes` is."""
    solved = _counted_successes(groups)
    if solved is None:
        return None
    steps, starts = np.unique(groups.step, return_index=True)
    count = int(np.clip(len(groups) // GROUPS_PER_WINDOW, 1, min(WINDOWS, len(steps))))
    parts = np.array_split(np.arange(len(steps)), count)
    ends, size = np.append(starts, len(groups)), int(groups.sizes[0])
    counts = [np.bincount(solved[ends[p[0]] : ends[p[-1] + 1]], minlength=size + 1) for p in parts]
    first, last = (np.array([steps[p[i]] for p in parts]) for i in (0, -1))
    return _Windows(first, last, np.array(counts))


METRICS = ("allocation/live", "allocation/live_promised", "allocation/effective_prompts")


def _allocation_section(runs: Sequence[Run]) -> Answer | None:
    """Live share and what was promised, and effective prompts; None where no run says any of it."""
    figures = [figure for name in METRICS if (figure := curve(name, runs)) is not None]
    if not figures:
        return None
    named = dict(zip(labels(runs), runs, strict=True))
    first, *others = [_said(label if len(runs) > 1 else "", run) for label, run in named.items()]
    numbers = {
        label: {name: outline(run.table[name]) for name in METRICS if name in run.table} for label, run in named.items()
    }
    return Answer(
        "allocation", "Where were rollouts spent?", "told", first, text=others, figures=figures, document=numbers
    )


def _said(label: str, run: Run) -> str:
    """What the allocator of a run does to the objective, and how its promise was kept."""
    asked = str(run.setting("allocate") or "uniform")
    text = f"{label}: " if label else ""
    try:
        text += f"Allocated by {asked}: {chosen(asked).allocator.objective}."
    except UserError:  # of an earlier version
        text += f"Allocated by {asked}."
    live, promised = (run.table.get(f"allocation/{name}") for name in ("live", "live_promised"))
    if live is not None and promised is not None:
        both = np.isfinite(live) & np.isfinite(promised)
        if both.sum() > 1:
            gap, seen, said = (live - promised)[both], float(live[both].mean()), float(promised[both].mean())
            error = 1.96 * float(gap.std(ddof=1)) / np.sqrt(len(gap))
            text += (
                f" Of the groups drawn, {percent(seen)} were live; the forecast was {percent(said)} (difference "
                f"{percent(float(gap.mean()), 1)} ± {percent(error, 1)})."
            )
    return text
