"""By how much runs differ from the first of them, where they part, how they ended, and which settings differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from grposcope.core.answer import Answer, Table
from grposcope.core.metrics import VARIANTS, variant
from grposcope.core.run import Run, labels
from grposcope.core.text import listed, number, signed, visible
from grposcope.instruments.diagnosis.verdict import findings_of, verdict
from grposcope.instruments.runs import COMPARE
from grposcope.instruments.runs.compare import heldout_scores
from grposcope.instruments.runs.compare import texts as texts_of_runs
from grposcope.instruments.runs.compare.differences import (
    COMPARED,
    MetricDifference,
    constants,
    differences,
    identical,
)
from grposcope.signs.quantities import Quantities

LEVEL = 0.05
"""Adjusted p-value below which runs are said to differ in a metric."""

SCALED = 10
"""Ratio of the gradient norms of two runs that is another scale."""

ROLLED = ("reward", "reward_std", "length")
"""Metrics of rollouts, which are equal where runs learn alike."""

NAMES = ("name", "out", "started")
"""Settings that say which run it is."""

TOLD = 4
"""Settings that the first line names."""

LIMIT = 600
"""Characters of a cell."""


def of_runs(runs: Sequence[Run], sources: Sequence[str]) -> Answer:
    """Every run compared with the first; UserError where two share no metric on enough steps. sources: of the runs."""
    names = labels(runs)
    compared = [differences(runs[0], run) for run in runs[1:]]
    sentence, *text = (
        _same(name, names[0], runs[0], run) or _conclusion(name, names[0], rows, _changed(runs[0], run))
        for name, run, rows in zip(names[1:], runs[1:], compared, strict=True)
    )
    held_out = (
        heldout_scores.line(name, names[0], runs[0], run) for name, run in zip(names[1:], runs[1:], strict=True)
    )
    text += [line for line in held_out if line]
    text += [line for name, rows in zip(names[1:], compared, strict=True) if (line := _scale(name, names[0], rows))]
    lines, written, documents = texts_of_runs.of_runs(runs, names, sources)
    text += lines
    verdicts = [str(verdict(run, findings_of(run))) for run in runs]
    settings, ends, not_compared = _settings(runs), _ends(runs), _not_compared(runs)
    document = {
        "runs": list(sources),
        "verdicts": verdicts,
        "settings": settings,
        "ends": ends,
        "not_compared": not_compared,
        "partings": [
            {"run": source, "metrics": [asdict(row) for row in rows]}
            for source, rows in zip(sources[1:], compared, strict=True)
        ],
    }
    if scores := heldout_scores.document(runs):
        document["heldout"] = scores
    if documents:
        document["texts"] = list(documents)
    further = [f"Not compared, {line}." for line in not_compared]
    scored = heldout_scores.table(names, runs)
    tables = [*_tables(names, verdicts, settings, ends, compared), *([scored] if scored else []), *written]
    return Answer(
        "parting", COMPARE.question, sentence=sentence, text=[*text, *further], tables=tables, document=document
    )


def _tables(
    names: Sequence[str], verdicts: Sequence[str], settings: Mapping[str, Sequence[Any]],
    ends: Mapping[str, Sequence[float | None]], compared: Sequence[Sequence[MetricDifference]],
) -> list[Table]:  # fmt: skip
    """The tables of what runs logged, those with rows."""
    judged = [(name, visible(said, LIMIT)) for name, said in zip(names, verdicts, strict=True)]
    differing = [
        (visible(name), *("not logged" if value is None else visible(str(value)) for value in values))
        for name, values in settings.items()
    ]
    means = [(name, *("not logged" if value is None else number(value) for value in row)) for name, row in ends.items()]
    tables: dict[str, tuple[Sequence[str], Sequence[Sequence[str]], str]] = {
        "Verdicts": (("run", "verdict"), judged, ""),
        "Settings that differ": (("setting", *names), differing, ""),
        "The end of each run": (
            ("metric", *names),
            means,
            "Means of the last fifth of each run's own rows, or of those behind a sudden fall in it.",
        ),
        "Differences": (
            ("run", "metric", names[0], "this run", "difference", "differs", "adjusted p"),
            _rows(names[1:], compared),
            "Means over the last fifth of the steps that both runs have, and their difference with its standard error, "
            "which allows for noise that lasts over steps. Runs also differ where the difference changes over the "
            "steps. p by Holm's method over metrics.",
        ),
    }
    return [Table(title, header, rows, caption) for title, (header, rows, caption) in tables.items() if rows]


def _rows(names: Sequence[str], compared: Sequence[Sequence[MetricDifference]]) -> list[tuple[str, ...]]:
    """A row per run and metric, the surest difference of each run first."""
    return [
        (name, row.metric, number(row.first), number(row.second),
         signed(row.second - row.first) + (f" ± {row.se:.2g}" if math.isfinite(row.se) else ""), _since(row),
         f"{row.adjusted:.2g}")
        for name, rows in zip(names, compared, strict=True)
        for row in sorted(rows, key=lambda row: row.adjusted)
    ]  # fmt: skip


def _since(difference: MetricDifference) -> str:
    """The step from which two runs differ in a metric, with its 95 % interval; "within noise" if noise explains it."""
    if difference.adjusted >= LEVEL:
        return "within noise"
    if difference.whole:
        return "from the first step"
    return f"from {_step(difference)}" if difference.step is not None else "from no certain step"


def _step(difference: MetricDifference) -> str:
    return f"step {difference.step:,} [{difference.low:,}, {difference.high:,}]"


def _changed(first: Run, second: Run) -> str:
    """Which settings that both runs state differ, as "lr 3e-06 against 1e-06"; empty where none does."""
    differ = {
        name: values for name, values in _settings([first, second]).items() if None not in values and name not in NAMES
    }
    told = [f"{visible(name, 40)} {_shown(b)} against {_shown(a)}" for name, (a, b) in list(differ.items())[:TOLD]]
    return listed([*told, *([f"{len(differ) - TOLD} settings more"] if len(differ) > TOLD else [])])


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else visible(str(value), 40)


def _conclusion(name: str, other: str, metrics: Sequence[MetricDifference], changes: str) -> str:
    """How a run differs from the first: in `changes` of settings; in the reward if it does, else in the surest metric;
    then in the others.
    """
    what = f"{name} against {other}: {changes}{'; ' * bool(changes)}"
    differing = [difference for difference in metrics if difference.adjusted < LEVEL]
    if not differing:
        return f"{what}they differ in no metric beyond noise."
    main, *others = sorted(differing, key=lambda row: (row.metric != "reward", row.adjusted))
    change = main.second - main.first
    sizes = f"{number(main.second)} against {number(main.first)} at the common end ({signed(change)})"
    date = f", different from {_step(main)} on" if main.step is not None else ""
    also = listed([f"{row.metric} ({signed(row.second - row.first)})" for row in others])
    too = f"; {also} {'differ' if len(others) > 1 else 'differs'} too" if others else ""
    return f"{what}{main.metric} {sizes}{date}{too}."


def _same(name: str, other: str, first: Run, second: Run) -> str:
    """That two runs are equal to the last digit, and which settings have no effect then; empty where they are not."""
    count = identical(first, second)
    if not count:
        return ""
    differ = _settings([first, second])
    said = listed([f"{visible(key)} is {values[0]} and {values[1]}" for key, values in differ.items()])
    what = f"{name} against {other}: equal to the last digit in {_every(count)}"
    if not differ:
        return f"{what}, so this is one run twice, or two with one seed and the same settings."
    has = "it has" if len(differ) == 1 else "none of them has"
    return f"{what} although {said}: {has} {'no' if len(differ) == 1 else 'any'} effect."


def _every(count: int) -> str:
    return "the one metric that varies" if count == 1 else f"all {count} metrics that vary"


def _scale(name: str, other: str, metrics: Sequence[MetricDifference]) -> str:
    """That gradient norms differ by a factor from the first step on while the rollouts do not; empty where not so."""
    norm = next((row for row in metrics if row.metric == "grad_norm"), None)
    if norm is None or min(norm.first, norm.second) <= 0 or not norm.whole:
        return ""
    factor = max(norm.first, norm.second) / min(norm.first, norm.second)
    equal = [row.metric for row in metrics if row.metric in ROLLED and row.adjusted >= LEVEL]
    if (
        factor < SCALED
        or "reward" not in equal
        or any(row.metric in ROLLED and row.adjusted < LEVEL for row in metrics)
    ):
        return ""
    return (
        f"{name} against {other}: grad_norm differs by {number(factor)} × from the first step on, at equal "
        f"{listed(equal)}: the scale of the gradient or of what is logged (ZeRO stage, sum or mean over ranks, loss "
        "scale), not what is learned; steps of Adam do not depend on it unless the norm is clipped."
    )


def _settings(runs: Sequence[Run]) -> dict[str, list[Any]]:
    settings = [dict(run.config.get("settings", {})) for run in runs]
    names = dict.fromkeys(name for of_run in settings for name in of_run)
    values = {name: [of_run.get(name) for of_run in settings] for name in names}
    differ: dict[str, list[Any]] = {name: row for name, row in values.items() if any(value != row[0] for value in row)}
    return differ | constants(runs)


def _ends(runs: Sequence[Run]) -> dict[str, list[float | None]]:
    """The last level of every metric of each run, which is that of its verdict."""
    ends: dict[str, list[float | None]] = {}
    for name in COMPARED:
        if not any(name in run.table for run in runs):
            continue
        seen = [Quantities(run).column(name) for run in runs]
        ends[name] = [None if series is None else series.present.last.value for series in seen]
    return ends


def _not_compared(runs: Sequence[Run]) -> list[str]:
    lines = []
    for quantity, variants in VARIANTS.items():
        logged = [{name for name in variants if name in run.table} for run in runs]
        if all(logged) and not set.intersection(*logged):
            nearest = dict.fromkeys(str(variant(quantity, run.table)) for run in runs)
            lines.append(f"{quantity}: {' and '.join(nearest)} are different quantities")
    return lines
