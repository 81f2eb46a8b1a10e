"""Where the reward is going: fits, forecast, phases, and how far the run is from blowing up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from grposcope.dynamics import refresh
from grposcope.dynamics.stability import UpdateRule, refresh_interval, update_rule, with_curvature
from grposcope.errors import UserError
from grposcope.facts.forecast_summary import Outlook, ending, numbers, outlook, sentence, signed
from grposcope.formatting import listed, number
from grposcope.report.charts.dynamics import fan, portrait, stability_map
from grposcope.report.elements import Figure, PageTable, Section
from grposcope.runs.run import Run, labels
from grposcope.timeseries.curves import Fit, fit_series

POINTS = 250
"""Points that a page fits; longer runs are averaged to them, so that a page stays quick to make."""

REWARDS = ("reward", "reward_after_kl", "score")
"""Columns that can be forecast, the best first."""

WAYS = "measure it with `grposcope stability --run RUN --measure`"


def section(runs: Sequence[Run]) -> Section | None:
    """Forecast, models, phases and stability of one run; an overlay and a table for several."""
    found: dict[str, Outlook] = {}
    reasons: dict[str, str] = {}
    settings: dict[str, UpdateRule] = {}
    for label, run in zip(labels(runs), runs, strict=True):
        name = next((n for n in REWARDS if n in run.table and np.isfinite(run.table[n]).any()), None)
        if name is None:
            continue
        try:
            found[label] = outlook(run.table["step"], run.table[name], interval=refresh_interval(run), points=POINTS,
                                   models=len(runs) == 1)  # fmt: skip
        except UserError as error:
            reasons[label] = str(error)
            continue
        try:
            settings[label] = with_curvature(update_rule(run), _exponential(found[label]))
        except UserError:
            continue
    if not found and not reasons:
        return None
    return said(found, settings, reasons)


def said(found: dict[str, Outlook], settings: dict[str, UpdateRule], reasons: dict[str, str]) -> Section:
    """The section about these outlooks and settings; `reasons`: runs of which nothing can be told, and why."""
    text = [f"{f'{label}: ' * (len(found) + len(reasons) > 1)}{sentence(o)}" for label, o in found.items()]
    text += [f"{label}: cannot tell where the reward is going: {reason}." for label, reason in reasons.items()]
    drawn: list[Figure | None] = [fan(list(found.values()), list(found))] if found else []
    tables = []
    if len(found) == 1:
        (only,) = found.values()
        text += [ending(only), *_phases(only)]
        drawn.append(portrait(only))
        tables = [_models(only)] if only.compared is not None and not only.series.constant else []
    elif found:
        tables = [_compared(found)]
    text += [_stability(label, s, len(settings) > 1) for label, s in settings.items()]
    shown = {label: s for label, s in settings.items() if s.momentum == next(iter(settings.values())).momentum}
    if shown:
        drawn.append(stability_map(list(shown.values()), list(shown)))
    told = {label: {**numbers(o), **({"stability": stability(settings[label])} if label in settings else {})}
            for label, o in found.items()}  # fmt: skip
    return Section(
        "dynamics", "Where the reward is going", text=text, tables=tables,
        figures=[figure for figure in drawn if figure is not None],
        numbers={**told, **{label: {"cannot_tell": reason} for label, reason in reasons.items()}},
    )  # fmt: skip


def stability(found: UpdateRule) -> dict[str, Any]:
    """The numbers of the stability check; NaN where the curvature is not known."""
    known = math.isfinite(found.curvature.value)
    judged = refresh.margin(found.step, found.momentum, found.curvature.value, found.interval) if known else None
    return {
        "step": found.step,
        "momentum": found.momentum,
        "interval": found.interval,
        "optimizer": found.optimizer,
        "curvature": found.curvature,
        "threshold": judged.threshold if judged else math.nan,
        "share": judged.share if judged else math.nan,
        "onset": judged.onset if judged else math.nan,
        "missing": found.missing,
    }


def _exponential(found: Outlook) -> Fit:
    fitted = found.compared["exponential"].fit if found.compared is not None else None
    return fitted or fit_series(found.series, "exponential")


def _stability(label: str, found: UpdateRule, several: bool) -> str:
    name = f"{label}: " * several
    if not math.isfinite(found.curvature.value):
        return f"{name}Stability: curvature unknown, since {found.missing}; {WAYS}."
    told = stability(found)
    low, high = found.curvature.interval()
    least, most = (refresh.threshold(found.step, found.momentum, k) if k > 0 else math.inf for k in (high, low))
    unclear = " Its interval holds this run's own, so that it cannot be told." if least < found.interval <= most else ""
    return (
        f"{name}Stability: with the curvature that the reward's time constant implies, rollouts may serve at most "
        f"{number(told['threshold'])} optimiser steps ({number(least)} to {number(most)}) before a frozen force blows "
        f"up; this run's {found.interval} is {number(told['share'])} of it.{unclear} The reward does not see the "
        f"stiffest direction, which decides, so the true bound may be far lower: {WAYS}."
    )


def _phases(found: Outlook) -> list[str]:
    pieces = [f"{p.name} from step {number(p.begin)} to {number(p.end)} ({signed(p.slope.value)} ± "
              f"{number(p.slope.se)} per step)" for p in found.phases]  # fmt: skip
    return [f"Phases: {listed(pieces)}."]


def _models(found: Outlook) -> PageTable:
    compared = found.compared
    assert compared is not None
    rows = []
    for c in compared.contenders:
        plateau = c.fit.parameters["plateau"] if c.fit else found.ahead.plateau
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
    ceiling = number(compared.ceiling)
    text = (
        f"Each model is fitted to the first 50, 60, 70 and 80% and predicts the rest; 1 is the rule that the mean of "
        f"the last tenth goes on. {best[0].upper()}{best[1:]}. A curve without noise would have R² = {ceiling} here, "
        "which R² is divided by."
    )
    header = ("model", "error on later steps", "R² ÷ ceiling", "plateau", "time constant", "note")
    return PageTable("Fitted models", header, rows, text)


def _compared(found: dict[str, Outlook]) -> PageTable:
    rows = []
    for label, o in found.items():
        ahead = o.ahead
        rows.append((
            label,
            f"{number(ahead.level.value)} ± {number(ahead.level.se)}",
            f"{number(ahead.mean[-1])} ({number(ahead.low[-1])} to {number(ahead.high[-1])})",
            number(ahead.steps[-1]),
            f"{signed(ahead.gain.value)} ({signed(ahead.gain_between[0])} to {signed(ahead.gain_between[1])})",
            f"{number(ahead.plateau.value)} ± {number(ahead.plateau.se)}" if not ahead.plateau.flag else "cannot tell",
            ahead.verdict,
        ))  # fmt: skip
    header = ("run", "level now", "expected", "at step", "gain of going on", "plateau", "verdict")
    text = "Expected reward with the interval of single rewards; gains and verdicts at 90% on each side."
    return PageTable("Forecasts", header, rows, text)
