"""The page of a sweep has the table, a point per run, the runs that failed, and the curves of one run per cell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import synthetic

from grposcope.lab.sweeps import answer as sweep
from grposcope.lab.sweeps import plan, table
from grposcope.lab.sweeps.drive import RunState
from grposcope.logs import Run, read
from grposcope.render import charts as base
from grposcope.render import page

NAME = "</script><script>document.title='pwned'</script>"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[plan.SweepPlan, dict[tuple[str, int], Run]]:
    """A plan of two cells and two seeds, one of its cells with a hostile name, and a run of each."""
    out = tmp_path_factory.mktemp("sweep")
    cells = plan.of({"seeds": 2, "cells": [{"name": "small", "group": 4}, {"name": NAME, "group": 8}]}, out)
    runs = {}
    for number, one in enumerate(cells.runs):
        runs[one.cell, one.seed] = read(synthetic.make(one.folder, steps=40, seed=number))
    return cells, runs


@pytest.mark.slow
def test_the_page_says_what_the_table_says(made: tuple[plan.SweepPlan, dict], tmp_path: Path) -> None:
    cells, runs = made
    states = [RunState(one, "finished") for one in cells.runs]
    states[3] = replace(states[3], status="failed", deaths=("killed by SIGKILL", "killed by SIGKILL"))
    result = table.of_runs(cells, runs)
    content = sweep.document(result, states, runs)
    assert content.top.sentence == sweep._sentence(result) == content.top.document["sentence"]
    assert content.top.document["cells"][0]["mean"].n == 2
    compared, failed = content.top.tables
    assert [row[0] for row in compared.rows] == ["small", NAME]
    assert content.sections[0].figures[0].name == "cells"
    assert failed.rows == [(f"{NAME}, seed 1", "killed by SIGKILL; killed by SIGKILL")]
    assert len(content.names) == 2  # one run of each cell
    page.write(content, tmp_path / "page.html")
    assert NAME not in (tmp_path / "page.html").read_text()


def test_every_run_is_a_point(made: tuple[plan.SweepPlan, dict]) -> None:
    cells, runs = made
    figure = sweep._points(table.of_runs(cells, runs))
    assert figure is not None
    assert len(figure.data["runs"]["value"]) == 4
    assert base.drawn(figure, "svg").startswith(b"<svg")


def test_a_sweep_without_a_finished_run_has_a_page_that_says_so(
    made: tuple[plan.SweepPlan, dict], tmp_path: Path
) -> None:
    cells, _ = made
    result = table.of_runs(cells, {})
    assert sweep._points(result) is None
    content = sweep.document(result, [RunState(one, "failed", ("status 70",)) for one in cells.runs], {})
    page.write(content, tmp_path / "page.html")
    assert "Cannot tell: a difference from" in (tmp_path / "page.html").read_text()
