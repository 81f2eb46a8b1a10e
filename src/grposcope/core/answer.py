"""What an instrument says: one `Answer`, which the terminal, the page, JSON and a notebook render and cannot change.

A word, a sentence, a table or a number of an instrument is made here, once; the renderers in `grposcope.render` only
lay it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

from grposcope.core import display
from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.text import plain, printable, visible

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

Word = Literal["failing", "warning", "healthy", "cannot tell", "told"]
"""The first word of an answer: how bad it is; "cannot tell"; or "told", where nothing is judged good or bad."""

HEADLINE = "How is this run?"
"""What the top of a page answers."""

Columns = Mapping[str, Sequence[Any]]
"""A data set of a figure: column name -> values, all of one length; None where a value is absent."""


@dataclass(frozen=True)
class KeyNumber:
    """A number that is shown large, with its name above and a detail below.

    value: with its standard error, 0 where it is known exactly, such as a count. shown: the number as text.
    """

    name: str
    value: Estimate
    shown: str
    detail: str = ""


def exactly(value: float) -> Estimate:
    """A number that is known without error, such as a count."""
    return Estimate(value, 0.0, 1)


@dataclass(frozen=True)
class Table:
    """A table of text, whose first column names the row. folded: hidden on the page until the reader opens it.

    Numbers in cells get the one style of `core.text.plain`.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    folded: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "caption", plain(self.caption))
        rows = [tuple(map(plain, row)) for row in self.rows]
        if any(cells != tuple(row) for cells, row in zip(rows, self.rows, strict=True)):
            object.__setattr__(self, "rows", rows)


@dataclass(frozen=True)
class Figure:
    """A chart: a Vega-Lite specification and the data sets it names.

    name: unique on the page, also the file name of an export. caption: how to read it. group: name of the group within
    the answer under which the chart is folded away; empty where it is shown with the answer.
    Colours in `spec` are the variables of the page's style sheet, such as var(--run-1).
    """

    name: str
    title: str
    spec: Mapping[str, Any]
    data: Mapping[str, Columns]
    unit: str = ""
    caption: str = ""
    wide: bool = False
    group: str = ""

    def chart(self) -> alt.LayerChart:
        """The figure as a chart of Altair, to be shown in a notebook, changed or saved; colours of the light theme."""
        chart: alt.LayerChart = display.drawn("Figure", self)
        return chart

    def _repr_html_(self) -> str | None:
        """The figure as a notebook shows it: a picture."""
        html: str | None = display.drawn("picture", self)
        return html


class DrawnLater(Sequence[Figure]):
    """Figures that are drawn when they are first asked for: a terminal need not wait for the library of charts."""

    def __init__(self, draw: Callable[[], Iterable[Figure]]):
        self._draw = draw

    @cached_property
    def _drawn(self) -> tuple[Figure, ...]:
        return tuple(self._draw())

    @overload
    def __getitem__(self, index: int) -> Figure: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Figure]: ...

    def __getitem__(self, index: int | slice) -> Figure | Sequence[Figure]:
        return self._drawn[index]

    def __len__(self) -> int:
        return len(self._drawn)


@dataclass(frozen=True)
class Answer:
    """What an instrument says of one or several runs.

    name: of the answer, its key in JSON and its address on the page. question: what is answered, the title on the page.
    word: how bad it is. sentence: the answer, one whole sentence. because, do: the reason, and what to do; empty where
    there is none. text: further paragraphs. numbers: those that are shown large. missing: what would have to be logged
    or measured to say more, a sentence each. document: everything for programs, as JSON; of several runs, by their
    labels. widget: name of a script of the page that draws `data`, where figures and tables do not do.
    """

    name: str
    question: str
    word: Word = "told"
    sentence: str = ""
    because: str = ""
    do: str = ""
    text: Sequence[str] = ()
    numbers: Sequence[KeyNumber] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    missing: Sequence[str] = ()
    document: Mapping[str, Any] = field(default_factory=dict)
    widget: str = ""
    data: Any = None

    def __post_init__(self) -> None:
        for name in ("sentence", "because", "do"):
            object.__setattr__(self, name, plain(getattr(self, name)))
        for name in ("text", "missing"):
            parts = getattr(self, name)
            object.__setattr__(self, name, (tuple if isinstance(parts, tuple) else list)(map(plain, parts)))

    def __repr__(self) -> str:
        """The answer as a person reads it: its word and its sentence."""
        return f"<{type(self).__name__} {self.name}, {self.word}: {visible(self.sentence, 400)}>"

    def _repr_html_(self) -> str | None:
        """The answer as a notebook shows it: what is said, its numbers, tables and first charts."""
        html: str | None = display.drawn("Answer", self)
        return html

    def to_pandas(self, table: int | str = 0) -> pd.DataFrame:
        """One of `tables`, by its place or title, as a table of pandas; columns of numbers are numbers.

        UserError where there is no such table, or pandas is not installed.
        """
        titles = [table.title for table in self.tables]
        index = titles.index(table) if isinstance(table, str) and table in titles else table
        if not isinstance(index, int) or not -len(titles) <= index < len(titles):
            options = ", ".join(f"{i} ({title})" if title else str(i) for i, title in enumerate(titles)) or "none"
            raise UserError(f"the answer {self.name} has no table {table!r}; its tables: {options}")
        chosen = self.tables[index]
        columns = list(zip(*chosen.rows, strict=True)) or [()] * len(chosen.header)
        return display.frame(
            {
                name or f"column {i + 1}": _probe_numbers(column)
                for i, (name, column) in enumerate(zip(chosen.header, columns, strict=True))
            }
        )

    def __str__(self) -> str:
        """All that is said in words, a paragraph each."""
        return "\n".join(printable(paragraph) for paragraph in self.paragraphs)

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """All that is said in words, in the order in which it is read: the sentence, why, what to do, the rest."""
        because = f"Because {self.because}." if self.because else ""
        do = f"What to do: {self.do}." if self.do else ""
        return tuple(paragraph for paragraph in (self.sentence, because, do, *self.text, *self.missing) if paragraph)


def _probe_numbers(column: Sequence[str]) -> Sequence[Any]:
    """A column of text as numbers where every cell is one, thousands set apart by commas or not; else as it is."""
    try:
        return [float(cell.replace(",", "")) for cell in column]
    except ValueError:
        return column
