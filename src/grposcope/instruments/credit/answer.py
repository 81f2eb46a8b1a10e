"""Whether finer credit would help, and which kind pays, as `grposcope credit` measured it.

Chart of sources of credit: tokens against the error of the gradient, with the line of equal worth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import altair as alt

from grposcope.core.answer import Answer, Columns, Figure, Table
from grposcope.core.run import Run
from grposcope.core.text import listed, number, visible
from grposcope.instruments.credit import INSTRUMENT
from grposcope.instruments.credit import findings as credit
from grposcope.instruments.credit.error import BASE, EXACT
from grposcope.instruments.credit.findings import shown
from grposcope.instruments.credit.record import NOT_MEASURED, CreditRecord, SourceRecord
from grposcope.render import charts as base
from grposcope.render.thinning import rounded


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
    drawn = [figure for figure in (_savings_chart(record), _frontier_chart(record)) if figure is not None]
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


COLUMNS = ("source", "group", "tokens", "error", "low", "high", "shown", "saving")
COLOURS = {"from the rollouts alone": "var(--run-1)", "bought with tokens": "var(--run-2)",
           "exact and controls": "var(--run-8)"}  # fmt: skip


def _frontier_chart(record: CreditRecord) -> Figure | None:
    """Every source at its tokens and error, logarithmic, with 95 % intervals; None where no error is known."""
    drawable = [source for source in record.sources if _drawable(source)]
    if len(drawable) < 2:
        return None
    rows = [_row(source) for source in drawable]
    tokens = [source.tokens.value for source in drawable]
    ends = [0.9 * min(tokens), 1.25 * max(tokens)]
    data: dict[str, Columns] = {
        "sources": {name: [row[i] for row in rows] for i, name in enumerate(COLUMNS)},
        "even": {"tokens": rounded(ends), "error": rounded(1 / end for end in ends)},
    }
    x = alt.X("tokens:Q", axis=alt.Axis(title="tokens generated, ÷ outcome credit", format="~g"))
    x = x.scale(type="log", nice=False, domain=ends)
    y = alt.Y("error:Q", axis=alt.Axis(format="~g")).scale(type="log", nice=False)
    shades = base.colours("group", COLOURS, alt.Legend())
    points = base.dataset("sources").encode(x, y, shades)
    tips = base.tooltips(source="credit", shown="error, ÷ outcome", saving="saving")
    even = base.dataset("even").mark_line(strokeDash=[4, 4], strokeWidth=1, color="var(--muted)").encode(x, y)
    layers = [
        even,
        points.mark_rule(strokeWidth=2, opacity=0.4).encode(alt.Y("low:Q"), alt.Y2("high")),
        points.mark_point(filled=True, size=70, opacity=1).encode(tooltip=tips),
        points.mark_text(align="left", dx=8, fontSize=11).encode(text="source:N"),
    ]
    text = (
        "Squared error of the gradient over all prompts against the tokens it takes, both relative to "
        "outcome credit with the same rollouts. Outcome credit with more prompts moves along the dashed "
        "line: below it a source saves more than it costs. Lines: 95% intervals. Sources without extra "
        "tokens lie at 1; only some are drawn."
    )
    return base.figure("credit_frontier", "Tokens against error", layers, data, unit="÷ outcome credit", caption=text,
                       height=320, wide=True)  # fmt: skip


def _savings_chart(record: CreditRecord) -> Figure | None:
    """What every source saves for the tokens that it takes, a row each; None where none is known."""
    measured = [source for source in record.sources if math.isfinite(source.saving.value) and source.saving.value > 0]
    if len(measured) < 2:
        return None
    names = ("source", "group", "saving", "low", "high", "shown")
    rows = []
    for source in sorted(measured, key=lambda one: -one.saving.value):
        low, high = (end if end > 0 and math.isfinite(end) else source.saving.value for end in _ends(source))
        numbers = rounded([source.saving.value, low, high])
        rows.append((visible(source.name, 60), _group(source), *numbers, shown(source.saving)))
    data: dict[str, Columns] = {
        "savings": {name: [row[i] for row in rows] for i, name in enumerate(names)},
        "even": {"saving": [1.0]},
    }
    x = alt.X("saving:Q", axis=alt.Axis(title="saving", format="~g", grid=True)).scale(type="log", nice=False)
    y = alt.Y("source:N", sort=None).axis(grid=False, labelLimit=220)
    points = base.dataset("savings").encode(x, y, base.colours("group", COLOURS, alt.Legend()))
    layers = [
        base.dataset("even").mark_rule(strokeDash=[4, 4], color="var(--muted)").encode(x),
        points.mark_rule(strokeWidth=2, opacity=0.4).encode(alt.X("low:Q"), alt.X2("high")),
        points.mark_point(filled=True, size=60, opacity=1).encode(
            tooltip=base.tooltips(source="credit", shown="saving")
        ),
    ]
    text = (
        "Error × tokens of outcome credit ÷ error × tokens of each source, with 95% intervals over "
        "prompts; a source to the right of the dashed line pays. The cost of exact credit is not counted here."
    )
    return base.figure("credit_savings", "What each credit saves", layers, data, unit="×", caption=text,
                       height=max(200, 20 * len(rows) + 20))  # fmt: skip


def _ends(source: SourceRecord) -> tuple[float, float]:
    return source.saving.low, source.saving.high


def _group(source: SourceRecord) -> str:
    """The name of the colour of a source."""
    return list(COLOURS)[2 if not source.purchasable else 1 if source.tokens.value > 1.001 else 0]


def _drawable(source: SourceRecord) -> bool:
    named = source.name in (BASE, "exact", "prefix", "state") or source.tokens.value != 1
    return named and all(math.isfinite(value) and value > 0 for value in (source.tokens.value, source.mse.value))


def _row(source: SourceRecord) -> tuple[object, ...]:
    low, high = (
        end if end > 0 and math.isfinite(end) else source.mse.value for end in (source.mse.low, source.mse.high)
    )
    drawn = rounded([source.tokens.value, source.mse.value, low, high])
    named = visible(source.name, 60)
    return named, _group(source), *drawn, shown(source.mse), f"{number(source.saving.value)} ×"
