"""The page of a sweep: the table of its cells, a point per run, and the curves of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import altair as alt

from grposcope.formatting import visible
from grposcope.report import page
from grposcope.report.charts import base
from grposcope.report.elements import Figure, PageTable, Section
from grposcope.report.page import Document
from grposcope.runs.run import Run
from grposcope.sweeps.drive import RunState
from grposcope.sweeps.table import TITLES, SweepTable, cells_of

CURVES = 8
"""Runs whose curves are drawn over each other at most."""


def document(result: SweepTable, states: Sequence[RunState], runs: Mapping[tuple[str, int], Run]) -> Document:
    """Content of the page: the cells compared, and below them what every page of several runs has."""
    cells = compared(result, states)
    chosen = [runs[key] for key in _first_seeds(result, runs)]
    if not chosen:
        return Document((), replace(cells, name="headline"), ())
    below = page.document(chosen)
    top = Section("headline", cells.title, numbers=result.document())
    return replace(below, top=top, sections=(replace(cells, title="Cells compared"), *below.sections))


def compared(result: SweepTable, states: Sequence[RunState]) -> Section:
    """The table of cells with a point per run, and the runs that failed."""
    header = ("cell", "seeds", TITLES[result.metric], "difference", "adjusted p")
    caption = (
        f"Mean ± standard error over seeds; differences from {result.baseline} seed by seed; p by Holm over cells."
    )
    tables = [PageTable("", header, [tuple(visible(cell) for cell in cells_of(row)) for row in result.cells], caption)]
    failed = [(state.run.label, "; ".join(state.deaths)) for state in states if state.status == "failed"]
    if failed:
        tables.append(PageTable("Runs that failed", ("run", "how"), failed))
    figure = points(result)
    return Section("cells", result.sentence, tables=tables, figures=[] if figure is None else [figure])


def points(result: SweepTable) -> Figure | None:
    """A point per run and a line per seed, cell by cell, so that differences within seeds are seen; None without
    runs.
    """
    rows: list[dict[str, Any]] = [{"cell": visible(row.cell, 60), "seed": str(seed), "value": value}
                                  for row in result.cells for seed, value in row.values.items()]  # fmt: skip
    if not rows:
        return None
    data = {name: [row[name] for row in rows] for name in ("cell", "seed", "value")}
    order = [visible(row.cell, 60) for row in result.cells]
    across = alt.X("cell:N", sort=order, title=None, axis=alt.Axis(labelAngle=-20))
    up = alt.Y("value:Q", title=TITLES[result.metric], scale=alt.Scale(zero=False))
    marks = base.dataset("runs").encode(x=across, y=up, detail="seed:N", tooltip=["cell:N", "seed:N", "value:Q"])
    layers = [marks.mark_line(color=base.colour(0), opacity=0.3), marks.mark_point(filled=True, color=base.colour(0))]
    caption = "A point is a run; a line joins the runs of one seed."
    return base.figure("cells", TITLES[result.metric], layers, {"runs": data}, caption=caption)


def _first_seeds(result: SweepTable, runs: Mapping[tuple[str, int], Run]) -> list[tuple[str, int]]:
    """The run of the first seed that finished of each cell, CURVES at most."""
    first: dict[str, tuple[str, int]] = {}
    for cell, seed in runs:
        first.setdefault(cell, (cell, seed))
    return [first[row.cell] for row in result.cells if row.cell in first][:CURVES]
