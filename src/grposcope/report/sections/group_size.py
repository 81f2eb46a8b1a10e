"""How many rollouts per prompt: the error of one gradient against G, from the Gram matrix of a probe."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from grposcope.errors import UserError
from grposcope.facts import geometry
from grposcope.formatting import number, percent
from grposcope.report.charts import group_size as charts
from grposcope.report.elements import Figure, PageTable, Section
from grposcope.runs.probe import ProbeRecord
from grposcope.runs.run import Floats, Run, labels
from grposcope.ustat import dead_groups, moments, mse, planning, resampling
from grposcope.ustat.moments import Moments, Statistics
from grposcope.ustat.planning import GROUPS, Plan

LARGEST = 600e6
"""Bytes of a gram.npz up to which its layers are read for the page."""

OUTSIDE = "outside of blocks"


@dataclass(frozen=True)
class Sized:
    """What one probe says of the group size. rewards (P, G)."""

    moments: Moments
    plan: Plan
    rewards: Floats

    @property
    def live(self) -> int:
        """Groups with unequal rewards."""
        return int((self.moments.per_prompt.reward_variance > 0).sum())

    def efficiency(self, group: int) -> tuple[float, float, float]:
        """MSE over the oracle's at this group size, with its 95% bootstrap interval."""

        def ratio(s: Statistics) -> Floats:
            with np.errstate(divide="ignore", invalid="ignore"):  # a draw of dead groups has no error at all
                return np.asarray(1 + s.delta / ((group - 1) * s.sigma1))

        return (float(ratio(self.moments.pooled)[0]), *self.moments.interval(ratio))


def section(runs: Sequence[Run]) -> Section | None:
    """The verdict of each run's last probe; curves over G, and over steps where several were probed."""
    found = geometry.latest(runs)
    if not found:
        return None
    sized = {label: measured(probe) for label, _, probe in found}
    known = {label: one for label, one in sized.items() if isinstance(one, Sized)}
    text = []
    for label, run, probe in found:
        who = f"{label}: " if len(found) > 1 else ""
        text += [who + verdict(sized[label], _compared_with(run, probe)), *_more(known.get(label), run, probe, who)]
    drawn: list[Figure | None] = []
    tables = []
    blocks: dict[str, Sized] = {}
    if known:
        order = labels(runs)
        drawn = [charts.curve({label: one.plan for label, one in known.items()}, order), charts.efficiency(
            {label: {group: one.efficiency(group) for group in charts.SIZES} for label, one in known.items()}, order
        )]  # fmt: skip
        if len(found) == 1:
            label, _, probe = found[0]
            blocks, note = _blocks(probe)
            text += note
            drawn[1:1] = [charts.budget(known[label].moments, GROUPS)]
            drawn.append(charts.blocks(known[label].plan, {name: one.plan for name, one in blocks.items()}))
        tables = [_losses(known)]
    course = {label: _course(run) for label, run in zip(labels(runs), runs, strict=True)}
    drawn.append(charts.over_steps(course))
    return Section(
        "group_size", "How many rollouts per prompt", text=text,
        figures=[figure for figure in drawn if figure is not None], tables=tables,
        numbers={label: _numbers(sized[label], probe, blocks) for label, _, probe in found},
    )  # fmt: skip


def measured(probe: ProbeRecord, groups: Sequence[int] = charts.SIZES) -> Sized | str:
    """The moments and the plan of a probe, with these points on its curve; the reason where it cannot say."""
    try:
        file = probe.read_gram()
        return _sized(file.gram, file.rewards, groups)
    except UserError as error:
        return str(error)


def verdict(found: Sized | str, group: int | None = None) -> str:
    """The best group size in a sentence, and what `group` loses."""
    if isinstance(found, str):
        return f"Cannot tell: {found}."
    plan = found.plan
    low, high = plan.interval
    span = f"{number(low)} to {number(high)}"
    if not plan.integer or not math.isfinite(high):
        reason = "" if plan.integer else f"{plan.continuous.flag}; "
        return (
            f"Cannot tell a best group size: {reason}the 95% interval of G* is {span}, from {found.live} of "
            f"{found.moments.prompts} groups with unequal rewards. G = {plan.safe} risks least: its loss is smallest "
            "in the worse draws of the bootstrap. More prompts tell more."
        )
    text = f"G* = {number(plan.continuous.value)} ({span}): {plan.integer} rollouts per prompt make the smallest error"
    if group is None or group < 2:
        return f"{text}."
    if group == plan.integer:
        return f"{text}, as many as were used."
    lost = planning.loss(found.moments.pooled, np.array([group]), 0.0, 1.0)[0, 0]
    least, most = resampling.interval(planning.loss(found.moments.bootstrap, np.array([group]), 0.0, 1.0)[:, 0])
    return (
        f"{text}; at G = {group} you need {percent(float(lost))} more rollouts ({percent(least)} to {percent(most)}) "
        "to reach the same error."
    )


def _sized(gram: Floats, given: Floats, groups: Sequence[int]) -> Sized:
    found = moments.from_gram(gram, given)
    return Sized(found, planning.optimal_group(found, groups=groups), given)


def _compared_with(run: Run, probe: ProbeRecord) -> int | None:
    """The group size in use: the run's, else the probe's."""
    used = run.setting("group") if run.steps else probe.group
    return used if isinstance(used, int) else None


def _more(found: Sized | None, run: Run, probe: ProbeRecord, who: str) -> list[str]:
    """Where the error comes from, and what the numbers rest on."""
    if found is None:
        return []
    group = _compared_with(run, probe) or found.plan.integer or 2
    split = mse.budget(found.moments, 1, max(group, 2))
    total = split.total.value
    drawn, oracle, price = (percent(part.value / total) for part in (split.prompts, split.oracle, split.residual))
    text = (
        f"{who}Of the squared error at G = {group}, {drawn} comes from the draw of prompts, {oracle} would be there "
        f"even if the value of every prompt were known, and {price} is the price of not knowing it."
    )
    near = found.plan.near
    if near[0] and math.isfinite(found.plan.interval[1]):
        text += f" Any G from {near[0]} to {near[1]} needs at most 5% more rollouts than the best."
    flag = found.moments.sigma1.flag
    if flag:
        text += f" Note: {flag}."
    if not who:
        text += (
            f" From {geometry.subject(probe)}, for the error of one gradient at an equal number of rollouts; in "
            "brackets 95% intervals. What else a group size does (exploration, memory, batching) is not in it."
        )
    return [text]


def _blocks(probe: ProbeRecord) -> tuple[dict[str, Sized], list[str]]:
    """Each block's own optimum, from the sum of its layers' Grams; a note where they are too large to read."""
    try:
        if (size := probe.gram_bytes()) > LARGEST:
            return {}, [f"By layer: left out, as gram.npz has {size / 1e6:.0f} MB; grposcope plan --layers reads it."]
        file = probe.read_gram(layers=True)
    except UserError:
        return {}, []
    if file.layers is None or len(file.layer_names) < 2:
        return {}, []
    where: dict[str, list[int]] = {}
    for i, name in enumerate(file.layer_names):
        where.setdefault(_block(name), []).append(i)
    found = {}
    for block in sorted(where, key=lambda name: (name == OUTSIDE, len(name), name)):
        try:
            found[block] = _sized(file.layers[where[block]].sum(0), file.rewards, ())
        except UserError:
            continue  # a block without a gradient of its own says nothing
    return (found, []) if len(found) > 1 else ({}, [])


def _block(layer: str) -> str:
    number_ = re.search(r"\.(\d+)\.", layer)
    return f"block {number_[1]}" if number_ else OUTSIDE


def _course(run: Run) -> list[tuple[int, Plan]]:
    """The plan at every step that was probed, if there are two or more."""
    found = geometry.by_step(run)
    if len(found) < 2:
        return []
    sized = [(step, measured(probe, ())) for step, probe in found.items()]
    return [(step, one.plan) for step, one in sized if isinstance(one, Sized)]


def _losses(known: dict[str, Sized]) -> PageTable:
    rows = []
    for label, one in known.items():
        for point in one.plan.curve:
            if point.group not in GROUPS:
                continue
            dead = dead_groups.expected(one.rewards, point.group)
            low, high = point.loss_interval
            ratio, *span = one.efficiency(point.group)
            shown = "cannot tell" if math.isnan(dead.value) else percent(dead.value)
            rows.append((
                *([label] if len(known) > 1 else []), str(point.group), percent(point.loss),
                f"{percent(low)} to {percent(high)}", f"{number(ratio)} ({' to '.join(map(number, span))})",
                shown + ("*" if dead.flag == dead_groups.EXTRAPOLATED else ""),
            ))  # fmt: skip
    header = ("G", "more rollouts needed", "95%", "error ÷ oracle's", "dead groups")
    text = "Against the best group size, for the same error. *: more rollouts than the probe's, success rates taken as "
    text += "Beta-distributed."
    return PageTable("What you lose", header if len(known) == 1 else ("probe", *header), rows, text)


def _plan(plan: Plan) -> dict[str, Any]:
    """A plan with the usual group sizes only."""
    return {**asdict(plan), "curve": [asdict(point) for point in plan.curve if point.group in GROUPS]}


def _numbers(found: Sized | str, probe: ProbeRecord, blocks: dict[str, Sized]) -> dict[str, Any]:
    about: dict[str, Any] = {"probe": str(probe.folder), "step": probe.step, "verdict": verdict(found)}
    if isinstance(found, str):
        return about | {"plan": None, "cannot_tell": found}
    names = ("sigma1", "delta", "prompt_variance", "g2", "mean2")
    about |= {"plan": _plan(found.plan), "moments": {name: getattr(found.moments, name) for name in names}}
    return about | ({"blocks": {name: _plan(one.plan) for name, one in blocks.items()}} if blocks else {})
