"""The first things to know of a run or of a probe: a sentence, what it rests on, and a few numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from grposcope.facts import credit, diagnosis, geometry, group_size, heldout, learning, timing
from grposcope.facts.diagnosis import Word
from grposcope.facts.group_size import GroupSize
from grposcope.facts.intervals import shown_interval
from grposcope.facts.metrics import outline
from grposcope.formatting import duration, listed, number, percent, span, visible
from grposcope.runs.credit import EXACT, CreditRecord
from grposcope.runs.probe import ProbeRecord
from grposcope.runs.run import Run, labels

ENDINGS = {
    "finished": "",
    "interrupted": "The run was interrupted before its end.",
    "failed": "The run failed.",
    "running": "The run was still going when this page was made.",
    "unknown": "The record does not say how the run ended: it is going, or was broken off.",
}
"""Status of a run -> what to say of its end."""


@dataclass(frozen=True)
class KeyNumber:
    """One number that is shown large, with its name above and a detail below."""

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Headline:
    """sentence: the first thing to know, of a run its verdict. word: the first word of the verdict, which says how bad
    it is; empty where nothing was judged. clauses: what follows the sentence in the verdict. details: further
    sentences. numbers: what is shown large.
    """

    sentence: str
    details: tuple[str, ...] = ()
    numbers: tuple[KeyNumber, ...] = ()
    word: Word | Literal[""] = ""
    clauses: tuple[str, ...] = ()


def of_run(run: Run) -> Headline:
    """Headline of a run: its verdict; of a folder without steps, what its last probe measured."""
    if is_probe(run):
        return of_probe(run.probes[-1]) if run.probes else of_credit(run.credits[-1])
    judged = diagnosis.verdict(run, diagnosis.findings_of(run))
    learned = learning.of_run(run)
    bad = run.nonfinite.get("grad_norm", 0)
    not_taken = f"At {bad:,} of {run.steps:,} steps the gradient was not finite, and the step was not taken."
    notes = [f"{note}." for note in run.meta.notes]
    details = [*learned.details, ENDINGS[run.meta.status], not_taken if bad else "", *notes]
    return Headline(
        judged.conclusion, tuple(text for text in details if text), tuple(_of_steps(run, learned)), judged.word,
        judged.clauses,
    )  # fmt: skip


def of_probe(record: ProbeRecord) -> Headline:
    """Headline of a probe: rank, sparsity and dead groups, then the group size and the baseline to choose."""
    size = group_size.of_probe(record)
    details = [
        f"{geometry.subject(record)}, {geometry.solved(record)}.",
        f"Group size: {size.sentence(record.group)}",
        f"Baseline: {visible(record.baseline.verdict, 400)}.",
    ]
    if not record.complete:
        details.append("The probe was interrupted before its end.")
    numbers = _of_gradient(record)
    if isinstance(size, GroupSize) and size.decided:
        numbers.append(KeyNumber("best group size", str(size.plan.integer), f"G* {span(*size.plan.interval)}"))
    return Headline(_gradient(record), tuple(details), tuple(numbers))


def of_credit(record: CreditRecord) -> Headline:
    """Headline of a comparison of credit: its verdict, and what was drawn."""
    numbers = []
    for name, title in ((EXACT, "exact credit saves"), ("prefix", "merged prefixes save")):
        one = record.source(name)
        if one is not None and math.isfinite(one.saving.value):
            numbers.append(KeyNumber(title, f"{number(one.saving.value)} ×", span(one.saving.low, one.saving.high)))
    return Headline(credit.verdict(record).removesuffix("."), (credit.about(record),), tuple(numbers))


def of_several(runs: Sequence[Run]) -> str:
    """Sentence about several runs: which ended highest; of several probes, their ranks."""
    if all(is_probe(run) for run in runs):
        if not all(run.probes for run in runs):
            return f"{len(runs)} measurements of models, without a run."
        ranks = [f"{number(record.rank('stable').value)} in {label}" for label, _, record in geometry.latest(runs)]
        return f"{len(runs)} probes, with stable ranks {listed(ranks)}."
    tasks = dict.fromkeys(str(task) for run in runs if (task := run.setting("task")) is not None)
    if len(tasks) > 1:
        return f"{len(runs)} runs on different tasks, {listed(list(tasks))}: their accuracies cannot be compared."
    evaluated = zip(labels(runs), map(learning.evaluations, runs), strict=True)
    ends = {label: evaluations[-1][1] for label, evaluations in evaluated if evaluations}
    if len(ends) < 2:
        return f"{len(runs)} runs; without held-out evaluations of two of them they cannot be compared."
    measured = {label: heldout.name(learning.score(run)) for label, run in zip(labels(runs), runs, strict=True)}
    if len({measured[label] for label in ends}) > 1:
        return f"{len(runs)} runs, whose held-out scores are not the same and cannot be compared."
    best, second = sorted(ends, key=lambda label: -ends[label].value)[:2]
    shares = heldout.are_shares(end.value for end in ends.values())
    compared = learning.change(ends[second], ends[best])
    apart = {
        "up": "more apart than chance explains",
        "none": "no more apart than chance explains",
        "unknown": f"but {compared.difference.flag} to tell them apart",
    }[compared.verdict]
    return (
        f"{best} ends highest in held-out {measured[best]}, at {heldout.shown(ends[best].value, shares)}; {second} "
        f"follows at {heldout.shown(ends[second].value, shares)}, {apart}."
    )


def is_probe(run: Run) -> bool:
    """Whether the folder holds no run but what `grposcope probe` or `grposcope credit` measured."""
    return not run.steps and bool(run.probes or run.credits)


def _of_steps(run: Run, learned: learning.Learning) -> list[KeyNumber]:
    numbers = []
    if learned.evaluations:
        step, last = learned.evaluations[-1]
        shares = heldout.are_shares(value.value for _, value in learned.evaluations)
        known = math.isfinite(last.se) or last.n > 0
        detail = f"{shown_interval(last, shares)}, step {step:,}" if known else f"step {step:,}"
        title = f"held-out {heldout.name(learning.score(run))}"
        numbers.append(KeyNumber(title, heldout.shown(last.value, shares, 1), detail))
    if "dead_fraction" in run.table and run.steps:
        dead = outline(run.table["dead_fraction"])
        before = f"{percent(dead.first_tenth.value)} in the first tenth"
        numbers.append(KeyNumber("dead groups, last tenth", percent(dead.last_tenth.value), before))
    planned = run.setting("steps")
    of = f"of {planned:,} planned" if isinstance(planned, int) and planned != run.steps else "as planned"
    numbers.append(KeyNumber("optimiser steps", f"{run.steps:,}", of if planned else ""))
    if not run.steps:
        return numbers
    times = timing.of_run(run)
    if times.phases:
        longest = max(times.seconds, key=lambda name: times.seconds[name])
        share = f"{percent(times.seconds[longest] / times.total)} {longest}" if times.total else ""
        numbers.append(KeyNumber("time", duration(times.total), share))
    if not math.isnan(times.tokens):
        numbers.append(KeyNumber("tokens", _count(times.tokens), "in the completions of all batches"))
    return numbers


def _gradient(record: ProbeRecord) -> str:
    model, task = (visible(name or "?", 80) for name in (record.model, record.task))
    stable = record.rank("stable").value
    if not math.isfinite(stable):
        return f"{model} on {task} was probed; the rank of its gradient cannot be told."
    return (
        f"The gradients of {model} on {task} have a mean stable rank of {number(stable)}; 5% of the tokens hold "
        f"{percent(record.token_sparsity['top_5'])} of the squared score norms, and "
        f"{percent(record.groups.dead.value)} of the groups are dead."
    )


def _of_gradient(record: ProbeRecord) -> list[KeyNumber]:
    control, alike = record.rank("stable", "nll").value, record.groups.dead_if_alike
    without_reward = f"{number(control)} without reward" if math.isfinite(control) else ""
    expected = f"{percent(alike)} if prompts were alike" if math.isfinite(alike) else ""
    return [
        KeyNumber("stable rank", number(record.rank("stable").value), without_reward),
        KeyNumber("dead groups", percent(record.groups.dead.value), expected),
        KeyNumber("top 5% of tokens hold", percent(record.token_sparsity["top_5"]), "of the score"),
        KeyNumber("cancels on shared text", percent(record.credit.cancelled), "of the credit"),
    ]


def _count(value: float) -> str:
    """A large number in thousands (k), millions (M) or billions (G)."""
    for size, one, unit in ((1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if value >= size:
            return f"{value / one:.3g}{unit}"
    return f"{value:,.0f}"
