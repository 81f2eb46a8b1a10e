"""What was understood of a log: which key is which metric, which steps, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.metrics import LOGGED, METRICS
from grposcope.core.run import Run, Texts
from grposcope.core.text import number, table
from grposcope.logs.hints import Seen
from grposcope.logs.keys import CLOCKS

OWN_NAMES = 40
"""Most metrics without a known meaning, and keys of a log that was not read, that are listed."""


@dataclass(frozen=True)
class _Column:
    """A metric of a run: its key in the log, its number of values, the first and the last of them."""

    metric: str
    key: str
    values: int
    first: float
    last: float


@dataclass(frozen=True)
class Understood:
    """What was understood of a log.

    source, engine: as in `core.run.Meta`. steps: number, first and last. step: key or place that was taken as the step.
    metrics: with a known meaning. others: kept under their own names and not used, clocks aside. held_out: number of
    evaluations by metric. rows, left_out, examples: as in `core.run.Reading`. texts: keys whose values are no numbers,
    with an example. scopes: environments, domains or agents that are logged apart.
    """

    source: str
    engine: str
    steps: tuple[int, float, float]
    step: str
    metrics: tuple[_Column, ...]
    others: tuple[_Column, ...]
    held_out: Mapping[str, int]
    texts: Mapping[str, str]
    rows: int
    left_out: int
    examples: tuple[str, ...]
    notes: tuple[str, ...]
    scopes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The text for a terminal."""
        count, first, last = self.steps
        counter = f", counted by {self.step}" if self.step else ""
        span = f", {first:g} to {last:g}{counter}" if count else ""
        out = [f"{self.source} · {self.engine} · {count:,} step{'s' * (count != 1)}{span}", ""]
        cells = [("metric", "key in the log", "values", "first", "last")]
        for column in (*self.metrics, *self.others[:OWN_NAMES]):
            metric = column.metric if column in self.metrics else "(not used)"
            cells.append((metric, column.key, str(column.values), number(column.first), number(column.last)))
        out += table(cells, indent="  ").split("\n")
        if len(self.others) > OWN_NAMES:
            out.append(f"  and {len(self.others) - OWN_NAMES} more that are not used")
        if not any(column.metric == "reward" for column in self.metrics):
            out.append("No key is read as the reward.")
        if self.held_out:
            out.append("evaluations: " + ", ".join(f"{name} ({n})" for name, n in self.held_out.items()))
        if self.scopes:
            out.append("choose one with --scope: " + ", ".join(self.scopes))
        if self.texts:
            out.append("no numbers: " + ", ".join(f"{key} ({example!r})" for key, example in self.texts.items()))
        if self.left_out:
            out.append(f"{self.rows:,} rows used, {self.left_out:,} lines left out, such as")
            out += [f"  {example}" for example in self.examples]
        return [*out, *(f"note: {note}" for note in self.notes)]


@dataclass(frozen=True)
class Refused:
    """A log whose rows were found but that no run can be made of as it is. problem: why, and the remedy."""

    source: str
    problem: str
    seen: tuple[Seen, ...]

    def lines(self) -> list[str]:
        """The text for a terminal."""
        cells = [("key in the log", "values", "first", "last", "")]
        for key in self.seen[:OWN_NAMES]:
            may_be = "may be the reward" if key.candidate else ""
            cells.append((key.key, str(key.values), number(key.first), number(key.last), may_be))
        out = [f"{self.source} · cannot be read as it is", "", *table(cells, indent="  ").split("\n")]
        if len(self.seen) > OWN_NAMES:
            out.append(f"  and {len(self.seen) - OWN_NAMES} more")
        return [*out, self.problem]


def refused(source: str, problem: str, seen: Sequence[Seen]) -> Refused:
    """What is in a log that no run can be made of."""
    return Refused(source, problem, tuple(seen))


def understood(run: Run) -> Understood:
    """What was understood of the log of a run."""
    step = run.table["step"]
    metrics = [name for name in (*METRICS, *LOGGED) if name in run.table and name != "step"]
    metrics += [name for name in run.table if name.startswith("component")]
    reading = run.reading
    return Understood(
        source=str(run.meta.source),
        engine=run.meta.engine,
        steps=(len(step), float(step.min()), float(step.max())) if len(step) else (0, 0.0, 0.0),
        step=reading.step if reading is not None else "",
        metrics=tuple(_column(run, name) for name in metrics),
        others=tuple(_column(run, name) for name in run.table if name not in {*metrics, *CLOCKS}),
        held_out={name: run.evaluations.metric.count(name) for name in run.evaluations.metrics},
        texts={key: text.examples[0] for key, text in run.unknown.items() if isinstance(text, Texts)},
        rows=reading.rows if reading is not None else len(step),
        left_out=reading.left_out if reading is not None else 0,
        examples=reading.examples if reading is not None else (),
        notes=run.meta.notes,
        scopes=tuple(run.scopes),
    )


def _column(run: Run, name: str) -> _Column:
    values = run.table[name]
    there = values[~np.isnan(values)]
    first, last = (float(there[0]), float(there[-1])) if len(there) else (float("nan"), float("nan"))
    return _Column(name, run.keys.get(name, name), len(there), first, last)
