"""What happened, in words with numbers; "cannot tell" where the record does not say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from grposcope.facts import geometry, group_size, learning
from grposcope.facts.group_size import GroupSize, Unknown
from grposcope.facts.learning import Learning, change, shown_interval
from grposcope.formatting import duration, listed, number, percent, visible
from grposcope.records import Estimate
from grposcope.report.elements import PageTable, Section, Tile
from grposcope.report.sections import timing
from grposcope.runs.probe import ProbeRecord
from grposcope.runs.run import Run, labels

STATUS = {
    "finished": "",
    "interrupted": "The run was interrupted before its end.",
    "failed": "The run failed.",
    "running": "The run was still going when this page was made.",
    "unknown": "The record does not say how the run ended: it is going, or was broken off.",
}


def headline(runs: Sequence[Run]) -> Section:
    """The top of the page: a sentence or two and tiles for one run, a table for several."""
    names = labels(runs)
    numbers: dict[str, Any] = {name: _numbers(run) for name, run in zip(names, runs, strict=True)}
    if len(runs) == 1 and _is_probe(runs[0]):
        probe = runs[0].probes[-1]
        found = group_size.of_probe(probe)
        return Section("headline", sentence(runs[0]), _found(probe, found), _measured(probe, found), numbers=numbers)
    if len(runs) == 1:
        learned = learning.of_run(runs[0])
        return Section(
            "headline", learned.sentence, _details(runs[0], learned), _tiles(runs[0], learned), numbers=numbers
        )
    if all(_is_probe(run) for run in runs):
        ranks = [f"{number(probe.rank('stable').value)} in {label}" for label, _, probe in geometry.latest(runs)]
        return Section("headline", f"{len(runs)} probes, with stable ranks {listed(ranks)}.", numbers=numbers)
    return Section("headline", _compared(runs), tables=[_table(runs)], numbers=numbers)


def _is_probe(run: Run) -> bool:
    """Whether all there is to tell is what a probe measured."""
    return not run.steps and bool(run.probes)


def sentence(run: Run) -> str:
    """The first thing to know of a run."""
    if _is_probe(run):
        return _probe_in_short(run.probes[-1])
    return learning.of_run(run).sentence


def _probe_in_short(probe: ProbeRecord) -> str:
    model, task = (visible(name or "?", 80) for name in (probe.model, probe.task))
    stable, top = probe.rank("stable").value, probe.token_sparsity["top_5"]
    if not math.isfinite(stable):
        return f"{model} on {task} was probed; the rank of its gradient cannot be told."
    dead = probe.groups.dead.value
    return (
        f"The gradients of {model} on {task} have a mean stable rank of {number(stable)}; 5% of the tokens hold "
        f"{percent(top)} of the squared score norms, and {percent(dead)} of the groups are dead."
    )


def _found(probe: ProbeRecord, found: GroupSize | Unknown) -> list[str]:
    """What was probed, and the two questions a user decides by: the group size and the baseline."""
    baseline = visible(probe.baseline.verdict, 400)
    said = [
        f"{geometry.subject(probe)}, {geometry.solved(probe)}.",
        f"Group size: {found.sentence(probe.group)}",
        f"Baseline: {baseline}.",
    ]
    return [*said, *([] if probe.complete else ["The probe was interrupted before its end."])]


def _measured(probe: ProbeRecord, found: GroupSize | Unknown) -> list[Tile]:
    dead, alike = probe.groups.dead.value, probe.groups.dead_if_alike
    stable, likely = probe.rank("stable"), probe.rank("stable", "nll").value
    expected = f"{percent(alike)} if prompts were alike" if math.isfinite(alike) else ""
    tiles = [
        Tile("stable rank", number(stable.value), f"{number(likely)} without reward" if math.isfinite(likely) else ""),
        Tile("dead groups", percent(dead), expected),
        Tile("top 5% of tokens hold", percent(probe.token_sparsity["top_5"]), "of the score"),
        Tile("cancels on shared text", percent(probe.credit.cancelled), "of the credit"),
    ]
    if isinstance(found, GroupSize) and found.decided:
        low, high = (number(value) for value in found.plan.interval)
        tiles.append(Tile("best group size", str(found.plan.integer), f"G* {low} to {high}"))
    return tiles


def _details(run: Run, learned: Learning) -> list[str]:
    """Intervals and differences, how the run ended, and what its record lacks."""
    bad = run.nonfinite.get("grad_norm", 0)
    not_taken = f"At {bad:,} of {run.steps:,} steps the gradient was not finite, and the step was not taken."
    said = [
        *learned.details,
        STATUS[run.meta.status],
        not_taken if bad else "",
        *(f"{note}." for note in run.meta.notes),
    ]
    return [text for text in said if text]


def _tiles(run: Run, learned: Learning) -> list[Tile]:
    tiles = []
    if learned.evaluations:
        step, last = learned.evaluations[-1]
        tiles.append(Tile("held-out pass@1", percent(last.value, 1), f"{shown_interval(last)}, step {step:,}"))
    if "dead_fraction" in run.table and run.steps:
        first, last_tenth = _tenths(run, "dead_fraction")
        tiles.append(Tile("dead groups, last tenth", percent(last_tenth), f"{percent(first)} in the first tenth"))
    wanted = run.setting("steps")
    of = f"of {wanted:,} planned" if isinstance(wanted, int) and wanted != run.steps else "as planned"
    tiles.append(Tile("optimiser steps", f"{run.steps:,}", of if wanted else ""))
    parts = timing.phases(run)
    if parts and run.steps:
        sums = {name: float(np.nansum(column)) for name, column in parts.items()}
        total = sum(sums.values())
        most = max(sums, key=lambda name: sums[name])
        detail = f"{percent(sums[most] / total)} {most}" if total else ""
        tiles.append(Tile("time", duration(total), detail))
    if "tokens" in run.table and run.steps:
        total_tokens = float(np.nansum(run.table["tokens"]))
        tiles.append(Tile("tokens", _big(total_tokens), "in the completions of all batches"))
    return tiles


def _big(value: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= size:
            return f"{value / (1e3 if unit == ' k' else size):.3g}{unit}"
    return f"{value:,.0f}"


def _tenths(run: Run, name: str = "reward") -> tuple[float, float]:
    values = run.table[name]
    tenth = max(1, len(values) // 10)
    with np.errstate(invalid="ignore"):
        first, last = (part[np.isfinite(part)] for part in (values[:tenth], values[-tenth:]))
    return (float(first.mean()) if len(first) else math.nan, float(last.mean()) if len(last) else math.nan)


def _compared(runs: Sequence[Run]) -> str:
    """Which run ended highest, and whether the next one could be as good."""
    ends = [(label, found[-1][1]) for label, run in zip(labels(runs), runs, strict=True)
            if (found := learning.evaluations(run))]  # fmt: skip
    if len(ends) < 2:
        return f"{len(runs)} runs; without held-out evaluations of two of them they cannot be compared."
    ends.sort(key=lambda end: -end[1].value)
    (best, top), (second, next_) = ends[0], ends[1]
    said = change(next_, top)
    ahead = (
        f"{best} ends highest in held-out accuracy, at {percent(top.value)}; {second} follows at {percent(next_.value)}"
    )
    verdict = {
        "up": "more apart than chance explains",
        "none": "no more apart than chance explains",
        "unknown": f"but {said.difference.flag} to tell them apart",
    }[said.verdict]
    return f"{ahead}, {verdict}."


def _table(runs: Sequence[Run]) -> PageTable:
    rows = []
    for label, run in zip(labels(runs), runs, strict=True):
        found = learning.evaluations(run)
        ends = ("none", "none", "cannot tell")
        if found:
            said = change(found[0][1], found[-1][1])
            verdict = {"up": "rose", "down": "fell", "none": "within noise", "unknown": "cannot tell"}[said.verdict]
            ends = (
                _with_interval(found[0][1]),
                _with_interval(found[-1][1]),
                verdict if len(found) > 1 else "one only",
            )
        dead = (
            percent(_tenths(run, "dead_fraction")[1]) if "dead_fraction" in run.table and run.steps else "not recorded"
        )
        total = sum(float(np.nansum(column)) for column in timing.phases(run).values())
        rows.append((label, run.meta.status, f"{run.steps:,}", *ends, dead, duration(total)))
    header = ("run", "status", "steps", "held-out first", "held-out last", "change", "dead groups at the end", "time")
    return PageTable(
        "", header, rows, "Held-out pass@1 with 95% intervals. Dead groups: mean of the last tenth of the steps."
    )


def _with_interval(estimate: Estimate) -> str:
    return f"{percent(estimate.value, 1)} ({shown_interval(estimate)})"


def _numbers(run: Run) -> dict[str, Any]:
    return {
        "status": run.meta.status,
        "steps": run.steps,
        "source": str(run.meta.source),
        "sentence": sentence(run),
        "not_finite": run.nonfinite,
        "notes": list(run.meta.notes),
    }
