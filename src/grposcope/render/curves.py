"""The curve of a metric against the step, a line per run, with the onsets of failure modes marked on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import altair as alt
import numpy as np

from grposcope.core.answer import Answer, Figure
from grposcope.core.metrics import metric
from grposcope.core.not_finite import not_finite
from grposcope.core.outline import outline
from grposcope.core.run import Floats, Run, labels
from grposcope.core.text import capitalised, listed, number
from grposcope.render import charts as base
from grposcope.render import thinning
from grposcope.render.thinning import BINS, joined, rounded

NAMED = 3
"""Metrics, and runs, of which the sentence of an answer speaks; the charts have all."""

Build = Callable[[Sequence[Run]], Answer | None]
"""Makes an answer of runs; None where they have nothing to show."""


def curve(
    name: str, runs: Sequence[Run], domain: Sequence[float] = (), onsets: Mapping[str, int] | None = None
) -> Figure | None:
    """A metric of the step table, a line per run; None if no run has a finite value of it.

    Long runs get two lines, of means over windows and of the extremes between them; values that are not finite are
    gaps, marked above them. domain: ends of the vertical axis, else they follow from the values. onsets: step at which
    each failure mode set in, drawn as a dashed line.
    """
    drawn = {
        label: run
        for label, run in zip(labels(runs), runs, strict=True)
        if name in run.table and np.isfinite(run.table[name]).any()
    }
    if not drawn:
        return None
    names, have = list(drawn), list(drawn.values())
    size = thinning.window_size(have)
    scale, form = _scale_and_format(name, np.concatenate([run.table[name] for run in have]))
    if domain:
        scale["domain"] = tuple(domain)
    data = {"thick": joined([thinning.averages(run.table["step"], run.table[name], size) for run in have], names)}
    if size > 1:
        data["thin"] = joined([_extremes(run, name) for run in have], names)
    gaps = joined([_gaps(run, name) for run in have], names)
    if gaps["step"]:
        data["gaps"] = gaps
    if onsets:
        data["onset"] = {"step": [float(step) for step in onsets.values()], "mode": list(onsets)}
    single = metric(name).title if size == 1 else ""
    shades = base.palette(labels(runs)) if len(runs) > 1 else {names[0]: base.metric_colour(name)}
    layers = _layers(tuple(data), tuple(shades.items()), len(have), tuple(scale.items()), form, single)
    unit = metric(name).unit.replace("share", "")
    return base.figure(name, metric(name).title, layers, data, unit=unit, caption=_caption(name, have))


@cache
def _layers(
    sets: Sequence[str],
    shades: Sequence[tuple[str, str]],
    lines: int,
    scale: Sequence[tuple[str, Any]],
    form: str,
    single: str,
) -> list[dict[str, Any]]:
    """Layers over these data sets of a curve; most curves of a page share theirs, so they are built once.

    shades: colour of each run of the page. lines: how many of them are drawn. scale, form: scale and number format of
    the vertical axis. single: title of the values where every point is a single step, else empty.
    """
    x, colours = base.steps(), base.colours("run", dict(shades))
    y = alt.Y("mean:Q").axis(format=form or alt.Undefined).scale(**dict(scale))
    thick = base.dataset("thick").encode(x, y, colours)
    tips = base.tooltips(run="run") if len(shades) > 1 else []
    shown: dict[str, Any] = {"format": form or ",.3~r"}
    if single:
        tips += [alt.Tooltip("steps:N", title="step"), alt.Tooltip("mean:Q", title=single, **shown)]
    else:
        tips += [
            alt.Tooltip("steps:N"),
            *(alt.Tooltip(f"{quantity}:Q", **shown) for quantity in ("mean", "least", "largest")),
        ]
    layers: list[alt.Chart] = []
    if "thin" in sets:
        thin = base.dataset("thin").mark_line(strokeWidth=1, opacity=0.38 if lines == 1 else 0.22)
        layers.append(thin.encode(x, alt.Y("value:Q"), colours))
    layers += [thick.mark_line(strokeWidth=2), base.on_hover(thick.encode(tooltip=tips))]
    if "gaps" in sets:
        mark = base.dataset("gaps").mark_tick(color="var(--alarm)", thickness=1.5, height=9, orient="vertical")
        layers.append(mark.encode(x, alt.YValue(0), tooltip=base.tooltips(step="step", value="value")))
    if "onset" in sets:
        layers.append(onset_rule())
    return base.specified(layers)


def onset_rule() -> alt.Chart:
    """The dashed line at each step of the data set `onset`."""
    rule = base.dataset("onset").mark_rule(color="var(--alarm)", strokeDash=[4, 3], strokeWidth=1.5)
    return rule.encode(base.steps(), tooltip=base.tooltips(mode="since", step="step"))


def since(onsets: Mapping[str, int]) -> str:
    """Which fault began at which step."""
    return ", ".join(f"{mode} from step {step:,}" for mode, step in onsets.items())


def _scale_and_format(name: str, values: Floats) -> tuple[dict[str, Any], str]:
    """Scale and number format of the vertical axis: percent for shares, logarithmic for two decades or more."""
    finite = values[np.isfinite(values)]
    least, largest = finite.min(), finite.max()
    form = "~s" if largest >= 1e4 else ".2~g" if abs(finite).max() < 1e-3 else ""
    if metric(name).unit == "share":
        if largest > 0.5:
            return {"domain": (0, 1)}, form or "~%"
        return {"domain": (0, 0.1)} if largest == 0 else {"zero": True, "nice": True}, form or "~%"
    if least > 0 and (largest > 30 * np.median(finite) or np.quantile(finite, 0.95) > 100 * np.quantile(finite, 0.05)):
        return {"type": "log", "nice": True}, form
    return {"zero": bool(least >= 0), "nice": True}, form


def _extremes(run: Run, name: str) -> dict[str, list[Any]]:
    shown = thinning.extremes(run.table[name])
    return {"step": rounded(run.table["step"][shown], 9), "value": rounded(run.table[name][shown])}


def _gaps(run: Run, name: str) -> dict[str, list[Any]]:
    """Steps whose value is not finite where one is due, at most about BINS of them."""
    values = run.table[name]
    gaps = np.flatnonzero(not_finite(run.table).get(name, np.zeros(len(values), bool)))
    gaps = gaps[:: max(1, math.ceil(len(gaps) / BINS))]
    return {
        "step": rounded(run.table["step"][gaps], 9),
        "value": ["NaN" if np.isnan(values[gap]) else "infinite" for gap in gaps],
    }


def _caption(name: str, runs: Sequence[Run]) -> str:
    """The definition of the metric, what was thinned and averaged, and how many values are not finite."""
    text = metric(name).definition
    longest = max(run.steps for run in runs)
    window = thinning.window_size(runs)
    if window > 1:
        thin = "every step"
        if longest > 2 * BINS:
            thin = f"smallest and largest of every {math.ceil(longest / BINS):,} steps"
        fewer = " or fewer" if min(run.steps for run in runs) < 10 * window else ""
        text += f". Thick: mean of {window:,} steps{fewer}; thin: {thin}"
    gaps = sum(run.nonfinite.get(name, 0) for run in runs)
    missing = sum(int((~np.isfinite(run.table[name])).sum()) for run in runs) - gaps
    if gaps:
        text += f". Not finite at {gaps:,} step{'s' * (gaps > 1)}, marked in red"
    if missing:
        text += f". No value at {missing:,} step{'s' * (missing > 1)}"
    return text[0].upper() + text[1:] + "."


def of_metrics(name: str, title: str, metrics: Sequence[str], groups: Mapping[str, str] | None = None) -> Build:
    """Answer of these metrics. groups: metric -> group of charts under which it is folded."""

    def section(runs: Sequence[Run]) -> Answer | None:
        """Between which levels the first of them went, a sentence on those that never change, and the curves of all."""
        recorded = [m for m in metrics if any(m in run.table for run in runs)]
        if not recorded or not any(run.steps for run in runs):
            return None
        flat = {m: statement for m in recorded if (statement := _flat(runs, m))}
        moving = [m for m in recorded if m not in flat]
        still = [
            f"{capitalised(listed(list(map(_inside, titles))))}: {statement}."
            for statement, titles in _by_statement(flat).items()
        ]
        sentence, *text = [*_ends(runs, moving), *still] or [""]
        drawn = _drawn(runs, moving, groups or {})
        return Answer(name, title, sentence=sentence, text=text, figures=drawn, document=_outlines(runs, recorded))

    return section


def _ends(runs: Sequence[Run], metrics: Sequence[str]) -> list[str]:
    """The sentence on the levels between which the first metrics of a run went, or the first metric of several runs."""
    said = []
    for name in metrics[: NAMED if len(runs) == 1 else 1]:
        for label, run in list(zip(labels(runs), runs, strict=True))[:NAMED]:
            line = outline(run.table[name]) if name in run.table else None
            if line is not None and math.isfinite(line.first_tenth.value) and math.isfinite(line.last_tenth.value):
                where = f" in {label}" if len(runs) > 1 else ""
                ends = f"from {number(line.first_tenth.value)} to {number(line.last_tenth.value)}"
                said.append(f"{_inside(metric(name).title)}{where} went {ends}")
    return [f"{capitalised(listed(said))} (means of the first and the last tenth of the steps)."] if said else []


def _inside(title: str) -> str:
    """A title inside a sentence: without its capital, unless it begins with an abbreviation such as KL."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


def _drawn(runs: Sequence[Run], metrics: Sequence[str], groups: Mapping[str, str]) -> list[Figure]:
    """A chart per metric, with a name without slashes, since it is the name of a file too."""
    drawn = [(curve(name, runs), groups.get(name, "")) for name in metrics]
    return [
        replace(figure, name=figure.name.replace("/", "_"), group=group)
        for figure, group in drawn
        if figure is not None
    ]


def _flat(runs: Sequence[Run], name: str) -> str:
    """Statement that replaces the chart of a metric that is never finite or always the same; else empty."""
    values = np.concatenate([run.table[name] for run in runs if name in run.table])
    if not np.isfinite(values).any():
        return "not finite at any step" if name in ("grad_norm", "loss") else "not defined in this run"
    there = values[~np.isnan(values)]
    if len(values) > 1 and (there == there[0]).all():
        if len(there) < len(values):
            where = (
                f"at each of {len(there):,} steps that have a value"
                if len(there) > 1
                else "at the only step with a value"
            )
        else:
            where = "at every step"
        return f"{number(float(there[0]))} {where}"
    return ""


def _by_statement(flat: dict[str, str]) -> dict[str, list[str]]:
    """Statement -> titles of the metrics that it is true of."""
    titles: dict[str, list[str]] = {}
    for name, statement in flat.items():
        titles.setdefault(statement, []).append(metric(name).title)
    return titles


def _outlines(runs: Sequence[Run], metrics: Sequence[str]) -> dict[str, object]:
    return {
        label: {name: outline(run.table[name]) for name in metrics if name in run.table}
        for label, run in zip(labels(runs), runs, strict=True)
    }
