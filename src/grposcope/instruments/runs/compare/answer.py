"""By how much runs differ from the first of them, where they part, how they ended, and which settings differ.

By how much two runs differ, and where they part: the difference of each metric, against autocorrelated noise.

On the steps that both runs have, d_t = b_t − a_t. The runs diverge in a metric if d differs late from 0 or from how it
began; p is twice the least of the two-sided tests, adjusted by Holm's method over metrics. The step is the
onset of d (`signs.onset`), given where its interval is short (SHORT): a constant offset and a slow drift begin nowhere.
Only columns of one name are compared, since variants of a quantity
have other definitions. Method of this project; no publication.

How the held-out scores of runs compare with those of the first run, at their last evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from grposcope.core.answer import Answer, Table
from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.metrics import LOGGED, METRICS, VARIANTS, variant
from grposcope.core.run import Run, labels
from grposcope.core.text import listed, number, signed, visible
from grposcope.instruments.diagnosis.verdict import findings_of, verdict
from grposcope.instruments.runs import COMPARE
from grposcope.instruments.runs.compare import texts as texts_of_runs
from grposcope.maths.holm import holm
from grposcope.maths.timeseries import change
from grposcope.maths.timeseries.noise import Array
from grposcope.signs import heldout, onset
from grposcope.signs.quantities import LEAST, Quantities

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
    compared = [_differences(runs[0], run) for run in runs[1:]]
    sentence, *text = (
        _same(name, names[0], runs[0], run) or _conclusion(name, names[0], rows, _changed(runs[0], run))
        for name, run, rows in zip(names[1:], runs[1:], compared, strict=True)
    )
    held_out = (_heldout_line(name, names[0], runs[0], run) for name, run in zip(names[1:], runs[1:], strict=True))
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
    if scores := _heldout_document(runs):
        document["heldout"] = scores
    if documents:
        document["texts"] = list(documents)
    further = [f"Not compared, {line}." for line in not_compared]
    scored, paid = _heldout_table(names, runs), _parts_table(names, runs, compared)
    beside = [table for table in (paid, scored) if table is not None]
    tables = [*_tables(names, verdicts, settings, ends, compared), *beside, *written]
    return Answer(
        "parting", COMPARE.question, sentence=sentence, text=[*text, *further], tables=tables, document=document
    )


def _tables(
    names: Sequence[str], verdicts: Sequence[str], settings: Mapping[str, Sequence[Any]],
    ends: Mapping[str, Sequence[float | None]], compared: Sequence[Sequence[_MetricDifference]],
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


def _rows(names: Sequence[str], compared: Sequence[Sequence[_MetricDifference]]) -> list[tuple[str, ...]]:
    """A row per run and metric, the surest difference of each run first."""
    return [
        (name, row.metric, number(row.first), number(row.second),
         signed(row.second - row.first) + (f" ± {row.se:.2g}" if math.isfinite(row.se) else ""), _since(row),
         f"{row.adjusted:.2g}")
        for name, rows in zip(names, compared, strict=True)
        for row in sorted(rows, key=lambda row: row.adjusted) if not row.metric.startswith(PART)
    ]  # fmt: skip


def _parts_table(
    names: Sequence[str], runs: Sequence[Run], compared: Sequence[Sequence[_MetricDifference]]
) -> Table | None:
    """The parts of the reward that a run and the first both have: their first and last levels, and their difference
    with its 95 % interval; None without one."""
    rows = [
        (name, _called(row), _levels(runs[0], row.metric), _levels(run, row.metric),
         f"{signed(row.second - row.first)} [{', '.join(map(number, _interval(row)))}]", _since(row))
        for name, run, differences in zip(names[1:], runs[1:], compared, strict=True)
        for row in sorted(differences, key=lambda row: row.adjusted) if row.metric.startswith(PART)
    ]  # fmt: skip
    caption = (
        "First and last level of each part in each run, and the difference over the last fifth of the steps that both "
        "have, with its 95 % interval."
    )
    header = ("run", "part", names[0], "this run", "difference", "differs")
    return Table("Parts of the reward", header, rows, caption) if rows else None


def _called(row: _MetricDifference) -> str:
    """A metric by its name; a part of the reward by its own."""
    return visible(row.metric.removeprefix(PART), 60)


def _interval(row: _MetricDifference) -> tuple[float, float]:
    """The 95 % interval of a difference."""
    return Estimate(row.second - row.first, row.se, 1).interval()


def _levels(run: Run, metric: str) -> str:
    """The first and the last level of a column of a run."""
    series = Quantities(run).column(metric)
    ends = (math.nan, math.nan) if series is None else (series.present.first.value, series.present.last.value)
    return " → ".join(map(number, ends))


def _since(difference: _MetricDifference) -> str:
    """The step from which two runs differ in a metric, with its 95 % interval; "within noise" if noise explains it."""
    if difference.adjusted >= LEVEL:
        return "within noise"
    if difference.whole:
        return "from the first step"
    return f"from {_step(difference)}" if difference.step is not None else "from no certain step"


def _step(difference: _MetricDifference) -> str:
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


def _conclusion(name: str, other: str, metrics: Sequence[_MetricDifference], changes: str) -> str:
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
    also = listed(
        [f"{visible(row.metric.removeprefix(PART), 60)} ({signed(row.second - row.first)})" for row in others]
    )
    too = f"; {also} {'differ' if len(others) > 1 else 'differs'} too" if others else ""
    return f"{what}{_called(main)} {sizes}{date}{too}."


def _same(name: str, other: str, first: Run, second: Run) -> str:
    """That two runs are equal to the last digit, and which settings have no effect then; empty where they are not."""
    count = _identical(first, second)
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


def _scale(name: str, other: str, metrics: Sequence[_MetricDifference]) -> str:
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
    return differ | _constants(runs)


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


COMPARED = (
    "reward", "reward_after_kl", "reward_std", "dead_fraction", "entropy", "kl", "kl_loss", "length", "truncated",
    "at_limit", "grad_norm", "clip_fraction", "mismatch/k3", "mismatch/k1", "mismatch/abs", "staleness/mean",
)  # fmt: skip
"""Metrics that are compared, before the parts of the reward that both runs have."""

PART = "component/"
"""What the columns of single parts of the reward begin with."""


def _parts(first: Run, second: Run) -> list[str]:
    """Columns of the parts of the reward that both runs have; one that is the whole reward in both is none."""
    runs = (first, second)
    names = [name for name in first.table if name.startswith(PART) and name in second.table]
    return [name for name in names if not all("reward" in run.table and np.array_equal(
        run.table[name], run.table["reward"], equal_nan=True) for run in runs)]  # fmt: skip


BEGIN = 5
"""First common steps whose difference says whether it was there from the start."""

SHORT = 0.2
"""Share of the common steps up to which the interval of a step is short enough for the step to be given."""


@dataclass(frozen=True)
class _MetricDifference:
    """Difference of the second run from the first in one metric.

    difference, se: mean over the last fifth of the common steps and its standard error. first, second: means of the two
    runs over the same steps. p, adjusted: of no divergence, before and after Holm's method. step: where the runs part,
    with the 95 % interval [low, high]; None where that is longer than SHORT of the steps. whole: whether it is there
    from the first steps on.
    """

    metric: str
    difference: float
    se: float
    p: float
    adjusted: float
    step: int | None
    low: int | None
    high: int | None
    first: float
    second: float
    whole: bool = False


def _differences(first: Run, second: Run) -> list[_MetricDifference]:
    """Differences of all metrics that both runs have on at least LEAST common steps; UserError if there are none."""
    steps, in_first, in_second = np.intersect1d(first.table["step"], second.table["step"], return_indices=True)
    measured = []
    for name in (*COMPARED, *_parts(first, second)):
        if name not in first.table or name not in second.table:
            continue
        ours, other = first.table[name][in_first], second.table[name][in_second]
        finite = np.isfinite(ours) & np.isfinite(other)
        if finite.sum() >= LEAST:
            measured.append(_measure(name, steps[finite], ours[finite], other[finite]))
    if not measured:
        raise UserError(
            f"{first.meta.source} and {second.meta.source} have {len(steps):,} steps in common, and no metric on "
            f"{LEAST} of them; compare runs that log the same metrics at {LEAST} common steps or more"
        )
    adjusted = holm([metric.p for metric in measured])
    return [replace(metric, adjusted=p) for metric, p in zip(measured, adjusted, strict=True)]


def _measure(name: str, steps: Array, first: Array, second: Array) -> _MetricDifference:
    difference = second - first
    curve = change.fit(difference)
    level, shift = curve.level(), curve.change()
    p = min(1.0, 2 * min(2 * min(test.p_up, test.p_down) for test in (level, shift)))
    if level.se == 0 and level.value == 0 and shift.value == 0:
        p = 1.0
    late = slice(len(steps) - max(1, len(steps) // 5), None)
    ends = float(first[late].mean()), float(second[late].mean())
    step, low, high = _parting(steps, difference)
    begin = float(difference[:BEGIN].mean())
    whole = begin * level.value > 0 and abs(begin) > abs(level.value) / 2
    return _MetricDifference(name, level.value, level.se, p, p, step, low, high, *ends, whole)


def _identical(first: Run, second: Run) -> int:
    """On how many metrics that vary two runs are equal to the last digit on all common steps; 0 where one is not."""
    _, in_first, in_second = np.intersect1d(first.table["step"], second.table["step"], return_indices=True)
    pairs = [
        (first.table[name][in_first], second.table[name][in_second])
        for name in COMPARED
        if name in first.table and name in second.table
    ]
    varying = [(ours, other) for ours, other in pairs if len(np.unique(ours[np.isfinite(ours)])) > 1]
    same = all(np.array_equal(ours, other, equal_nan=True) for ours, other in pairs)
    return len(varying) if same and len(in_first) >= LEAST else 0


def _constants(runs: Sequence[Run]) -> dict[str, list[float | None]]:
    """Columns that are no metric and have one value in each run, and not the same in all: settings that are logged."""
    names = dict.fromkeys(name for run in runs for name in run.table if name not in METRICS and name not in LOGGED)
    settings: dict[str, list[float | None]] = {}
    for name in names:
        values = [_constant(run, name) for run in runs]
        if None not in values and len(set(values)) > 1:
            settings[runs[0].keys.get(name, name)] = values
    return settings


def _constant(run: Run, name: str) -> float | None:
    """The one value of a column; None where it has none, or several."""
    values = run.table.get(name)
    finite = np.empty(0) if values is None else np.unique(values[np.isfinite(values)])
    return float(finite[0]) if len(finite) == 1 else None


def _parting(steps: Array, difference: Array) -> tuple[int, int, int] | tuple[None, None, None]:
    """The step where a difference begins with its interval; None where the interval is long."""
    since = onset.between(steps, difference)
    if since is None or since.last - since.first > SHORT * (steps[-1] - steps[0]):
        return None, None, None
    return since.step, since.first, since.last


DOUBT = {"none": ", no more than chance explains", "unknown": "; too little is known of the error to compare them"}
"""What is added where the difference is not beyond chance, or its error not known."""


def _last(run: Run, metric: str) -> tuple[int, Estimate] | None:
    """(step, score) of the last evaluation of a metric; None where the run has none."""
    evaluated = heldout.evaluations(run, metric)
    return evaluated[-1] if evaluated else None


def _in_common(runs: Sequence[Run]) -> list[str]:
    """The held-out scores that all runs have, those that are meant first."""
    others = [set(heldout.of_run(run)) for run in runs[1:]]
    return [metric for metric in heldout.of_run(runs[0]) if all(metric in metrics for metrics in others)]


def _heldout_line(name: str, other: str, first: Run, second: Run) -> str:
    """How the score that is meant ended in a run and in the first, in a sentence; empty without one in common."""
    metric = next(iter(_in_common([first, second])), None)
    ends = [] if metric is None else [_last(first, metric), _last(second, metric)]
    if metric is None or None in ends:
        return ""
    (step, base), (own_step, own) = (end for end in ends if end is not None)
    shares = heldout.are_shares([base.value, own.value])
    shown = [heldout.with_interval(score, shares) for score in (own, base)]
    at = f"step {own_step:,}" if step == own_step else f"steps {own_step:,} and {step:,}"
    doubt = DOUBT.get(heldout.difference(base, own)[0], "")
    return f"{name} against {other}: held-out {heldout.name(metric)} {shown[0]} against {shown[1]} at {at}{doubt}."


def _heldout_table(names: Sequence[str], runs: Sequence[Run]) -> Table | None:
    """Last and best value of every score in common; None without one."""
    rows: list[tuple[str, ...]] = []
    for metric in _in_common(runs):
        every = [heldout.evaluations(run, metric) for run in runs]
        shares = heldout.are_shares(score.value for evaluated in every for _, score in evaluated)
        cells = []
        for evaluated in every:
            best_step, best = max(evaluated, key=lambda at: at[1].value)
            at_last = heldout.with_interval(evaluated[-1][1], shares)
            cells.append(f"{at_last}, best {heldout.shown(best.value, shares)} at step {best_step:,}")
        rows.append((heldout.name(metric), *cells))
    caption = "The last evaluation of each run, with its 95 % interval where it has one, and the best."
    return Table("Held-out scores", ("score", *names), rows, caption) if rows else None


def _heldout_document(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Score -> step, value and standard error of the last evaluation of each run."""
    ends = {metric: [_last(run, metric) for run in runs] for metric in _in_common(runs)}
    return {
        metric: [{"step": at[0], "value": at[1].value, "se": at[1].se} for at in every if at is not None]
        for metric, every in ends.items()
    }
