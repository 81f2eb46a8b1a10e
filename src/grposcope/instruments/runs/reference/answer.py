"""Whether a run goes like the good ones, and where it left them first: a sentence, the metrics, and what is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from grposcope.core.answer import Answer, Table, Word
from grposcope.core.run import Run, labels
from grposcope.core.text import listed, number, visible
from grposcope.instruments.runs import REFERENCE
from grposcope.instruments.runs.reference.clocks import UNITS, Clock
from grposcope.instruments.runs.reference.gate import LEVEL, Block, Judgement, Left, judge

SEEN = 3
"""Metrics of which it is said what was seen where nothing is judged."""


def of_run(run: Run, references: Sequence[Run], clock: Clock = "step", level: float = LEVEL) -> Answer:
    """What is said of a run against runs that went well; UserError for one that is given twice, or lacks the clock."""
    judgement = judge(run, references, clock, level)
    names = labels(references)
    word: Word = "cannot tell" if judgement.diverged is None else "warning" if judgement.diverged else "healthy"
    text = [*_remarks(judgement, names), *(f"note: {note}." for note in judgement.notes), *_not_compared(judgement)]
    if judgement.diverged is None:
        because, do = "", ""
        missing = [f"Needed: {metric}." for metric in judgement.lacking]
    else:
        because, do, missing = _because(judgement), _do(judgement, names), []
    return Answer(
        "reference", REFERENCE.question, word, _sentence(judgement), because, do, text, tables=_tables(judgement),
        missing=missing, document=_document(judgement, run, references, word),
    )  # fmt: skip


def _sentence(judgement: Judgement) -> str:
    count = f"{judgement.references} good run{'s' * (judgement.references != 1)}"
    if judgement.diverged is None:
        return f"Cannot tell whether this run behaves like the {count}."
    if not judgement.diverged:
        return f"No divergence: this run behaves like the {count} in all {len(judgement.courses)} metrics compared."
    first, *others = judgement.left
    more = f"; {listed([departure.metric for departure in others])} left too" if others else ""
    return f"Diverged from the {count} {_since(first, judgement.clock)}: {first.metric} left first{more}."


def _since(departure: Left, clock: Clock) -> str:
    """When a metric left, with the interval that holds it."""
    unit = UNITS[clock]
    if departure.how != "level":
        return f"at {unit} {departure.at:,.0f}"
    last = math.ceil(departure.high) - 1
    return f"by {unit} {last:,} [{math.ceil(departure.low):,}, {last:,}]"


def _because(judgement: Judgement) -> str:
    """The reason for the verdict: what the first metric did, or how likely so large a distance is by chance."""
    if not judgement.diverged:
        return (
            f"the largest of its distances is one that a run of the same kind exceeds with p = {judgement.p:.2g}, "
            f"above the level {judgement.level:g}"
        )
    first = judgement.left[0]
    if first.block is None:
        what = "stops being logged" if first.how == "stopped" else "is not a finite number"
        return f"{first.metric} {what} there and continues in all references"
    return f"{first.metric} {_seen(first.block, judgement.clock)}, p = {judgement.p:.2g} for all metrics together"


def _seen(block: Block, clock: Clock) -> str:
    """What a metric did in a block."""
    where = f"over {UNITS[clock]}s {math.ceil(block.low):,} to {math.ceil(block.high) - 1:,}"
    return (
        f"is {number(block.run)} {where}, {number(block.mean)} in the references "
        f"({block.deviation:+.3g} ± {block.error:.2g}, band {number(block.band[0])} to {number(block.band[1])})"
    )


def _do(judgement: Judgement, names: Sequence[str]) -> str:
    if not judgement.diverged:
        return ""
    return "compare settings, versions and data of the run with those of the references" + (
        f", and {names[judgement.apart[0][0]]} with the other references" if judgement.apart else ""
    )


def _remarks(judgement: Judgement, names: Sequence[str]) -> list[str]:
    """What else the reader should know: references unlike the others, absent metrics, and what is seen unjudged."""
    remarks = [
        f"The references disagree: {visible(names[index], 60)} is apart from the others in {metric} "
        f"(p = {p:.2g}), which widens the bands; leave it out if it went wrong, or give more good runs."
        for index, metric, p in judgement.apart
    ]
    if judgement.absent:
        several = len(judgement.absent) > 1
        remarks.append(f"{listed(list(judgement.absent))} {'are' if several else 'is'} logged by all references and "
                       f"not by this run: nothing is known of {'them' if several else 'it'} here.")  # fmt: skip
    if judgement.diverged is None:
        remarks += [f"Seen, not judged: {departure.metric} {_how(departure)} from {UNITS[judgement.clock]} "
                    f"{departure.at:,.0f} on."
                    for departure in judgement.left]  # fmt: skip
        blocks = {name: max(blocks, key=lambda block: abs(block.t)) for name, blocks in judgement.courses.items()}
        for name in sorted(blocks, key=lambda name: -abs(blocks[name].t))[:SEEN]:
            remarks.append(f"Seen, not judged: {name} {_seen(blocks[name], judgement.clock)}.")
    return remarks


def _how(departure: Left) -> str:
    return "is not logged" if departure.how == "stopped" else "is not a finite number"


def _not_compared(judgement: Judgement) -> list[str]:
    """Metrics that took no part, and what is never compared."""
    lines = [f"Not compared: {name}, since {why}." for name, why in judgement.untested.items()]
    if judgement.courses:
        lines.append("Never compared: times (noise of the machine), the learning rate and counts of tokens and "
                     "rollouts (they restate settings), and the loss.")  # fmt: skip
    return lines


def _tables(judgement: Judgement) -> list[Table]:
    """Each metric in the block where it is farthest from the references."""
    if not judgement.courses:
        return []
    departures = {departure.metric: departure for departure in judgement.left}
    rows = []
    for name, blocks in judgement.courses.items():
        far = max(blocks, key=lambda block: abs(block.t))
        rows.append((
            name, _since(departures[name], judgement.clock) if name in departures else "",
            number(far.run), number(far.mean),
            f"{number(far.band[0])} to {number(far.band[1])}", f"{far.deviation:+.3g}", f"{far.error:.2g}",
            f"{far.t:+.1f}", f"{math.ceil(far.low):,} to {math.ceil(far.high) - 1:,}",
        ))  # fmt: skip
    header = ("metric", "left", "run", "references", "band", "deviation", "standard error", "t",
              f"farthest over {UNITS[judgement.clock]}s")  # fmt: skip
    caption = (
        f"In the quarter of the run where each is farthest. Band: |t| up to {judgement.limit:.1f}; a run like "
        f"the references leaves a band anywhere with chance {judgement.level:g}."
    )
    return [Table("Against the good runs", header, sorted(rows, key=lambda row: -abs(float(row[7]))), caption)]


def _document(judgement: Judgement, run: Run, references: Sequence[Run], word: Word) -> dict[str, Any]:
    """All of the comparison for programs."""
    return {
        "word": word,
        "sentence": _sentence(judgement),
        "source": str(run.meta.source),
        "references": [str(reference.meta.source) for reference in references],
        "first": asdict(judgement.left[0]) if judgement.left else None,
        **{name: value for name, value in asdict(judgement).items() if name != "references"},
    }
