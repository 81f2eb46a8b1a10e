"""What a comparison of credit found, in words: whether finer credit would help, what pays, and what would not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from grposcope.core.answer import KeyNumber
from grposcope.core.estimate import Estimate
from grposcope.core.run import Run, labels
from grposcope.core.text import capitalised, listed, number, percent, span, visible
from grposcope.instruments.credit import error as credit_error
from grposcope.instruments.credit import record as credits
from grposcope.instruments.credit.error import BASE, EXACT, Ranged, Z
from grposcope.instruments.credit.record import CreditRecord, SourceRecord

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


def subject(record: CreditRecord) -> str:
    """Sentence part that names the model, the task and the batch."""
    model, task = (visible(name or "?", 80) for name in (record.model, record.task))
    after = "" if record.step is None else f" after step {record.step:,}"
    return f"{model} on {task}{after}, {record.prompts} prompts × {record.group} rollouts"


def about(record: CreditRecord) -> str:
    """Sentence on what was drawn, and what it cost."""
    text = (
        f"{subject(record)}, mean reward {number(record.solved)}, {number(record.tokens)} tokens per prompt; the "
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


def details(record: CreditRecord) -> list[str]:
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


def missing(record: CreditRecord) -> list[str]:
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


def rows(record: CreditRecord) -> list[tuple[str, ...]]:
    """The table of sources, a row each, by HEADER."""
    return [
        (
            visible(source.name, 60), source.kind, f"{number(source.tokens.value)} ×", shown(source.mse),
            shown(source.saving),
            _bias(source),
            shown(source.wrong, percent), percent(source.within.value), percent(source.common.value),
        )
        for source in record.sources
    ]  # fmt: skip


def shown(value: Ranged, write: Callable[[float], str] = number) -> str:
    """A number with its interval in brackets, where it has one; "–" where it was not measured."""
    if not math.isfinite(value.value):
        return "cannot tell" if value.flag and value.flag != "not measured" else "–"
    if not math.isfinite(value.high - value.low):
        return write(value.value)
    if value.high - value.low <= 1e-6 * max(1.0, abs(value.value)):
        return write(round(value.value, 6))
    return f"{write(value.value)} ({span(value.low, value.high, write)})"


def latest(runs: Sequence[Run]) -> list[tuple[str, Run, CreditRecord]]:
    """The label, the run and what was measured last of its models, of each run that has it."""
    return [
        (label, run, credits.of_run(run)[-1])
        for label, run in zip(labels(runs), runs, strict=True)
        if credits.of_run(run)
    ]


# Parts of the verdict


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
    return f"none ({shown(source.bias)} measured)" if source.unbiased else shown(source.bias)


def _same_as_outcome(source: SourceRecord) -> bool:
    return not source.name.startswith(BASE) and source.within.value < 1e-9
