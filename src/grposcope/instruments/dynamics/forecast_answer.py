"""Answer on where the reward is going: the forecast of its level, and the closed forms that describe it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grposcope.core.answer import Answer, DrawnLater, Figure, KeyNumber, Table, Word
from grposcope.core.errors import UserError
from grposcope.core.run import Run, labels
from grposcope.core.text import capitalised, listed, number, percent, signed, span
from grposcope.instruments.dynamics import FORECAST, ForecastSettings
from grposcope.instruments.dynamics.forecast_summary import ForecastSummary, of_run, reward_column


def answers(runs: Sequence[Run], settings: ForecastSettings) -> list[Answer]:
    """Forecast and closed forms of one run; an overlay and a table for several; nothing where no reward is logged."""
    summaries: dict[str, ForecastSummary] = {}
    reasons: dict[str, str] = {}
    for label, run in zip(labels(runs), runs, strict=True):
        if reward_column(run) is None:
            continue
        try:
            summaries[label] = of_run(run, settings.horizon, settings.coverage, settings.until, models=len(runs) == 1)
        except UserError as error:
            reasons[label] = str(error)
    return [answer(summaries, reasons)] if summaries or reasons else []


def answer(summaries: Mapping[str, ForecastSummary], reasons: Mapping[str, str]) -> Answer:
    """The answer about these curves, by run; `reasons`: runs of which nothing can be told, and why."""
    if len(summaries) == 1 and not reasons:
        return _of_one(*next(iter(summaries.items())))
    cannot = [f"{label}: cannot tell where the reward is going: {reason}." for label, reason in reasons.items()]
    first, *others = [*(f"{label}: {_sentence(summary)}" for label, summary in summaries.items()), *cannot]
    if others:
        first, others = _counted(summaries, len(reasons)), [first, *others]
    return Answer(
        "dynamics", FORECAST.question, "told" if summaries else "cannot tell", first, text=others,
        tables=[_compared(summaries)] if summaries else [],
        figures=DrawnLater(lambda: _drawn(summaries)),
        document={**{label: _numbers(summary) for label, summary in summaries.items()},
                  **{label: {"cannot_tell": reason} for label, reason in reasons.items()}},
    )  # fmt: skip


def _drawn(summaries: Mapping[str, ForecastSummary]) -> Iterator[Figure]:
    """All forecasts in one figure; of one run also its phase portrait, where it has one."""
    from grposcope.instruments.dynamics.forecast_figures import fan, portrait

    if summaries:
        yield fan(list(summaries.values()), list(summaries))
    if len(summaries) == 1 and (figure := portrait(*summaries.values())) is not None:
        yield figure


def _counted(summaries: Mapping[str, ForecastSummary], unknown: int) -> str:
    counts = Counter(summary.ahead.verdict for summary in summaries.values())
    unknown += counts.pop("cannot tell", 0)
    parts = [f"{count} {'is' if count == 1 else 'are'} {verdict}" for verdict, count in counts.items()]
    parts += [f"{unknown} unknown"] if unknown else []
    return f"Of {counts.total() + unknown} reward curves, {listed(parts)}."


def _of_one(label: str, summary: ForecastSummary) -> Answer:
    ahead, constant = summary.ahead, summary.series.constant
    band = f"{ahead.coverage:.0%} band of single rewards {span(ahead.low[-1], ahead.high[-1])}"
    expected = f"Expected after {number(_further(summary))} more steps: {number(ahead.mean[-1])}, {band}."
    size = f"{len(summary.series.steps):,} points; {percent(1 - summary.ceiling)} of the variance is noise."
    text = [
        *([] if constant else [expected]),
        _plateau_sentence(summary),
        *([_hindsight_sentence(summary)] if summary.hindsight else []),
        *([] if math.isnan(summary.ceiling) else [size]),
        *([f"Note: {ahead.flag}."] if ahead.flag else []),
    ]
    word: Word = "cannot tell" if ahead.verdict == "cannot tell" else "told"
    return Answer(
        "dynamics", FORECAST.question, word, _sentence(summary), text=text,
        numbers=[] if constant else [
            KeyNumber("level now", ahead.level, f"{number(ahead.level.value)} ± {number(ahead.level.se)}"),
            KeyNumber("change of the level", ahead.change, f"{signed(ahead.change.value)} ± {number(ahead.change.se)}",
                      f"over {number(_further(summary))} more steps"),
        ],
        tables=[_models(summary)] if summary.fits and not constant else [],
        figures=DrawnLater(lambda: _drawn({label: summary})),
        document={label: _numbers(summary)},
    )  # fmt: skip


def _further(summary: ForecastSummary) -> float:
    return float(summary.ahead.steps[-1] - summary.series.steps[-1])


def _sentence(summary: ForecastSummary) -> str:
    """The verdict, and the change of the level that it rests on."""
    if summary.series.constant:
        return "The reward is constant: there is nothing to fit, and no gradient to learn from."
    ahead = summary.ahead
    steps, now = f"over {number(_further(summary))} more steps", number(ahead.level.value)
    between = " to ".join(map(signed, ahead.change_between))
    if ahead.verdict == "cannot tell":
        return (
            f"Cannot tell whether the reward will rise or fall: {steps} its level, now {now}, may change by {between}."
        )
    if ahead.verdict == "flat":
        return (
            f"Flat: {steps} the level, now {now}, is expected to change by {between}, which is less than the "
            f"noise of a step ({number(ahead.margin)})."
        )
    change = f"{signed(ahead.change.value)} ({between})"
    return f"{capitalised(ahead.verdict)}: {steps} the level, now {now}, is expected to change by {change}."


def _plateau_sentence(summary: ForecastSummary) -> str:
    """Where the curve ends, or why that cannot be told."""
    plateau = summary.plateau
    if plateau.flag:
        return f"Plateau: {plateau.flag}."
    ends = f"{number(plateau.value)} ± {number(plateau.se)}"
    if summary.ahead.verdict in ("flat", "cannot tell"):
        return f"Plateau of the best-fitting curve: {ends}; the forecast rests on the level alone."
    return f"Plateau: {ends}, 95% of the way at step {number(summary.plateau_step)}."


def _hindsight_sentence(summary: ForecastSummary) -> str:
    """How the forecast fared on rewards that were hidden from it."""
    assert summary.hindsight is not None
    points, covered, error = summary.hindsight
    return (
        f"Hidden steps: {percent(covered)} of {points} rewards lie inside the "
        f"{summary.ahead.coverage:.0%} interval; the error is {number(error)} × that of repeating "
        "the last level."
    )


def _models(summary: ForecastSummary) -> Table:
    rows = []
    for name, fit in summary.fits.items():
        plateau, tau, explained = fit.parameters["plateau"], fit.parameters["time_constant"], summary.explained(fit)
        rows.append((
            name,
            percent(explained) if math.isfinite(explained) else "",
            f"{number(plateau.value)} ± {number(plateau.se)}",
            f"{number(tau.value)} ± {number(tau.se)}",
            "; ".join(dict.fromkeys(filter(None, (plateau.flag, tau.flag)))),
        ))  # fmt: skip
    caption = (
        "Both curves describe the logged rewards. Extrapolated, they predict later rewards worse than "
        "the last level does, so the forecast does not use them. Because of noise, even the true curve "
        f"would explain only about {percent(summary.ceiling)} of the variance; what a model explains is "
        "given as a share of that."
    )
    header = ("model", "share of the remaining variance", "plateau", "time constant", "note")
    return Table("Fitted models", header, rows, caption, folded=True)


def _compared(summaries: Mapping[str, ForecastSummary]) -> Table:
    rows = []
    for label, o in summaries.items():
        ahead = o.ahead
        rows.append((
            label,
            f"{number(ahead.level.value)} ± {number(ahead.level.se)}",
            f"{number(ahead.mean[-1])} ({span(ahead.low[-1], ahead.high[-1])})",
            number(ahead.steps[-1]),
            f"{signed(ahead.change.value)} ({' to '.join(map(signed, ahead.change_between))})",
            ahead.verdict,
        ))  # fmt: skip
    header = ("run", "level now", "expected", "at step", "change of the level", "verdict")
    caption = "Expected reward with the interval of single rewards; the change exceeds either end with a chance of 10%."
    return Table("Forecasts", header, rows, caption)


def _numbers(summary: ForecastSummary) -> dict[str, Any]:
    """All numbers by the keys of JSON."""
    ahead = summary.ahead
    content: dict[str, Any] = {"n": len(summary.series.steps), "notes": list(summary.series.notes)}
    if summary.fits:
        content["ceiling"] = summary.ceiling
        content["models"] = {
            name: {
                "explained": summary.explained(fit),
                "r2": fit.r2,
                "parameters": dict(fit.parameters),
                "flag": fit.flag,
            }
            for name, fit in summary.fits.items()
        }
    content |= {
        "plateau": summary.plateau,
        "plateau_step": summary.plateau_step,
        "forecast": {
            "step": float(ahead.steps[-1]),
            "mean": float(ahead.mean[-1]),
            "low": float(ahead.low[-1]),
            "high": float(ahead.high[-1]),
            "coverage": ahead.coverage,
            "range": [ahead.limits.low, ahead.limits.high],
            "level": ahead.level,
            "change": ahead.change,
            "change_between": list(ahead.change_between),
            "margin": ahead.margin,
            "verdict": ahead.verdict,
            "flag": ahead.flag,
        },
    }
    if summary.hindsight is not None and len(summary.truth[0]):
        content["truth"] = dict(zip(("points", "covered", "error"), summary.hindsight, strict=True))
    return content
