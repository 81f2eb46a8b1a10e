"""Section on where the reward is going: fits, forecast, phases, and how far the run is from blowing up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from grposcope.dynamics.stability import update_rule, with_curvature
from grposcope.errors import UserError
from grposcope.facts import forecast_summary, stability
from grposcope.facts.forecast_summary import ForecastSummary, of_run, reward_column, signed
from grposcope.facts.stability import Stability
from grposcope.formatting import listed, number, percent
from grposcope.report.charts.dynamics import fan, portrait, stability_map
from grposcope.report.elements import Figure, PageTable, Section
from grposcope.runs.run import Run, labels
from grposcope.timeseries.curves import Fit, fit_series


def section(runs: Sequence[Run]) -> Section | None:
    """Forecast, models, phases and stability of one run; an overlay and a table for several."""
    summaries: dict[str, ForecastSummary] = {}
    reasons: dict[str, str] = {}
    checks: dict[str, Stability] = {}
    for label, run in zip(labels(runs), runs, strict=True):
        if reward_column(run) is None:
            continue
        try:
            summary = of_run(run, models=len(runs) == 1)
        except UserError as error:
            reasons[label] = str(error)
            continue
        summaries[label] = summary
        try:
            checks[label] = stability.of_rule(with_curvature(update_rule(run), _exponential(summary)))
        except UserError:
            continue
    if not summaries and not reasons:
        return None
    return rendered(summaries, checks, reasons)


def rendered(summaries: dict[str, ForecastSummary], checks: dict[str, Stability], reasons: dict[str, str]) -> Section:
    """The section about these curves and checks, by run; `reasons`: runs of which nothing can be told, and why."""
    several = len(summaries) + len(reasons) > 1
    text = [f"{label}: {s.sentence}" if several else s.sentence for label, s in summaries.items()]
    text += [f"{label}: cannot tell where the reward is going: {reason}." for label, reason in reasons.items()]
    figures: list[Figure | None] = [fan(list(summaries.values()), list(summaries))] if summaries else []
    tables = []
    if len(summaries) == 1:
        (only,) = summaries.values()
        text += [only.plateau_sentence, f"Phases: {listed(only.phase_clauses)}."]
        figures.append(portrait(only))
        tables = [_models(only)] if only.compared is not None and not only.series.constant else []
    elif summaries:
        tables = [_compared(summaries)]
    text += [f"{label}: {check.sentence}" if len(checks) > 1 else check.sentence for label, check in checks.items()]
    rules = {label: check.rule for label, check in checks.items()}
    shown = {label: rule for label, rule in rules.items() if rule.momentum == next(iter(rules.values())).momentum}
    if shown:
        figures.append(stability_map(list(shown.values()), list(shown)))
    numbers: dict[str, Any] = {label: forecast_summary.numbers(summary) for label, summary in summaries.items()}
    for label, check in checks.items():
        numbers[label]["stability"] = stability.numbers(check)
    return Section(
        "dynamics", "Where the reward is going", text=text, tables=tables,
        figures=[figure for figure in figures if figure is not None],
        numbers={**numbers, **{label: {"cannot_tell": reason} for label, reason in reasons.items()}},
    )  # fmt: skip


def _exponential(summary: ForecastSummary) -> Fit:
    fitted = summary.compared["exponential"].fit if summary.compared is not None else None
    return fitted or fit_series(summary.series, "exponential")


def _models(summary: ForecastSummary) -> PageTable:
    compared = summary.compared
    assert compared is not None
    rows = []
    for c in compared.contenders:
        plateau = c.fit.parameters["plateau"] if c.fit else summary.plateau
        tau = c.fit.parameters.get("time_constant") if c.fit else None
        rows.append((
            c.model,
            f"{number(c.held_out.value)} ± {number(c.held_out.se)}",
            number(c.explained) if math.isfinite(c.explained) else "",
            f"{number(plateau.value)} ± {number(plateau.se)}" if c.fit else "",
            f"{number(tau.value)} ± {number(tau.se)}" if tau else "",
            "; ".join(dict.fromkeys(filter(None, (plateau.flag, tau.flag if tau else "")))) if c.fit else
            "the average over models that is drawn",
        ))  # fmt: skip
    best = compared.flag or f"{compared.best} predicts later steps best"
    text = (
        f"Each model is fitted to the first 50, 60, 70 and 80% and predicts the rest; 1 is the rule that the mean of "
        f"the last tenth goes on. {best[0].upper()}{best[1:]}. Noise hides the rest: even the true "
        f"curve would explain about {percent(compared.ceiling)} of the variance, and R² is divided by that."
    )
    header = ("model", "error on later steps", "R² ÷ ceiling", "plateau", "time constant", "note")
    return PageTable("Fitted models", header, rows, text, folded=True)


def _compared(summaries: dict[str, ForecastSummary]) -> PageTable:
    rows = []
    for label, o in summaries.items():
        ahead = o.ahead
        rows.append((
            label,
            f"{number(ahead.level.value)} ± {number(ahead.level.se)}",
            f"{number(ahead.mean[-1])} ({number(ahead.low[-1])} to {number(ahead.high[-1])})",
            number(ahead.steps[-1]),
            f"{signed(ahead.change.value)} ({signed(ahead.change_between[0])} to {signed(ahead.change_between[1])})",
            ahead.verdict,
        ))  # fmt: skip
    header = ("run", "level now", "expected", "at step", "change of the level", "verdict")
    text = "Expected reward with the interval of single rewards; each change goes beyond either end with 10%."
    return PageTable("Forecasts", header, rows, text)
