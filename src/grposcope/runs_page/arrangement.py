"""The sections of a page in the order in which an engineer checks them, with every curve once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from grposcope.core.answer import Answer, Figure, Table

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


def arranged(sections: Sequence[Answer], top: Answer | None = None) -> tuple[Answer, ...]:
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
