"""Whether finer credit would help, and which kind pays, as `grposcope credit` measured it.

Chart of sources of credit: tokens against the error of the gradient, with the line of equal worth.

What a comparison of credit found, in words: whether finer credit would help, what pays, and what would not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import altair as alt

from grposcope.core.answer import Answer, Columns, Figure, KeyNumber, Table
from grposcope.core.estimate import Estimate
from grposcope.core.run import Run, labels
from grposcope.core.text import capitalised, listed, number, percent, span, visible
from grposcope.instruments.credit import INSTRUMENT
from grposcope.instruments.credit import error as credit_error
from grposcope.instruments.credit import record as credits
from grposcope.instruments.credit.error import BASE, EXACT, Ranged, Z
from grposcope.instruments.credit.record import NOT_MEASURED, CreditRecord, SourceRecord
from grposcope.render import charts as base
from grposcope.render.thinning import rounded


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """The last comparison of each run: everything of one, the verdicts of several."""
    result = _section(runs)
    return [] if result is None else [result]


def _section(runs: Sequence[Run]) -> Answer | None:
    """What the last comparison of each run found; None where no run has one."""
    records_ = [(label, record) for label, _, record in _latest(runs)]
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
        "credit", INSTRUMENT.question, sentence=verdict(record),
        text=[*offers(record), about(record), *_details(record)], numbers=numbers(record),
        tables=[Table("Sources of credit", HEADER, _rows(record), MEANING)],
        missing=_missing(record), document=_document(record),
    )  # fmt: skip


def _compared(labelled: Sequence[tuple[str, CreditRecord]]) -> Answer:
    """The last comparisons of several runs, a verdict each."""
    exact = [(label, record.source(EXACT)) for label, record in labelled]
    savings = [f"{_shown(NOT_MEASURED if source is None else source.saving)} in {label}" for label, source in exact]
    return Answer(
        "credit", INSTRUMENT.question,
        sentence=f"With exact credit the gradient would need this many times fewer rollouts: {listed(savings)}.",
        text=[f"{label}: {' '.join([verdict(record), *offers(record)])}" for label, record in labelled],
    )  # fmt: skip


def _document(record: CreditRecord) -> dict[str, Any]:
    return record.summary() | {"verdict": " ".join([verdict(record), *offers(record)])}


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
        rows.append((visible(source.name, 60), _group(source), *numbers, _shown(source.saving)))
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
    return named, _group(source), *drawn, _shown(source.mse), f"{number(source.saving.value)} ×"


LITTLE = 1.1
"""Saving up to which exact credit is not worth looking for."""

HEADER = ("credit", "class", "tokens", "error", "saving", "bias", "wrong signs", "inside rollouts", "common")
"""Columns of the table of sources."""

MEANING = (
    "Error: squared error of the gradient over all prompts, at the best learning rate, relative to "
    "outcome credit (leave-one-out). Tokens: tokens generated, relative to outcome credit. Saving: "
    "error × tokens of outcome credit ÷ error × tokens of the source; above 1 the source pays. Bias: its "
    "size ÷ the root error of outcome credit. Wrong signs: share of steps with clearly nonzero exact "
    "credit that get the opposite sign. Inside rollouts: share of the squared credit that differs "
    "between the tokens of a rollout; common: share that is equal over a group, which group centring "
    "would remove. 95% intervals over prompts. Class: i rollouts alone, ii continuations, iii trees, "
    "iv value head, v verifier of steps, vi log-probabilities."
)
"""How to read the table."""


def _subject(record: CreditRecord) -> str:
    """Sentence part that names the model, the task and the batch."""
    model, task = (visible(name or "?", 80) for name in (record.model, record.task))
    after = "" if record.step is None else f" after step {record.step:,}"
    return f"{model} on {task}{after}, {record.prompts} prompts × {record.group} rollouts"


def about(record: CreditRecord) -> str:
    """Sentence on what was drawn, and what it cost."""
    text = (
        f"{_subject(record)}, mean reward {number(record.solved)}, {number(record.tokens)} tokens per prompt; the "
        f"true gradient is measured on {record.reference} further rollouts of each prompt"
    )
    if record.continuations:
        text += (
            f"; {record.continuations} continuations were drawn from each of {number(record.boundaries)} ends of "
            f"{record.at} per rollout, {number(record.extra)} tokens per prompt"
        )
    return f"{text}."


def verdict(record: CreditRecord) -> str:
    """Whether finer credit can help, in one sentence."""
    return f"{capitalised(_exact(record))}."


def offers(record: CreditRecord) -> list[str]:
    """The cheapest source that pays, and what continuations would cost: a sentence each."""
    return [f"{capitalised(sentence)}." for sentence in (_paying(record), _continued(record)) if sentence]


def _details(record: CreditRecord) -> list[str]:
    """What else is said of a comparison, beside its verdict."""
    said = []
    if math.isfinite(record.floor.high):
        said.append(
            f"{percent(max(record.floor.value, 0.0))} ({span(record.floor.low, record.floor.high, percent)}) "
            "of the error of outcome credit comes from differences between prompts, which no source of credit removes."
        )
    if record.effective < record.prompts / 2:
        said.append(
            f"A few prompts with large gradients dominate the error: {record.prompts} prompts count as "
            f"{number(record.effective)} equal ones. The intervals take this into account."
        )
    if record.recurrence:
        text, step = (percent(record.recurrence.get(name, math.nan)) for name in ("text", "step"))
        said.append(
            f"At {text} of the step ends inside rollouts, another rollout of the group has the same text so "
            f"far; at {step}, another has the same step. If these shares are large, credit from merged rollouts looks "
            "better here than in general."
        )
    if disguised := [source.name for source in record.sources if _same_as_outcome(source)]:
        said.append(f"Constant within every rollout, and so identical to outcome credit: {listed(disguised)}.")
    return said


def _missing(record: CreditRecord) -> list[str]:
    """A sentence for each reason why sources were not measured, or nothing can be told of them."""
    doubts: dict[str, list[str]] = {}
    for source in record.sources:
        if source.mse.flag:
            doubts.setdefault(source.mse.flag, []).append(visible(source.name))
    unsure = [f"Cannot tell for {listed(names)}: {why}." for why, names in doubts.items()]
    return unsure + [f"Skipped {visible(name)}: {visible(why)}." for name, why in record.skipped.items()]


def numbers(record: CreditRecord) -> tuple[KeyNumber, ...]:
    """The numbers of a comparison that are shown large."""
    named = {"exact credit saves": EXACT, "merged prefixes save": "prefix"}
    savings = {title: source.saving for title, name in named.items() if (source := record.source(name)) is not None}
    return tuple(
        KeyNumber(
            title, Estimate(saving.value, math.nan, 0, "see the interval"), f"{number(saving.value)} ×",
            span(saving.low, saving.high),
        )
        for title, saving in savings.items()
        if math.isfinite(saving.value)
    )  # fmt: skip


def _rows(record: CreditRecord) -> list[tuple[str, ...]]:
    """The table of sources, a row each, by HEADER."""
    return [
        (
            visible(source.name, 60), source.kind, f"{number(source.tokens.value)} ×", _shown(source.mse),
            _shown(source.saving),
            _bias(source),
            _shown(source.wrong, percent), percent(source.within.value), percent(source.common.value),
        )
        for source in record.sources
    ]  # fmt: skip


def _shown(value: Ranged, write: Callable[[float], str] = number) -> str:
    """A number with its interval in brackets, where it has one; "–" where it was not measured."""
    if not math.isfinite(value.value):
        return "cannot tell" if value.flag and value.flag != "not measured" else "–"
    if not math.isfinite(value.high - value.low):
        return write(value.value)
    if value.high - value.low <= 1e-6 * max(1.0, abs(value.value)):
        return write(round(value.value, 6))
    return f"{write(value.value)} ({span(value.low, value.high, write)})"


def _latest(runs: Sequence[Run]) -> list[tuple[str, Run, CreditRecord]]:
    """The label, the run and what was measured last of its models, of each run that has it."""
    return [
        (label, run, credits.of_run(run)[-1])
        for label, run in zip(labels(runs), runs, strict=True)
        if credits.of_run(run)
    ]


def _exact(record: CreditRecord) -> str:
    exact = record.source(EXACT)
    if exact is None:
        why = visible(record.skipped.get(EXACT, "exact credit was not measured"))
        return f"cannot tell whether finer credit would help: {why}"
    saving = exact.saving
    if not math.isfinite(saving.value):
        return f"cannot tell whether finer credit would help: {saving.flag or 'too few prompts'}"
    if saving.low > 1:
        return f"finer credit can help: with exact credit the gradient would need {_fewer(saving, 'rollouts')}"
    if saving.high < LITTLE:
        least = f"{number(saving.high)} × fewer rollouts for the same error"
        return (
            f"finer credit cannot help much: even with exact credit the gradient would need at most {least} "
            f"({number(saving.value)} ×, {span(saving.low, saving.high)})"
        )
    return (
        f"cannot tell whether finer credit would help: with exact credit the gradient would need "
        f"{_fewer(saving, 'rollouts')}; {_more(exact, record)}"
    )


def _fewer(saving: Ranged, what: str) -> str:
    """How much less, or more, is needed for the same error, with its 95% interval."""
    value, low, high, word = saving.value, saving.low, saving.high, "fewer"
    if value < 1:
        value, low, high, word = 1 / value, 1 / high if high else math.inf, 1 / low if low else math.inf, "more"
    return f"{number(value)} × {word} {what} for the same error ({span(low, high)})"


def _paying(record: CreditRecord) -> str:
    bought = _bought(record)
    names = {source.name for source in credit_error.pays([source.error() for source in bought])}
    if paying := sorted((source for source in bought if source.name in names), key=lambda source: source.tokens.value):
        least = [source for source in paying if source.tokens.value <= paying[0].tokens.value * 1.001]
        best = max(least, key=lambda source: source.saving.value)
        return f"the cheapest source that pays is {_saving(best)}"
    measured = [source for source in bought if math.isfinite(source.saving.value)]
    if not measured:
        return "no source of credit that costs tokens was measured"
    best = max(measured, key=lambda source: source.saving.value)
    return f"no measured source is shown to pay; the best of them is {_saving(best)}"


def _saving(source: SourceRecord) -> str:
    """A source with what it saves."""
    return f"{visible(source.name)}, which takes {_fewer(source.saving, 'tokens')}"


def _continued(record: CreditRecord) -> str:
    every = [source for source in _bought(record) if source.kind == "ii" and math.isfinite(source.saving.value)]
    if not every:
        return ""
    best = max(every, key=lambda source: source.saving.value)
    estimate = f"credit from K = {best.name.rpartition('=')[2]} continuations per step"
    if best.saving.value >= 1:
        return f"{estimate} takes {number(best.saving.value)} × fewer tokens, the continuations included"
    times = number(1 / best.saving.value)
    return f"{estimate} takes {times} × more tokens, because the continuations cost more than they save"


def _bought(record: CreditRecord) -> list[SourceRecord]:
    return [source for source in record.sources if source.purchasable and source.name != BASE]


def _more(source: SourceRecord, record: CreditRecord) -> str:
    """How many prompts would tell a saving of this size from 1."""
    needed = _prompts_to_tell(source.saving.value, source.log_error, record.prompts)
    if not math.isfinite(needed) or needed > 100_000:
        return "that saving is too close to 1 to be measured with any number of prompts"
    return f"about {max(float(f'{needed:.2g}'), record.prompts + 1):,.0f} prompts would decide"


def _prompts_to_tell(saving: float, log_error: float, prompts: int) -> float:
    """Prompts from which a saving of this size would be told from 1 four times in five; infinite for none."""
    distance = abs(math.log(saving)) if saving > 0 else 0.0
    return math.inf if distance == 0 else prompts * ((Z + 0.84) * log_error / distance) ** 2


def _bias(source: SourceRecord) -> str:
    if source.name == BASE:
        return "none"
    return f"none ({_shown(source.bias)} measured)" if source.unbiased else _shown(source.bias)


def _same_as_outcome(source: SourceRecord) -> bool:
    return not source.name.startswith(BASE) and source.within.value < 1e-9
