"""What a sweep says: which cells differ from the baseline, their table, a point per run, and curves of its runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import altair as alt

from grposcope import runs_page
from grposcope.core.answer import Answer, Figure, Table, Word
from grposcope.core.estimate import Estimate
from grposcope.core.run import Run
from grposcope.core.text import number, visible
from grposcope.lab.sweeps.drive import RunState
from grposcope.lab.sweeps.table import CellResult, SweepTable
from grposcope.render import charts as base
from grposcope.render.page import Document

QUESTION = "Which settings are best?"

TITLES = {"pass@1": "held-out pass@1 at the end", "reward": "mean reward of the last fifth"}

LEVEL = 0.05
"""Adjusted p-value below which a cell is said to differ from the baseline."""

CURVES = 8
"""Runs whose curves are drawn over each other at most."""


def _answer(result: SweepTable, states: Sequence[RunState]) -> Answer:
    """What differs from the baseline, the table of cells, and the runs that failed."""
    header = ("setting", "seeds", TITLES[result.metric], "difference", "adjusted p")
    caption = (
        f"Mean ± standard error over seeds; differences from {result.baseline} seed by seed; p by Holm over settings."
    )
    tables = [Table("", header, [tuple(visible(cell) for cell in _cells(row)) for row in result.cells], caption)]
    failed = [(state.run.label, "; ".join(state.deaths)) for state in states if state.status == "failed"]
    if failed:
        tables.append(Table("Runs that failed", ("run", "how"), failed))
    said = _sentence(result)
    document = {
        "metric": result.metric,
        "baseline": result.baseline,
        "sentence": said,
        "cells": [vars(cell) for cell in result.cells],
    }
    word: Word = "told" if _tested(result) else "cannot tell"
    return Answer("headline", QUESTION, word, said, tables=tables, document=document)


def document(result: SweepTable, states: Sequence[RunState], runs: Mapping[tuple[str, int], Run]) -> Document:
    """Content of the page: the cells compared, and below them what every page of several runs has."""
    top, figure = _answer(result, states), _points(result)
    chosen = [runs[key] for key in _first_seeds(result, runs)]
    if not chosen or figure is None:
        return Document((), top, ())
    below = runs_page.document(chosen)
    return replace(
        below, top=top, sections=(Answer("cells", "How do the settings compare?", figures=[figure]), *below.sections)
    )


def _points(result: SweepTable) -> Figure | None:
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


def _cells(row: CellResult) -> tuple[str, str, str, str, str]:
    """A row as text: name, seeds, mean ± standard error, difference, adjusted p."""
    difference = "baseline" if row.difference is None else _estimate(row.difference, "+")
    p = "" if math.isnan(row.adjusted) else f"{row.adjusted:.2g}"
    return row.cell, str(row.mean.n), _estimate(row.mean), difference, p


def _estimate(estimate: Estimate, sign: str = "") -> str:
    if not math.isfinite(estimate.value):
        return "no run"
    error = f" ± {estimate.se:.2g}" if math.isfinite(estimate.se) else ""
    return f"{estimate.value:{sign}.3g}{error}"


def _sentence(result: SweepTable) -> str:
    """The conclusion: what differs from the baseline."""
    tested, baseline = _tested(result), result.baseline
    if not tested:
        return f"Cannot tell: a difference from {baseline} needs two seeds that finished in both settings."
    beyond = [row for row in tested if row.adjusted < LEVEL and row.difference is not None]
    if not beyond:
        return (
            f"No setting differs from {baseline} by more than seeds do (smallest adjusted p = "
            f"{number(min(row.adjusted for row in tested))}, settings compared: {len(tested)})."
        )
    told = [f"{row.cell} by {_estimate(row.difference, '+')} (adjusted p = {row.adjusted:.2g})" for row in beyond
            if row.difference is not None]  # fmt: skip
    return f"Beyond the noise of seeds, these differ from {baseline}: {'; '.join(told)}."


def _tested(result: SweepTable) -> list[CellResult]:
    """The cells that could be compared with the baseline."""
    return [row for row in result.cells if not math.isnan(row.adjusted)]
