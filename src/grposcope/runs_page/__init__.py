"""The page about one or several runs: the top, and whatever any instrument has to say of them.

The sections of a page in the order in which an engineer checks them, with every curve once.

Other horizontal axes than steps: tokens and hours since the start, for the runs that recorded them.

A chart keeps its steps; the page maps them by straight lines between these points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.answer import HEADLINE, Answer, Figure, Table
from grposcope.core.run import Floats, Run, labels
from grposcope.core.text import listed
from grposcope.faults import judge_answers
from grposcope.instruments import all_instruments, ask, unavailable
from grposcope.render.page import Document, write
from grposcope.render.thinning import rounded


def document(runs: Sequence[Run]) -> Document:
    """Content of the page about these runs: the top, and the answers of every instrument that has some."""
    answers = tuple(answer for instrument in all_instruments() for answer in ask(instrument, runs))
    if len(runs) == 1 and not unavailable("diagnosis"):
        from grposcope.instruments.diagnosis.verdict import findings_of

        answers = tuple(judge_answers.graded(answer, findings_of(runs[0])) for answer in answers)
    first = _top(runs)
    sections = _arranged(answers, first if len(runs) == 1 else None)
    return Document(tuple(labels(runs)), first, sections, tuple(map(_axes_of, runs)), _identity(runs))


def _identity(runs: Sequence[Run]) -> tuple[str, ...]:
    """Lines that say which run this is; none for several, which the table of runs names."""
    if len(runs) > 1 or unavailable("overview"):
        return ()
    from grposcope.instruments.runs import identity

    return identity.of_run(runs[0])


def _top(runs: Sequence[Run]) -> Answer:
    """The first things to know; only the names of the runs where the overview cannot tell."""
    if not unavailable("overview"):
        from grposcope.instruments.runs import overview

        return overview.top(runs)
    return Answer("headline", HEADLINE, sentence=listed(labels(runs)))


def report(runs: Run | Sequence[Run], path: str | Path) -> Path:
    """Write the page about one or several runs, one self-contained HTML file; its path.

    UserError where it cannot be written.
    """
    several = [runs] if isinstance(runs, Run) else list(runs)
    write(document(several), Path(path))
    return Path(path)


ORDER = (
    "diagnosis", "rollouts", "learning", "spread", "components", "comparison", "policy", "completions", "update",
    "dead_groups", "critic", "rewards", "offpolicy", "time", "other",
)  # fmt: skip
"""Sections that come first, in this order; those of measurements and of theory follow as their instruments stand."""

LAST = ("settings",)

ABOVE = "as above"
SENTENCE = 30
"""Characters from which a cell of a table is a sentence that the top may have said."""

THEORY = ("dynamics", "stability", "bandit")
"""Sections of theory, which are folded where the page has panels of a run."""

MARKED = "diagnosis-"
"""Beginning of the name of a chart of the diagnosis that marks an onset on the curve whose name follows."""


def _arranged(sections: Sequence[Answer], top: Answer | None = None) -> tuple[Answer, ...]:
    """The sections in order. top: of the page of one run; what it says is not repeated, and a curve is drawn once."""
    known = {name: index for index, name in enumerate(ORDER)}

    def place(numbered: tuple[int, Answer]) -> tuple[int, int]:
        position, answer = numbered
        if answer.name in LAST:
            return 2, LAST.index(answer.name)
        if answer.name in THEORY:
            return 1, len(sections) + THEORY.index(answer.name)
        return (0, known[answer.name]) if answer.name in known else (1, position)

    ordered = [answer for _, answer in sorted(enumerate(sections), key=place)]
    return (
        tuple(_once(_marked([_unrepeated(section, set(top.paragraphs)) for section in ordered])))
        if top is not None
        else tuple(ordered)
    )


def _unrepeated(answer: Answer, said: set[str]) -> Answer:
    """An answer without the sentences that stand at the top of the page."""
    do = f"What to do: {answer.do}." in said
    return replace(
        answer,
        sentence="" if answer.sentence in said else answer.sentence,
        do="" if do else answer.do,
        text=[line for line in answer.text if line not in said],
        missing=[line for line in answer.missing if line not in said],
        tables=[fresh for table in answer.tables if (fresh := _fresh(table, said)) is not None],
    )


def _fresh(table: Table, said: set[str]) -> Table | None:
    """A table with "as above" in the place of what the top says; None where nothing of it is left."""

    def shown(cell: str) -> str:
        return ABOVE if len(cell) > SENTENCE and any(cell in line for line in said) else cell

    rows = [tuple(map(shown, row)) for row in table.rows]
    if rows == [tuple(row) for row in table.rows]:
        return table
    filled = [row for row in rows if any(cell != ABOVE for cell in row[1:])]
    return replace(table, rows=filled) if filled else None


def _marked(sections: Sequence[Answer]) -> list[Answer]:
    """The sections with the onsets of the diagnosis on the curves of the panels, and not on a curve of their own."""
    marks = {
        figure.name.removeprefix(MARKED): figure
        for answer in sections
        for figure in answer.figures
        if figure.name.startswith(MARKED)
    }
    panels = {
        _plain(figure.name) for answer in sections for figure in answer.figures if not figure.name.startswith(MARKED)
    }

    def drawn(figure: Figure) -> Figure | None:
        if figure.name.startswith(MARKED):
            return None if figure.name.removeprefix(MARKED) in panels else figure
        mark = marks.get(_plain(figure.name))
        if mark is None or "onset" not in mark.data:
            return figure
        return replace(mark, name=figure.name, group=figure.group, wide=figure.wide)

    return [_with_figures(answer, [drawn(figure) for figure in answer.figures]) for answer in sections]


def _once(sections: Sequence[Answer]) -> list[Answer]:
    """The sections with each of several equal curves drawn once, where it stands first, under the names of all."""
    titles: dict[str, list[str]] = {}
    for answer in sections:
        for figure in answer.figures:
            names = titles.setdefault(_points(figure), [])
            names += [figure.title] * (figure.title not in names)
    seen: set[str] = set()

    def drawn(figure: Figure) -> Figure | None:
        points = _points(figure)
        if points in seen:
            return None
        seen.add(points)
        return replace(figure, title=" = ".join(titles[points]))

    return [_with_figures(answer, [drawn(figure) for figure in answer.figures]) for answer in sections]


def _with_figures(answer: Answer, figures: Sequence[Figure | None]) -> Answer:
    present = [figure for figure in figures if figure is not None]
    return replace(answer, figures=present) if len(answer.figures) else answer


def _points(figure: Figure) -> str:
    """What a curve draws, equal for equal curves; other charts are equal to none."""
    for name, field in (("thick", "mean"), ("points", "value")):
        columns: Mapping[str, Sequence[Any]] = figure.data.get(name, {})
        if field in columns and "step" in columns and not set(columns) & {"metric", "line"}:
            return repr((list(columns["step"]), list(columns[field])))
    return figure.name


def _plain(name: str) -> str:
    """The name of a curve as the names of the diagnosis' charts have it."""
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")


POINTS = 200
"""Points of an axis, at most."""

COVERED = 0.5
"""Share of the steps that must have a value before a sum over all steps is estimated."""


def _axes_of(run: Run) -> dict[str, dict[str, list[float | None]]]:
    """Name of the axis -> steps, and the tokens or hours since the start at each; only axes that were recorded."""
    found = {"tokens": _tokens(run), "hours": _hours(run)}
    axes = {}
    for name, values in found.items():
        finite = np.flatnonzero(np.isfinite(values))
        if len(finite) > 1 and np.all(np.diff(values[finite]) >= 0) and values[finite[-1]] > values[finite[0]]:
            shown = finite[np.unique(np.linspace(0, len(finite) - 1, POINTS).astype(int))]
            axes[name] = {"step": rounded(run.table["step"][shown], 9), "value": rounded(values[shown], 7)}
    return axes


def _tokens(run: Run) -> Floats:
    """Tokens since the start at every row, NaN where not known: as recorded, or the sum of those of batches."""
    if "tokens_total" in run.table:
        return run.table["tokens_total"]
    return next((_total(run, name) for name in ("tokens_batch", "tokens") if name in run.table), _unknown(run))


def _hours(run: Run) -> Floats:
    """Hours since the first row by the clock, pauses included; without one, the sum of the seconds of the steps."""
    if "time" in run.table and np.isfinite(run.table["time"]).sum() > 1:
        since: Floats = (run.table["time"] - np.nanmin(run.table["time"])) / 3600
        return since
    return _total(run, "seconds_step") / 3600 if "seconds_step" in run.table else _unknown(run)


def _total(run: Run, name: str) -> Floats:
    """Running sum of a column; steps without a value count as their neighbours. NaN where most steps have none."""
    step, column = run.table["step"], run.table[name]
    finite = np.isfinite(column)
    if not finite.any() or np.any(np.diff(step) <= 0) or finite.sum() < COVERED * (step[-1] - step[0] + 1):
        return _unknown(run)
    every = np.arange(step[0], step[-1] + 1)
    total = np.cumsum(np.interp(every, step[finite], column[finite]))
    totals: Floats = np.interp(step, every, total)
    return totals


def _unknown(run: Run) -> Floats:
    return np.full(run.steps, np.nan)
