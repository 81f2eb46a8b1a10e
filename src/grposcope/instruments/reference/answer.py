"""Whether a run goes like the good ones, and where it left them first: a sentence, the metrics, and what is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from grposcope.core.answer import Answer, Table, Word
from grposcope.core.run import Run, labels
from grposcope.core.text import listed, number, visible
from grposcope.instruments.reference import INSTRUMENT
from grposcope.instruments.reference.clocks import UNITS, Clock
from grposcope.instruments.reference.gate import LEVEL, Block, Judgement, Left, judge

SEEN = 3
"""Metrics of which it is said what was seen where nothing is judged."""


def of_run(run: Run, references: Sequence[Run], clock: Clock = "step", level: float = LEVEL) -> Answer:
    """What is said of a run against runs that went well; UserError for one that is given twice, or lacks the clock."""
    found = judge(run, references, clock, level)
    names = labels(references)
    word: Word = "cannot tell" if found.diverged is None else "warning" if found.diverged else "healthy"
    text = [*_remarks(found, names), *(f"note: {one}." for one in found.notes), *_not_compared(found)]
    if found.diverged is None:
        because, do = "", ""
        missing = [f"Needed: {one}." for one in found.lacking]
    else:
        because, do, missing = _because(found), _do(found, names), []
    return Answer(
        "reference", INSTRUMENT.question, word, _sentence(found), because, do, text, tables=_tables(found),
        missing=missing, document=_document(found, run, references, word),
    )  # fmt: skip


def _sentence(found: Judgement) -> str:
    count = f"{found.references} good run{'s' * (found.references != 1)}"
    if found.diverged is None:
        return f"Cannot tell whether this run behaves like the {count}."
    if not found.diverged:
        return f"No divergence: this run behaves like the {count} in all {len(found.courses)} metrics compared."
    first, *others = found.left
    more = f"; {listed([one.metric for one in others])} left too" if others else ""
    return f"Diverged from the {count} {_since(first, found.clock)}: {first.metric} left first{more}."


def _since(one: Left, clock: Clock) -> str:
    """When a metric left, with the interval that holds it."""
    unit = UNITS[clock]
    if one.how != "level":
        return f"at {unit} {one.at:,.0f}"
    last = math.ceil(one.high) - 1
    return f"by {unit} {last:,} [{math.ceil(one.low):,}, {last:,}]"


def _because(found: Judgement) -> str:
    """The reason for the verdict: what the first metric did, or how likely so large a distance is by chance."""
    if not found.diverged:
        return (
            f"the largest of its distances is one that a run of the same kind exceeds with p = {found.p:.2g}, above "
            f"the level {found.level:g}"
        )
    first = found.left[0]
    if first.block is None:
        what = "stops being logged" if first.how == "stopped" else "is not a finite number"
        return f"{first.metric} {what} there and continues in all references"
    return f"{first.metric} {_seen(first.block, found.clock)}, p = {found.p:.2g} for all metrics together"


def _seen(block: Block, clock: Clock) -> str:
    """What a metric did in a block."""
    where = f"over {UNITS[clock]}s {math.ceil(block.low):,} to {math.ceil(block.high) - 1:,}"
    return (
        f"is {number(block.run)} {where}, {number(block.mean)} in the references "
        f"({block.deviation:+.3g} ± {block.error:.2g}, band {number(block.band[0])} to {number(block.band[1])})"
    )


def _do(found: Judgement, names: Sequence[str]) -> str:
    if not found.diverged:
        return ""
    return "compare settings, versions and data of the run with those of the references" + (
        f", and {names[found.apart[0].place]} with the other references" if found.apart else ""
    )


def _remarks(found: Judgement, names: Sequence[str]) -> list[str]:
    """What else the reader should know: references unlike the others, absent metrics, and what is seen unjudged."""
    remarks = [
        f"The references disagree: {visible(names[one.place], 60)} is apart from the others in {one.metric} "
        f"(p = {one.p:.2g}), which widens the bands; leave it out if it went wrong, or give more good runs."
        for one in found.apart
    ]
    if found.absent:
        several = len(found.absent) > 1
        remarks.append(f"{listed(list(found.absent))} {'are' if several else 'is'} logged by all references and not by "
                       f"this run: nothing is known of {'them' if several else 'it'} here.")  # fmt: skip
    if found.diverged is None:
        remarks += [f"Seen, not judged: {one.metric} {_how(one)} from {UNITS[found.clock]} {one.at:,.0f} on."
                    for one in found.left]  # fmt: skip
        blocks = {name: max(blocks, key=lambda one: abs(one.t)) for name, blocks in found.courses.items()}
        for name in sorted(blocks, key=lambda name: -abs(blocks[name].t))[:SEEN]:
            remarks.append(f"Seen, not judged: {name} {_seen(blocks[name], found.clock)}.")
    return remarks


def _how(one: Left) -> str:
    return "is not logged" if one.how == "stopped" else "is not a finite number"


def _not_compared(found: Judgement) -> list[str]:
    """Metrics that took no part, and what is never compared."""
    lines = [f"Not compared: {name}, since {why}." for name, why in found.untested.items()]
    if found.courses:
        lines.append("Never compared: times (noise of the machine), the learning rate and counts of tokens and "
                     "rollouts (they restate settings), and the loss.")  # fmt: skip
    return lines


def _tables(found: Judgement) -> list[Table]:
    """Each metric in the block where it is farthest from the references."""
    if not found.courses:
        return []
    left = {one.metric: one for one in found.left}
    rows = []
    for name, blocks in found.courses.items():
        far = max(blocks, key=lambda one: abs(one.t))
        rows.append((
            name, _since(left[name], found.clock) if name in left else "", number(far.run), number(far.mean),
            f"{number(far.band[0])} to {number(far.band[1])}", f"{far.deviation:+.3g}", f"{far.error:.2g}",
            f"{far.t:+.1f}", f"{math.ceil(far.low):,} to {math.ceil(far.high) - 1:,}",
        ))  # fmt: skip
    header = ("metric", "left", "run", "references", "band", "deviation", "standard error", "t",
              f"farthest over {UNITS[found.clock]}s")  # fmt: skip
    caption = (
        f"In the quarter of the run where each is farthest. Band: |t| up to {found.limit:.1f}; a run like "
        f"the references leaves a band anywhere with chance {found.level:g}."
    )
    return [Table("Against the good runs", header, sorted(rows, key=lambda row: -abs(float(row[7]))), caption)]


def _document(found: Judgement, run: Run, references: Sequence[Run], word: Word) -> dict[str, Any]:
    """All of the comparison for programs."""
    return {
        "word": word,
        "sentence": _sentence(found),
        "source": str(run.meta.source),
        "references": [str(one.meta.source) for one in references],
        "first": asdict(found.left[0]) if found.left else None,
        **{name: value for name, value in asdict(found).items() if name != "references"},
    }
