"""Whether finer credit would help, and which kind pays, as `grposcope credit` measured it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from grposcope.core.answer import Answer, Table
from grposcope.core.run import Run
from grposcope.core.text import listed
from grposcope.instruments.credit import INSTRUMENT
from grposcope.instruments.credit import figures as charts
from grposcope.instruments.credit import findings as credit
from grposcope.instruments.credit.error import EXACT
from grposcope.instruments.credit.record import NOT_MEASURED, CreditRecord


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """The last comparison of each run: everything of one, the verdicts of several."""
    result = _section(runs)
    return [] if result is None else [result]


def _section(runs: Sequence[Run]) -> Answer | None:
    """What the last comparison of each run found; None where no run has one."""
    records_ = [(label, record) for label, _, record in credit.latest(runs)]
    if not records_:
        return None
    document = {label: _document(record) for label, record in records_}
    if len(records_) > 1:
        return replace(_compared(records_), document=document)
    _, record = records_[0]
    drawn = [figure for figure in (charts.savings(record), charts.frontier(record)) if figure is not None]
    return replace(of_record(record), figures=drawn, document=document)


def of_record(record: CreditRecord) -> Answer:
    """What one comparison found, without charts: what `grposcope credit` prints, and the page shows of its run."""
    return Answer(
        "credit", INSTRUMENT.question, sentence=credit.verdict(record),
        text=[*credit.offers(record), credit.about(record), *credit.details(record)], numbers=credit.numbers(record),
        tables=[Table("Sources of credit", credit.HEADER, credit.rows(record), credit.MEANING)],
        missing=credit.missing(record), document=_document(record),
    )  # fmt: skip


def _compared(labelled: Sequence[tuple[str, CreditRecord]]) -> Answer:
    """The last comparisons of several runs, a verdict each."""
    exact = [(label, record.source(EXACT)) for label, record in labelled]
    savings = [
        f"{credit.shown(NOT_MEASURED if source is None else source.saving)} in {label}" for label, source in exact
    ]
    return Answer(
        "credit", INSTRUMENT.question,
        sentence=f"With exact credit the gradient would need this many times fewer rollouts: {listed(savings)}.",
        text=[f"{label}: {' '.join([credit.verdict(record), *credit.offers(record)])}" for label, record in labelled],
    )  # fmt: skip


def _document(record: CreditRecord) -> dict[str, Any]:
    return record.summary() | {"verdict": " ".join([credit.verdict(record), *credit.offers(record)])}
