"""Section on how many rollouts per prompt: the error of one gradient against G, from the Gram matrix of a probe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from grposcope.facts import geometry, group_size, recipe_size
from grposcope.facts.group_size import GroupSize, Unknown
from grposcope.formatting import number, percent, span
from grposcope.report.charts import group_size as charts
from grposcope.report.elements import Figure, PageTable, Section
from grposcope.runs.probe import ProbeRecord
from grposcope.runs.run import Run, labels
from grposcope.ustat.planning import GROUPS, Plan


def section(runs: Sequence[Run]) -> Section | None:
    """The best group size by each run's last probe; curves over G, and over steps where several were probed."""
    latest = geometry.latest(runs)
    if not latest:
        return None
    facts = {label: group_size.of_probe(probe, charts.SIZES) for label, _, probe in latest}
    known = {label: one for label, one in facts.items() if isinstance(one, GroupSize)}
    text = []
    for label, run, probe in latest:
        who = f"{label}: " if len(latest) > 1 else ""
        used = _group_used(run, probe)
        text.append(who + facts[label].sentence(used))
        recipe = run.setting("recipe") or probe.scalars().get("recipe")
        if run.setting("recipe") and run.setting("advantage"):
            recipe = f"{recipe}, {run.setting('advantage')} advantage"
        if label in known and isinstance(recipe, str):
            text.append(who + recipe_size.of_recipe(known[label], recipe).sentence())
        if label in known and known[label].decided:
            text.append(who + known[label].error_sentence(max(used or known[label].plan.integer, 2)))
            if not who:
                text[-1] += (
                    f" From {geometry.subject(probe)}, for the error of one gradient at an equal number of rollouts; "
                    "in brackets 95% intervals. What else a group size does (exploration, memory, batching) is not in "
                    "it."
                )
    drawn: list[Figure | None] = []
    blocks: dict[str, GroupSize] = {}
    order = labels(runs)
    if known:
        ratios = {
            label: {group: one.efficiency(group) for group in charts.SIZES}
            for label, one in known.items()
            if one.decided
        }
        drawn = [charts.curve({label: one.plan for label, one in known.items()}, order)]
        if len(latest) == 1:
            label, _, probe = latest[0]
            by_block = group_size.by_block(probe)
            if isinstance(by_block, Unknown):
                text.append(
                    f"By layer: left out, as {by_block.reason}; `grposcope plan` reads it when asked for layers."
                )
            else:
                blocks = by_block
            drawn += [
                charts.budget(known[label].moments, GROUPS) if known[label].decided else None,
                charts.efficiency(ratios, order) if known[label].decided else None,
                charts.blocks(known[label].plan, {name: one.plan for name, one in blocks.items()}),
            ]
        elif ratios:
            drawn.append(charts.efficiency(ratios, order))
    drawn.append(charts.over_steps({label: _over_steps(run) for label, run in zip(order, runs, strict=True)}))
    return Section(
        "group_size",
        "How many rollouts per prompt",
        text=text,
        figures=[figure for figure in drawn if figure is not None],
        tables=[_losses(known)] if any(one.decided for one in known.values()) else [],
        numbers={label: _numbers(facts[label], probe, blocks) for label, _, probe in latest},
    )


def _group_used(run: Run, probe: ProbeRecord) -> int | None:
    """The group size in use: the run's, else the probe's."""
    used = run.setting("group") if run.steps else probe.group
    return used if isinstance(used, int) else None


def _over_steps(run: Run) -> list[tuple[int, Plan]]:
    """The plan at every step that was probed, if there are two or more."""
    by_step = geometry.by_step(run)
    if len(by_step) < 2:
        return []
    facts = [(step, group_size.of_probe(probe, ())) for step, probe in by_step.items()]
    return [(step, one.plan) for step, one in facts if isinstance(one, GroupSize)]


def _losses(known: Mapping[str, GroupSize]) -> PageTable:
    """Table of what each group size loses, a row per probe and size."""
    rows = []
    for label, one in known.items():
        for point in one.plan.curve:
            if point.group in GROUPS:
                ratio, low, high = one.efficiency(point.group)
                rows.append(
                    (
                        *([label] if len(known) > 1 else []),
                        str(point.group),
                        percent(point.loss),
                        span(*point.loss_interval, percent),
                        f"{number(ratio)} ({span(low, high)})",
                        one.dead_shown(point.group),
                    )
                )
    header = ("G", "more rollouts needed", "95%", "error ÷ oracle's", "dead groups")
    text = f"With leave-one-out advantages, against the best group size, for the same error. {group_size.EXTRAPOLATION}"
    return PageTable("What you lose", header if len(known) == 1 else ("probe", *header), rows, text)


def _plan(plan: Plan) -> dict[str, Any]:
    """A plan with the usual group sizes only."""
    return {**asdict(plan), "curve": [asdict(point) for point in plan.curve if point.group in GROUPS]}


def _numbers(facts: GroupSize | Unknown, probe: ProbeRecord, blocks: Mapping[str, GroupSize]) -> dict[str, Any]:
    about: dict[str, Any] = {"probe": str(probe.folder), "step": probe.step, "verdict": facts.sentence()}
    if isinstance(facts, Unknown):
        return about | {"plan": None, "cannot_tell": facts.reason}
    moments = {name: getattr(facts.moments, name) for name in group_size.MOMENTS}
    about |= {"plan": _plan(facts.plan), "moments": moments}
    return about | ({"blocks": {name: _plan(one.plan) for name, one in blocks.items()}} if blocks else {})
