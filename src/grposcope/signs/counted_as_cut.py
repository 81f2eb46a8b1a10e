"""Completions that are counted as cut although they ended: cut ones would all be as long as the longest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.text import number, percent
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import LATE
from grposcope.signs.quantities import SHORT, MetricSeries, Quantities
from grposcope.signs.tests import late_level

LEAST_CUT = 0.2
"""Share of completions counted as cut below which nothing is said."""

SLACK = 0.8
"""Mean length over (share counted as cut × longest), in nearly all rows, that no cut completions can have."""

ROWS = 0.9
"""Share of rows that have to show it."""

VARY = 0.1
"""Spread of the longest completions of the batches, over their median, that one limit on tokens does not make."""

OF_AGENTS = "ends not counted"
"""The fault of rollouts with turns or tools."""

FOLLOWS = ("length", "masked truncation")
"""Faults that are the same count, read as it is named."""


@dataclass(frozen=True)
class _Ended:
    """Late means of rows: the share counted as cut, the mean length and the longest, in tokens; how many rows show it,
    of how many."""

    cut: float
    mean: float
    longest: float
    shown: int
    rows: int


def ended(quantities: Quantities) -> _Ended | None:
    """What shows that completions counted as cut ended before the limit; None where nothing does.

    Those that are cut have the length of the limit, which no other exceeds, so that the mean is at least their share ×
    the longest, in a batch and in a mean of batches under one limit.
    """
    cut, length, longest = (quantities.get(name, SHORT) for name in ("truncated", "length", "length_max"))
    if cut is None or length is None or longest is None or cut.values.max() > 1:
        return None
    steps = np.intersect1d(np.intersect1d(cut.steps, length.steps), longest.steps)
    share, mean, most = (column.values[np.searchsorted(column.steps, steps)] for column in (cut, length, longest))
    asked = share >= LEAST_CUT
    if asked.sum() < max(SHORT, ROWS * len(steps)):
        return None
    shown = asked & (mean < SLACK * share * most)
    if shown.sum() < ROWS * asked.sum():
        return None
    late = level.rows(len(steps), LATE)
    of_cut, of_all, of_longest = (float(column[late].mean()) for column in (share, mean, most))
    return _Ended(of_cut, of_all, of_longest, int(shown.sum()), len(steps))


def _check(quantities: Quantities) -> Finding:
    """Mean lengths below SLACK × (share counted as cut × longest) in ROWS of the rows."""
    if any(quantities.get(name, SHORT) is None for name in ("truncated", "length", "length_max")):
        return cannot_tell("cut completions, their mean length and the longest are not all logged", "truncated")
    seen = ended(quantities)
    if seen is None and (far := at_no_one_length(quantities)):
        return _of_agents(quantities, far)
    if seen is None:
        return fact(False, "completions that are counted as cut are as long as the longest")
    because = (
        f"{percent(seen.cut)} of completions are counted as cut, which would all be as long as the longest of their "
        f"batch ({number(seen.longest)} tokens), but the mean is {number(seen.mean)}: most of them ended, without the "
        "end token that is looked for"
    )
    if _has_turns(quantities):
        return _of_agents(
            quantities,
            f"which would all be as long as the longest of their batch ({number(seen.longest)} tokens), but the mean "
            f"is {number(seen.mean)}",
        )
    evidence = (Sign("rows whose mean length is too short for cut ones", float(seen.shown), column="length"),)
    brief = f"{percent(seen.cut)} counted as cut, but most of them ended"
    return fact(True, because, evidence, explains=FOLLOWS, brief=brief)


def at_no_one_length(quantities: Quantities) -> str:
    """That the longest of the batches are of no one length although many rollouts of each are counted as cut, or the
    rollouts of a batch although all are, a clause; empty where they are, and for rollouts without turns or tools.

    A limit on tokens makes the longest of every batch as long as the limit.
    """
    cut, longest, shortest = (quantities.get(name, SHORT) for name in ("truncated", "length_max", "length_min"))
    if cut is None or longest is None or cut.values.max() > 1 or not _has_turns(quantities):
        return ""
    _, at, own = np.intersect1d(cut.steps, longest.steps, return_indices=True)
    most = longest.values[own][cut.values[at] >= LEAST_CUT]
    if len(most) < max(SHORT, ROWS * len(own)):
        return ""
    low, middle, high = (float(quantile) for quantile in np.quantile(most, (0.05, 0.5, 0.95)))
    if high - low <= VARY * middle:
        return "" if shortest is None else _several_lengths(cut, longest, shortest)
    return f"which would make the longest of every batch as long as the limit, but it goes from {number(low)} to " \
        f"{number(high)} tokens"  # fmt: skip


def _has_turns(quantities: Quantities) -> bool:
    """Whether rollouts have turns or calls of tools, by what is logged of them."""
    turns, calls = quantities.column("agent/turns"), quantities.column("agent/calls")
    several = turns is not None and float(turns.values.max()) > 1
    return several or (calls is not None and float(calls.values.max()) > 0)


def _several_lengths(cut: MetricSeries, longest: MetricSeries, shortest: MetricSeries) -> str:
    """That the rollouts of a batch are of several lengths although all are counted as cut, a clause; else empty."""
    steps = np.intersect1d(np.intersect1d(cut.steps, longest.steps), shortest.steps)
    share, most, least = (own.values[np.searchsorted(own.steps, steps)] for own in (cut, longest, shortest))
    shown = (share >= 1) & (least < SLACK * most)
    if shown.sum() < max(SHORT, ROWS * len(steps)):
        return ""
    low, high = float(np.median(least[shown])), float(np.median(most[shown]))
    return f"which would make all rollouts of a batch as long as the limit, but they have {number(low)} to " \
        f"{number(high)} tokens in the median batch"  # fmt: skip


def _of_agents(quantities: Quantities, shown: str) -> Finding:
    """The same of rollouts with turns or tools, which their environment may end without an end token."""
    cut = quantities.require("truncated", SHORT)
    share = percent(cut.level(LATE).value)
    masks = quantities.run.config.get("settings", {}).get("masks_truncated")
    dropped = "; mask_truncated_completions takes them out of the loss" if masks else ""
    because = (
        f"{share} of rollouts are counted as cut, {shown}: their environment ended them without an end token, or a "
        f"limit counts what tools wrote, and the log does not say which{dropped}"
    )
    return fact(
        True,
        because,
        (late_level(cut.name, cut.level(LATE).value, cut.level(LATE).se),),
        fault=OF_AGENTS,
        explains=FOLLOWS,
        brief=f"{share} of rollouts counted as cut, at no one length",
        grades=("failing", "failing") if masks else ("note", "note"),
    )


TEST = LogTest(
    "end not recognised",
    _check,
    needs=("truncated", "length", "length_max"),
    where_logged=True,
    statistic="mean length over (share counted as cut × longest completion), row by row",
    threshold=f"below {SLACK:g} in {ROWS:g} of the rows with {LEAST_CUT:g} or more counted as cut, a fact",
)
