"""Elements of a page as plain data: figures and tables, gathered in sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grposcope.facts.headline import KeyNumber

Columns = Mapping[str, Sequence[Any]]
"""A data set of a figure: column name -> values, all of one length; None where a value is absent."""


@dataclass(frozen=True)
class Figure:
    """A chart: a Vega-Lite specification and the data sets it names.

    name: unique on the page, also the file name of an export. caption: how to read it. group: name of the group within
    the section under which the chart is folded away; empty where it is shown with the section.
    Colours in `spec` are the variables of assets/page.css, such as var(--run-1).
    """

    name: str
    title: str
    spec: Mapping[str, Any]
    data: Mapping[str, Columns]
    unit: str = ""
    caption: str = ""
    wide: bool = False
    group: str = ""


@dataclass(frozen=True)
class PageTable:
    """A table of text, whose first column names the row. folded: hidden until the reader opens it."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the page.

    text: paragraphs. grade: the first word of the verdict that the title is, which decides its colour; else empty.
    tiles: numbers that are shown large. numbers: the content of the section in JSON. widget: name of a script in
    assets/ that draws `data`, for a section that needs more than figures and tables.
    """

    name: str
    title: str
    text: Sequence[str] = ()
    grade: str = ""
    tiles: Sequence[KeyNumber] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[PageTable] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
    widget: str = ""
    data: Any = None
