"""Sections that are plain curves of recorded metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from grposcope.facts.metrics import outline
from grposcope.formatting import number, visible
from grposcope.report.charts.curves import curve
from grposcope.report.elements import Figure, Section
from grposcope.runs.metrics import LOGGED, METRICS, metric
from grposcope.runs.run import Run, labels

Build = Callable[[Sequence[Run]], Section | None]

SPREAD = ("reward_std",)
POLICY = ("entropy", "kl", "kl_old")
COMPLETIONS = ("length", "truncated")
UPDATE = ("grad_norm", "clip_low", "clip_high")
CRITIC = ("critic/explained_variance", "critic/explained_by_group", "critic/loss", "critic/grad_norm", "seconds_critic")
ELSEWHERE = ("step", "time", "reward", "dead_fraction", "seconds_sample", "seconds_grade", "seconds_update",
             "tokens_per_second", "tokens", "seconds_probe")  # fmt: skip
"""Metrics that other sections show."""

GEOMETRY = "geometry/"
"""Prefix of the metrics that probes within a training run record."""

COMPONENT = ("component/", "component_std/")
"""Prefixes of the metrics of single parts of the reward."""

COMPONENTS = 6
"""Parts of the reward whose charts are shown at once; those of further ones are folded."""


def _curves(name: str, title: str, metrics: Sequence[str], groups: Mapping[str, str] | None = None) -> Build:
    """Section of these metrics. groups: metric -> group of charts under which it is folded."""

    def section(runs: Sequence[Run]) -> Section | None:
        """Curves of these metrics, and a sentence on those that never change."""
        recorded = [m for m in metrics if any(m in run.table for run in runs)]
        if not recorded or not any(run.steps for run in runs):
            return None
        flat = {m: statement for m in recorded if (statement := _flat(runs, m))}
        text = [f"{', '.join(titles)}: {statement}." for statement, titles in _by_statement(flat).items()]
        drawn = _drawn(runs, [m for m in recorded if m not in flat], groups or {})
        return Section(name, title, text=text, figures=drawn, numbers=_outlines(runs, recorded))

    return section


spread = _curves("spread", "Reward spread", SPREAD)
policy = _curves("policy", "How the policy moves", POLICY)
completions = _curves("completions", "Completions", COMPLETIONS)
update = _curves("update", "The update", UPDATE)
critic = _curves("critic", "The critic", CRITIC)


def components(runs: Sequence[Run]) -> Section | None:
    """Curves of the parts of the reward, means before spreads; the spreads, and all but the first parts, folded."""
    recorded = dict.fromkeys(name for run in runs for name in run.table)
    means, spreads = ([name for name in recorded if name.startswith(prefix)] for prefix in COMPONENT)
    groups = dict.fromkeys(means[COMPONENTS:], "further components") | dict.fromkeys(spreads, "spread of components")
    return _curves("components", "Components of the reward", (*means, *spreads), groups)(runs)


def geometry(runs: Sequence[Run]) -> Section | None:
    """Curves of what probes within a training run measured of the gradient."""
    probed = [_probed(run) for run in runs]
    recorded = tuple(dict.fromkeys(name for run in probed for name in run.table if name.startswith(GEOMETRY)))
    section = _curves("geometry_curves", "Geometry while training", recorded)(probed)
    if section is None:
        return None
    named = zip(labels(probed), probed, strict=True)
    steps = ", ".join(f"{run.steps} steps of {label}" for label, run in named if run.steps)
    lead = (
        f"Measured before the update on {steps}, each time on a few prompts of the batch at hand: single points are "
        "noisy. The policy gradient alone, without KL term and entropy bonus."
    )
    return replace(section, text=[lead, *section.text])


def other(runs: Sequence[Run]) -> Section | None:
    """Curves of every recorded metric that no other section shows; unknown ones folded by the prefix of their name."""
    shown = {*ELSEWHERE, *SPREAD, *POLICY, *COMPLETIONS, *UPDATE, *CRITIC}
    recorded = dict.fromkeys(name for run in runs for name in run.table)
    rest = [name for name in [*METRICS, *recorded] if name in recorded and name not in shown]
    rest = list(dict.fromkeys(name for name in rest if not name.startswith((GEOMETRY, *COMPONENT))))
    return _curves("other", "Everything else recorded", rest, by_prefix(rest))(runs)


def by_prefix(metrics: Sequence[str]) -> dict[str, str]:
    """Metric that is not in the vocabulary -> the part of its name before the first slash, "others" for single ones."""
    prefixes = {name: name.partition("/")[0] for name in metrics if name not in METRICS and name not in LOGGED}
    sizes = Counter(prefixes.values())
    return {name: visible(prefix, 60) if sizes[prefix] > 1 else "others" for name, prefix in prefixes.items()}


def _drawn(runs: Sequence[Run], metrics: Sequence[str], groups: Mapping[str, str]) -> list[Figure]:
    """A chart per metric, with a name without slashes, since it is the name of a file too."""
    drawn = [(curve(name, runs), groups.get(name, "")) for name in metrics]
    return [
        replace(figure, name=figure.name.replace("/", "_"), group=group)
        for figure, group in drawn
        if figure is not None
    ]


def _probed(run: Run) -> Run:
    """The run with its probed steps only, so that the steps between them are no gaps."""
    rows = np.zeros(run.steps, bool)
    for name, column in run.table.items():
        if name.startswith((GEOMETRY, "seconds_probe")):
            rows |= np.isfinite(column)
    return replace(run, table={name: column[rows] for name, column in run.table.items()})


def _flat(runs: Sequence[Run], name: str) -> str:
    """Statement that replaces the chart of a metric that is never finite or always the same; else empty."""
    values = np.concatenate([run.table[name] for run in runs if name in run.table])
    if not np.isfinite(values).any():
        return "not finite at any step" if name in ("grad_norm", "loss") else "not defined in this run"
    there = values[~np.isnan(values)]
    if len(values) > 1 and (there == there[0]).all():
        where = "at every step" if len(there) == len(values) else f"at each of {len(there):,} steps that have a value"
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
