"""The top of a page: the first things to know of a run or a probe; of several, which ended highest, and a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from grposcope.core.answer import HEADLINE, Answer, DrawnLater, Figure, KeyNumber, Table, exactly
from grposcope.core.outline import outline
from grposcope.core.run import Run, labels
from grposcope.core.text import duration, listed, number, percent, visible
from grposcope.instruments import has
from grposcope.instruments.diagnosis import answer as diagnosis
from grposcope.instruments.diagnosis import learning
from grposcope.instruments.diagnosis.verdict import findings_of, verdict
from grposcope.instruments.runs import timing
from grposcope.instruments.runs.measurements import last_credit, last_probe
from grposcope.maths.intervals import shown_interval
from grposcope.signs import heldout, levels, run_outcome

if TYPE_CHECKING:
    from grposcope.instruments.gradient.probe_record import ProbeRecord

FIRST = 2
"""Sentences of the diagnosis that stand at the top: the reason and what became of the run; the others follow below."""

ENDINGS = {
    "finished": "",
    "interrupted": "The run was interrupted before its end.",
    "failed": "The run failed.",
    "running": "The run was still in progress when this page was made.",
    "unknown": "",  # it stands with what the run is
}
"""Status of a run -> what to say of its end."""


def top(runs: Sequence[Run]) -> Answer:
    """The top of the page: sentences and large numbers for one run or probe, a sentence and a table for several."""
    each = [of_run(run) for run in runs]
    document = {label: section.document for label, section in zip(labels(runs), each, strict=True)}
    if len(runs) == 1:
        return replace(each[0], document=document, figures=DrawnLater(lambda: _chart(runs[0])))
    if all(_measured_in_folder(run) is not None for run in runs):
        return Answer("headline", HEADLINE, sentence=_measured_in_several(runs), document=document)
    return Answer("headline", HEADLINE, sentence=_sentence(runs), tables=[_table(runs)], document=document)


def of_run(run: Run) -> Answer:
    """The first things to know of a run: its verdict; of a folder without steps, what was measured last."""
    if (measured := _measured_in_folder(run)) is not None:
        return replace(measured, document=_document(run, measured, measured.sentence))
    judged = verdict(run, findings_of(run))
    said = diagnosis.of_verdict(judged)
    bad = run.nonfinite.get("grad_norm", 0)
    not_taken = f"At {bad:,} of {run.steps:,} steps the gradient was not finite, and the update was skipped."
    details = [ENDINGS[run.meta.status], not_taken if bad else "", *diagnosis.missing(findings_of(run))]
    return replace(
        said, name="headline", question=HEADLINE, text=[*said.text[:FIRST], *(text for text in details if text)],
        numbers=_numbers(run), document=_document(run, said, str(judged)),
    )  # fmt: skip


def _measured_in_folder(run: Run) -> Answer | None:
    """What was measured last, where a folder has no steps but a probe or a comparison of credit; else None."""
    return None if run.steps else _of_probe(run) or _of_credit(run)


def _of_probe(run: Run) -> Answer | None:
    """The headline of the last probe: what the gradient is made of, then the group size and the baseline to choose."""
    record = last_probe(run)
    if record is not None and has("gradient"):
        from grposcope.instruments.gradient import findings

        size, best = _group_size(record)
        details = [
            f"{findings.subject(record)}, {findings.solved(record)}.",
            *size,
            f"Baseline: {visible(record.baseline.verdict, 400)}.",
            *([] if record.complete else ["The probe was interrupted before its end."]),
        ]
        numbers = [*findings.numbers(record), *best]
        return Answer("headline", HEADLINE, sentence=findings.conclusion(record), text=details, numbers=numbers)
    return None


def _group_size(record: ProbeRecord) -> tuple[list[str], list[KeyNumber]]:
    """What a probe says of the group size, and the best one as a number; nothing where nobody can tell."""
    if has("group_size"):
        from grposcope.instruments.group_size import size as group_size

        size = group_size.of_probe(record)
        if not isinstance(size, group_size.GroupSize):
            return [f"Group size: {size.sentence(record.group)}"], []
        trained = group_size.of_recipe(size, record.recipe or "rloo", record.comparison)
        first, second = group_size.sentences(size, trained, record.group)
        said = [f"Group size: {first}", *([second] if trained.differs else [])]
        return said, group_size.best_numbers(size, trained)
    return [], []


def _of_credit(run: Run) -> Answer | None:
    """The headline of the last comparison of credit: its verdict, and what was drawn."""
    record = last_credit(run)
    if record is not None and has("credit"):
        from grposcope.instruments.credit import answer

        sentence, text = answer.verdict(record).removesuffix("."), [*answer.offers(record), answer.about(record)]
        return Answer("headline", HEADLINE, sentence=sentence, text=text, numbers=answer.numbers(record))
    return None


def _measured_in_several(runs: Sequence[Run]) -> str:
    """Sentence about several folders without a run: the ranks of their last probes."""
    probes = {label: last_probe(run) for label, run in zip(labels(runs), runs, strict=True)}
    ranks = [f"{number(probe.rank('stable').value)} in {label}" for label, probe in probes.items() if probe is not None]
    if len(ranks) < len(runs):
        return f"{len(runs)} measurements of models, without a run."
    return f"{len(runs)} probes, with stable ranks {listed(ranks)}."


def _chart(run: Run) -> list[Figure]:
    """The curves that the verdict rests on; none without steps."""
    from grposcope.instruments.diagnosis import verdict_chart

    figure = verdict_chart.of_run(run, findings_of(run)) if run.steps else None
    return [] if figure is None else [figure]


def _sentence(runs: Sequence[Run]) -> str:
    """Sentence about several runs: which ended highest."""
    tasks = dict.fromkeys(str(task) for run in runs if (task := run.setting("task")) is not None)
    if len(tasks) > 1:
        return f"{len(runs)} runs on different tasks, {listed(list(tasks))}: their accuracies cannot be compared."
    seen = zip(labels(runs), map(levels.of_heldout, runs), strict=True)
    ends = {label: level.last for label, level in seen if level is not None}
    if len(ends) < 2:
        return f"{len(runs)} runs; fewer than two have held-out evaluations to rank them by, so compare their curves."
    named = {label: heldout.name(learning.score(run)) for label, run in zip(labels(runs), runs, strict=True)}
    if len({named[label] for label in ends}) > 1:
        return f"{len(runs)} runs; they log different held-out scores, which cannot be compared."
    best, second = sorted(ends, key=lambda label: -ends[label].value)[:2]
    shares = heldout.are_shares(end.value for end in ends.values())
    direction, reason = heldout.difference(ends[second], ends[best])
    top, next_one = (heldout.shown(ends[label].value, shares) for label in (best, second))
    if direction == "none":
        differ = f"{best} at {top} and {second} at {next_one} differ by chance"
        return f"No run ends clearly best in held-out {named[best]}: {differ}."
    separate = "a difference beyond chance" if direction == "up" else f"but {reason} to tell them apart"
    return f"{best} ends best in held-out {named[best]}, at {top}; {second} follows at {next_one}, {separate}."


def _table(runs: Sequence[Run]) -> Table:
    """A row per run: its held-out accuracy at both ends, dead groups and time."""
    rows = []
    for label, run in zip(labels(runs), runs, strict=True):
        learned = learning.of_run(run)
        compared, word = ("none", "none"), ""
        if run.steps:
            word = verdict(run, findings_of(run)).word
        if (seen := levels.of_heldout(run)) is not None:
            compared = (seen.shown(seen.first), seen.shown(seen.last))
        dead = "not recorded"
        if "dead_fraction" in run.table and run.steps:
            dead = percent(outline(run.table["dead_fraction"]).last_tenth.value)
        rows.append(
            (
                label,
                word,
                run.meta.status,
                f"{run.steps:,}",
                *compared,
                learned.changed,
                dead,
                _time(run),
            )
        )
    header = (
        "run",
        "verdict",
        "status",
        "steps",
        "held-out first",
        "held-out last",
        "change",
        "dead groups at the end",
        "time",
    )
    text = "Held-out scores with 95% intervals. Dead groups: mean of the last tenth of the steps."
    return Table("", header, rows, text)


def _numbers(run: Run) -> list[KeyNumber]:
    numbers: list[KeyNumber] = []
    if (seen := levels.of_heldout(run)) is not None:
        last, up_to = seen.last, f"up to step {seen.last_step:,}"
        finite = math.isfinite(last.se) or last.n > 0
        detail = f"{shown_interval(last, seen.shares)}, {up_to}" if finite else up_to
        title = f"held-out {heldout.name(seen.name)}"
        numbers.append(KeyNumber(title, last, heldout.shown(last.value, seen.shares, 1), detail))
    if "dead_fraction" in run.table and run.steps:
        dead = outline(run.table["dead_fraction"])
        before = f"{percent(dead.first_tenth.value)} in the first tenth"
        numbers.append(KeyNumber("dead groups, last tenth", dead.last_tenth, percent(dead.last_tenth.value), before))
    planned, taken = run.setting("steps"), run_outcome.steps(run)
    of = f"of {planned:,} planned" if isinstance(planned, int) and planned != taken else "as planned"
    numbers.append(KeyNumber("optimiser steps", exactly(taken), f"{taken:,}", of if planned else ""))
    return [*numbers, *_spent(run)] if run.steps else numbers


def _time(run: Run) -> str:
    """How long a run took, by its phases or the seconds of its steps; that it is not logged where neither is known."""
    times = timing.of_run(run)
    if times.phases:
        return duration(times.total)
    return duration(float(np.nansum(run.table["seconds_step"]))) if "seconds_step" in run.table else "not logged"


def _spent(run: Run) -> list[KeyNumber]:
    """Time and tokens, where they are recorded."""
    numbers: list[KeyNumber] = []
    times = timing.of_run(run)
    if times.phases:
        longest = max(times.seconds, key=lambda name: times.seconds[name])
        share = f"{percent(times.seconds[longest] / times.total)} {longest}" if times.total else ""
        numbers.append(KeyNumber("time", exactly(times.total), duration(times.total), share))
    if not math.isnan(times.tokens):
        told = "in the completions of all batches"
        numbers.append(KeyNumber("tokens", exactly(times.tokens), _count(times.tokens), told))
    return numbers


def _document(run: Run, said: Answer, line: str) -> dict[str, Any]:
    """What a program is told of a run. line: the verdict, or what was measured, in one line."""
    return {
        "status": run.meta.status,
        "steps": run.steps,
        "source": str(run.meta.source),
        "sentence": line,
        "grade": said.word,
        "not_finite": run.nonfinite,
        "notes": list(run.meta.notes),
    }


def _count(value: float) -> str:
    """A large number in thousands (k), millions (M) or billions (G)."""
    for size, divisor, unit in ((1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if value >= size:
            return f"{value / divisor:.3g}{unit}"
    return f"{value:,.0f}"
