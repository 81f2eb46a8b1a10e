"""Where rollouts were spent: by forecast success rate, live groups against the promise, and how good forecasts were."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np

from grposcope.allocation import chosen, scores
from grposcope.errors import UserError
from grposcope.facts.metrics import outline
from grposcope.formatting import percent
from grposcope.report.charts import base
from grposcope.report.charts.curves import curve
from grposcope.report.charts.thinning import columns
from grposcope.report.elements import Figure, Section
from grposcope.runs.native.forecasts import GroupForecasts, of_run
from grposcope.runs.run import Run, labels

METRICS = ("allocation/live", "allocation/live_promised", "allocation/effective_prompts", "allocation/saving_predicted")
BINS = 10


def section(runs: Sequence[Run]) -> Section | None:
    """Rollouts by success rate, live share and what was promised, effective prompts, and the reliability curve."""
    figures = [found for name in METRICS if (found := curve(name, runs)) is not None]
    forecasts = of_run(runs[0].meta.source) if len(runs) == 1 else None
    if forecasts is not None:
        figures = [spent(forecasts), reliability(forecasts), *figures]
    if not figures:
        return None
    named = dict(zip(labels(runs), runs, strict=True))
    text = [line for label, run in named.items() if (line := _said(label if len(runs) > 1 else "", run))]
    if forecasts is not None:
        text.append(_skill(forecasts))
    numbers = {
        label: {name: outline(run.table[name]) for name in METRICS if name in run.table} for label, run in named.items()
    }
    return Section("allocation", "Where rollouts were spent", text=text, figures=figures, numbers=numbers)


def _said(label: str, run: Run) -> str:
    """What the allocator of a run does to the objective, and how its promise was kept."""
    try:
        one = chosen(str(run.setting("allocate") or "uniform"))
    except UserError:
        return ""
    text = f"{label}: " if label else ""
    text += f"Allocated by {one.text}: {one.objective}."
    live, promised = (run.table.get(f"allocation/{name}") for name in ("live", "live_promised"))
    if live is not None and promised is not None:
        both = np.isfinite(live) & np.isfinite(promised)
        if both.sum() > 1:
            gap, seen, said = (live - promised)[both], float(live[both].mean()), float(promised[both].mean())
            error = 1.96 * float(gap.std(ddof=1)) / np.sqrt(len(gap))
            text += (
                f" Of the groups drawn {percent(seen)} were live, {percent(said)} were promised (difference "
                f"{percent(float(gap.mean()), 1)} ± {percent(error, 1)})."
            )
    return text


def _skill(groups: GroupForecasts) -> str:
    """How good the forecasts of success rates were."""
    given = groups.successes, groups.rollouts, groups.problem
    over = {
        name: scores.skill(groups.forecast, getattr(groups, kind), *given)
        for name, kind in (("the base rate", "base"), ("the task's difficulty alone", "difficulty"))
    }
    told = scores.calibration(groups.forecast, *given)
    skills = ", ".join(
        f"{percent(s.skill, 1)} ({percent(s.interval[0], 1)} to {percent(s.interval[1], 1)}) over {name}"
        for name, s in over.items()
    )
    low, high = told.slope_interval
    good = "calibrated" if low <= 1 <= high else "too extreme" if high < 1 else "too cautious"
    first = over["the base rate"]
    return (
        f"Forecasts of success rates, {len(groups):,} groups of {first.problems:,} problems: Brier score "
        f"{first.brier:.3f}, skill {skills}. By the slope of their log odds, {told.slope:.2f} ({low:.2f} to "
        f"{high:.2f}), they are {good}."
    )


def spent(groups: GroupForecasts) -> Figure:
    """Share of the rollouts, and of the groups, by forecast success rate."""
    place = np.minimum((groups.forecast * BINS).astype(int), BINS - 1)
    shares = {
        "rollouts": np.bincount(place, groups.rollouts, BINS) / groups.rollouts.sum(),
        "groups": np.bincount(place, minlength=BINS) / len(groups),
    }
    rows = [
        ((i + 0.5) / BINS, f"{i / BINS:.0%} to {(i + 1) / BINS:.0%}", kind, round(float(share[i]), 4))
        for kind, share in shares.items()
        for i in range(BINS)
    ]
    data = {"bins": columns(("rate", "between", "kind", "share"), rows)}
    shades = {"rollouts": "var(--run-1)", "groups": "var(--run-2)"}
    legend = alt.Legend(symbolType="stroke", symbolStrokeWidth=2, symbolSize=180, symbolOpacity=1)
    lines = base.dataset("bins").encode(
        alt.X("rate:Q").axis(title="forecast success rate", format="~%").scale(domain=[0, 1]),
        alt.Y("share:Q").axis(format="~%"),
        base.colours("kind", shades, legend),
        tooltip=base.tooltips(between="success rate", kind="of", share="share"),
    )
    text = "Shares of the rollouts and of the groups by the success rate that was forecast before they were drawn."
    return base.figure("allocation_spent", "Rollouts by success rate", [base.dotted_line(lines)], data, caption=text)


def reliability(groups: GroupForecasts) -> Figure:
    """Observed success rate against the forecast one, in bins of equally many groups."""
    told = scores.calibration(groups.forecast, groups.successes, groups.rollouts, groups.problem)
    rows = []
    for one in told.bins:
        low, high = one.observed.interval()
        numbers = (round(float(v), 4) for v in (one.forecast, one.observed.value, max(low, 0), min(high, 1)))
        rows.append((*numbers, one.observed.n))
    data = {"bins": columns(("forecast", "observed", "low", "high", "n"), rows),
            "ideal": columns(("forecast", "observed"), [(0.0, 0.0), (1.0, 1.0)])}  # fmt: skip
    x = alt.X("forecast:Q").axis(title="forecast", format="~%").scale(domain=[0, 1])
    tips = base.tooltips(forecast="forecast", observed="observed", low="95% from", high="to", n="groups")
    bins = base.dataset("bins").encode(x, base.share("observed"))
    layers = [
        base.dataset("ideal").mark_line(color="var(--muted)", strokeDash=[2, 4]).encode(x, base.share("observed")),
        bins.mark_rule(color="var(--run-1)").encode(base.share("low"), alt.Y2("high")),
        bins.mark_point(filled=True, size=60, color="var(--run-1)").encode(tooltip=tips),
    ]
    text = "Each point: a tenth of the groups, with a 95% interval; on the dotted line forecasts come true."
    return base.figure("allocation_reliability", "Forecast success rates come true", layers, data, caption=text)
