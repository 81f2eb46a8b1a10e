"""Comparison of several runs: where they diverge, how they ended, and which settings differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grposcope.diagnosis import diagnose
from grposcope.diagnosis.compare_runs import COMPARED, MetricDifference, differences
from grposcope.facts.diagnosis import verdict
from grposcope.runs.metrics import VARIANTS, variant
from grposcope.runs.run import Run, labels

LEVEL = 0.05
"""Adjusted p-value below which runs are said to diverge in a metric."""


@dataclass(frozen=True)
class Divergence:
    """Difference of one run from the first.

    name: of the run. conclusion: where they diverge, in one sentence. metrics: the difference of each common metric.
    """

    name: str
    conclusion: str
    metrics: tuple[MetricDifference, ...]


@dataclass(frozen=True)
class RunComparison:
    """Runs compared with the first of them.

    names, verdicts: of every run. divergences: of every run but the first. settings: those that differ, name -> value
    in each run. ends: metric -> mean over the last fifth of each run's own rows, None where it is not logged.
    not_compared: a line for each quantity that the runs log under different definitions.
    """

    names: tuple[str, ...]
    verdicts: tuple[str, ...]
    divergences: tuple[Divergence, ...]
    settings: dict[str, list[Any]]
    ends: dict[str, list[float | None]]
    not_compared: list[str]


def compare(runs: Sequence[Run]) -> RunComparison:
    """Compare every run with the first; UserError where two share no metric on enough steps."""
    names = tuple(labels(runs))
    divergences = []
    for name, run in zip(names[1:], runs[1:], strict=True):
        metrics = tuple(differences(runs[0], run))
        divergences.append(Divergence(name, _conclusion(name, names[0], metrics), metrics))
    verdicts = tuple(str(verdict(run, diagnose(run))) for run in runs)
    return RunComparison(names, verdicts, tuple(divergences), _settings(runs), _ends(runs), _not_compared(runs))


def since(difference: MetricDifference) -> str:
    """The step from which two runs differ in a metric, with its 95 % interval; "within noise" if noise explains it."""
    if difference.adjusted >= LEVEL:
        return "within noise"
    return f"from step {difference.step:,} [{difference.low:,}, {difference.high:,}]"


def _conclusion(name: str, other: str, metrics: Sequence[MetricDifference]) -> str:
    diverging = [difference for difference in metrics if difference.adjusted < LEVEL]
    first = min(diverging, key=lambda difference: difference.step, default=None)
    if first is None:
        return f"{name} against {other}: they diverge in no metric beyond noise"
    return f"{name} against {other}: they diverge at step {first.step:,}, first in {first.metric}"


def _settings(runs: Sequence[Run]) -> dict[str, list[Any]]:
    settings = [dict(run.config.get("settings", {})) for run in runs]
    names = dict.fromkeys(name for of_run in settings for name in of_run)
    values = {name: [of_run.get(name) for of_run in settings] for name in names}
    return {name: row for name, row in values.items() if any(value != row[0] for value in row)}


def _ends(runs: Sequence[Run]) -> dict[str, list[float | None]]:
    ends: dict[str, list[float | None]] = {}
    for name in COMPARED:
        if not any(name in run.table for run in runs):
            continue
        means: list[float | None] = []
        for run in runs:
            values = run.table.get(name, np.empty(0))[-max(1, run.steps // 5) :]
            values = values[np.isfinite(values)]
            means.append(float(values.mean()) if len(values) else None)
        ends[name] = means
    return ends


def _not_compared(runs: Sequence[Run]) -> list[str]:
    lines = []
    for quantity, variants in VARIANTS.items():
        logged = [{name for name in variants if name in run.table} for run in runs]
        if all(logged) and not set.intersection(*logged):
            nearest = dict.fromkeys(str(variant(quantity, run.table)) for run in runs)
            lines.append(f"{quantity}: {' and '.join(nearest)} are different quantities")
    return lines
