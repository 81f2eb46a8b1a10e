"""Charts of the diagnosis: metrics that show what is flagged, the training reward, and held-out scores."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import altair as alt

from grposcope.core.answer import Figure
from grposcope.core.finding import Finding
from grposcope.core.metrics import VARIANTS, variant
from grposcope.core.run import Run, labels
from grposcope.core.text import visible
from grposcope.faults import catalogue
from grposcope.instruments.diagnosis import learning
from grposcope.maths.intervals import interval, shown_interval
from grposcope.render import charts as base
from grposcope.render.charts import colours, palette
from grposcope.render.curves import curve, onset_rule, since
from grposcope.render.thinning import extremes, joined, rounded
from grposcope.signs import heldout

DRAWN = 6
"""Charts of what is flagged, at most."""

OF_SCORES = ("reward hacking", "held-out decline")
"""Faults that the held-out score shows."""

SCORES = 5
"""Further held-out scores that are drawn for one run."""

KEPT = 150
"""Evaluations drawn per run and metric."""


def of_findings(run: Run, findings: Sequence[Finding]) -> list[Figure]:
    """A chart per metric that shows what is flagged, with the onset of each mode marked."""
    onsets: dict[str, dict[str, int | None]] = {}
    for finding in findings:
        if finding.status == "present" and not (finding.fault in OF_SCORES and learning.score(run)):
            for name in evident(finding, run.table):
                onsets.setdefault(name, {})[finding.fault] = finding.onset
    drawn = [_marked(run, name, modes) for name, modes in list(onsets.items())[:DRAWN]]
    return [figure for figure in drawn if figure is not None]


def _marked(run: Run, name: str, modes: Mapping[str, int | None]) -> Figure | None:
    """The curve of a metric with a dashed line at the onset of each failure mode; None without finite values."""
    onsets = {mode: step for mode, step in modes.items() if step is not None}
    figure = curve(name, [run], onsets=onsets)
    if figure is None:
        return None
    caption = f"Dashed: {since(onsets)}. {figure.caption}" if onsets else figure.caption
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return replace(figure, name=f"diagnosis-{plain}", caption=caption)


def of_scores(run: Run, findings: Sequence[Finding]) -> dict[str, int]:
    """Onsets of the faults that are of the held-out score, which are marked there and not on the reward."""
    if not learning.score(run):
        return {}
    return {
        finding.fault: finding.onset
        for finding in findings
        if finding.status == "present" and finding.onset is not None and finding.fault in OF_SCORES
    }


def evident(finding: Finding, table: Mapping[str, Any]) -> list[str]:
    """The columns that show a finding: those that its evidence was measured on, and the others that its test needs."""
    measured = [evidence.column for evidence in finding.evidence if evidence.column in table]
    test = catalogue.faults()[finding.fault].log
    needed = [variant(quantity, table) for quantity in (test.needs if test is not None else ())]
    related = {other for name in measured for names in VARIANTS.values() if name in names for other in names}
    return list(dict.fromkeys([*measured, *(name for name in needed if name is not None and name not in related)]))


def reward(runs: Sequence[Run]) -> Figure | None:
    """Reward of the training batches; on an axis from 0 to 1 where all are shares."""
    columns = [run.table["reward"] for run in runs if "reward" in run.table]
    shares = bool(columns) and all(((c >= 0) & (c <= 1) | ~(abs(c) < math.inf)).all() for c in columns)
    return curve("reward", runs, domain=[0, 1] if shares else ())


def accuracies(runs: Sequence[Run], onsets: Mapping[str, int] | None = None) -> list[Figure | None]:
    """The held-out score that is looked at of each run, and of one run SCORES others. onsets: to mark on the first."""
    first = list(dict.fromkeys(name for run in runs if (name := learning.score(run))))
    others = heldout.of_run(runs[0]) if len(runs) == 1 else []
    others = [name for name in others if not name.startswith("pass@")][: SCORES + 1]
    names = list(dict.fromkeys([*first, *others]))
    return [_accuracy(runs, name, index, None if index else onsets) for index, name in enumerate(names)]


def _accuracy(
    runs: Sequence[Run], metric: str, index: int = 0, onsets: Mapping[str, int] | None = None
) -> Figure | None:
    """A held-out score with error bars, a colour per run; None without evaluations.

    place: among the scores of the page. onsets: step at which each fault that it shows began, a dashed line.
    """
    evaluated = [
        (label, run) for label, run in zip(labels(runs), runs, strict=True) if metric in run.evaluations.metrics
    ]
    if not evaluated:
        return None
    data = joined([_points(run, metric) for _, run in evaluated], [label for label, _ in evaluated])
    shares = heldout.are_shares(value for value in data["value"] if value is not None)
    axis = base.share if shares else base.value
    name = "accuracy, pass@1" if metric == "pass@1" else heldout.name(metric)
    tips = [
        *([alt.Tooltip("run:N")] if len(runs) > 1 else []),
        alt.Tooltip("step:Q", format=","),
        alt.Tooltip("value:Q", format=".1%" if shares else ".3g", title=visible(metric, 60)),
        alt.Tooltip("interval:N", title="95% interval"),
        *([alt.Tooltip("n:N", title="problems")] if any(data["n"]) else []),
    ]

    shades = {labels(runs)[0]: base.metric_colour("heldout")}
    colours = _run_colours(runs) if len(runs) > 1 else base.colours("run", shades)
    points = base.dataset("points").encode(base.steps(), axis("value"), colours)
    layers: list[alt.Chart] = [
        points.mark_rule(strokeWidth=1.5, opacity=0.55).encode(axis("low"), alt.Y2("high")),
        points.mark_line(strokeWidth=1.5),
        points.mark_point(filled=True, size=36, opacity=1),
        base.on_hover(points.encode(tooltip=tips)),
    ]
    text = "The log has no standard errors; the 95% intervals are estimated from neighbouring evaluations."
    if any(data["n"]):
        text = "Share of right answers to held-out problems, with 95% intervals over problems."
    elif not any(math.isfinite(low) for low in data["low"] if low is not None):
        text = "The log has no standard errors, and too few evaluations to estimate one."
    most = max(len(run.evaluations.of(metric)) for _, run in evaluated)
    if most > KEPT:
        every = math.ceil(most / (KEPT // 2))
        text += f" The chart shows the lowest and the highest of every {every} evaluations."
    identity = "heldout" if not index else f"heldout-{index + 1}"
    sets: dict[str, Any] = {"points": data}
    if onsets:
        sets["onset"] = {"step": [float(step) for step in onsets.values()], "mode": list(onsets)}
        layers.append(onset_rule())
        text = f"Dashed: {since(onsets)}. {text}"
    return base.figure(identity, f"Held-out {name}", layers, sets, caption=text)


def pass_at_k(runs: Sequence[Run]) -> Figure | None:
    """Every pass@k of the first run, paler for larger k; None with fewer than two."""
    names = [name for name in runs[0].evaluations.metrics if name.startswith("pass@")]
    if len(names) < 2:
        return None
    data = joined([_points(runs[0], name) for name in names], names, key="metric")
    tips = [
        alt.Tooltip("metric:N"),
        alt.Tooltip("step:Q", format=","),
        alt.Tooltip("value:Q", format=".1%", title="share"),
        alt.Tooltip("interval:N", title="95% interval"),
    ]

    fading = alt.Opacity(
        "metric:O",
        sort=names,
        scale=alt.Scale(domain=names, range=[round(1 - 0.75 * i / (len(names) - 1), 2) for i in range(len(names))]),
        legend=alt.Legend(symbolType="stroke", symbolStrokeWidth=3, columns=4),
    )
    points = base.dataset("points").encode(base.steps(), base.share("value"), fading)
    layers = [
        points.mark_line(strokeWidth=2, color=base.metric_colour("heldout")),
        points.mark_point(filled=True, size=40, color=base.metric_colour("heldout")).encode(tooltip=tips),
    ]
    text = (
        "Share of held-out problems with at least one right answer among k. If pass@1 rises and pass@k "
        "at the largest k does not, the policy became more reliable but solves no new problems."
    )
    return base.figure("pass_at_k", "Held-out pass@k", layers, {"points": data}, caption=text)


def _run_colours(runs: Sequence[Run]) -> alt.Color:
    """Colour encoding of runs."""
    return colours("run", palette(labels(runs)))


def _points(run: Run, name: str) -> dict[str, list[Any]]:
    rows = run.evaluations.of(name)
    shown = extremes(rows.value, KEPT // 2)
    scored = heldout.evaluations(run, name)
    chosen = [scored[int(i)][1] for i in shown]
    shares = heldout.are_shares(score.value for _, score in scored)
    ends = [interval(score) for score in chosen]
    return {
        "step": rounded(rows.step[shown].astype(float), 9),
        "value": rounded(rows.value[shown]),
        "low": rounded(low for low, _ in ends),
        "high": rounded(high for _, high in ends),
        "interval": [shown_interval(score, shares) for score in chosen],
        "n": [int(rows.n[i]) for i in shown],
    }
