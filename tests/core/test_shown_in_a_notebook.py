"""What completes on TAB, and how runs, findings, answers and figures show themselves and become tables."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest
import vl_convert
from places import ROOT

import grposcope
from grposcope import Run, UserError, diagnose, read, runs_page
from grposcope.core import display
from grposcope.core.answer import Answer, Table

PACKAGES = ("objectives", "geometry", "ustat", "dynamics", "tasks", "training", "runs", "diagnosis", "engines.trl")


@pytest.fixture(scope="module")
def run() -> Run:
    return read(ROOT / "docs" / "example.jsonl")


@pytest.mark.parametrize("package", PACKAGES)
def test_promised_names_complete(package: str) -> None:
    module = importlib.import_module(f"grposcope.{package}")
    assert set(module.__all__) <= set(dir(module))
    assert set(grposcope.__all__) <= set(dir(grposcope))


@pytest.mark.slow
def test_a_module_that_completes_is_there_without_an_import_of_its_own() -> None:
    code = "import grposcope; grposcope.geometry.spectrum.ranks, grposcope.training.config, grposcope.ustat.mse"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with pytest.raises(AttributeError):
        _ = importlib.import_module("grposcope.ustat").mze


def test_a_run_a_finding_and_an_answer_show_themselves(run: Run) -> None:
    html = run._repr_html_()
    assert html is not None
    assert "Failing: held-out" in html
    assert html.count("data:image/png") == 1
    finding = diagnose(run)[0]._repr_html_()
    assert finding is not None
    assert "failing: reward hacking, since step 100" in finding
    assert "What to do" in finding
    answers = {one.name: one for one in runs_page.document([run]).sections}
    html = answers["learning"]._repr_html_()
    assert html is not None
    assert html.count("data:image/png") == 2


def test_text_of_a_run_is_text() -> None:
    hostile = "<img src=x onerror=alert(1)>"
    said = Answer("a", "?", sentence=hostile, text=[hostile], tables=[Table(hostile, (hostile,), [(hostile,)])])
    html = said._repr_html_()
    assert html is not None
    assert "<img" not in html


def test_without_the_part_that_draws_nothing_is_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(display.DRAWS, "Run", ("grposcope.instruments.none", "card"))
    assert run._repr_html_() is None


def test_tables_of_pandas(run: Run) -> None:
    frame = run.to_pandas()
    assert frame.index.name == "step"
    assert frame.loc[200, "reward"] == run.table["reward"][-1]
    rows = [("a", "1,000", "x"), ("b", "2", "3")]
    said = Answer("a", "?", tables=[Table("first", ("name", "count", ""), rows), Table("none", ("x",), [])])
    table = said.to_pandas("first")
    assert list(table["count"]) == [1000.0, 2.0]
    assert list(table["column 3"]) == ["x", "3"]
    assert said.to_pandas(1).empty
    with pytest.raises(UserError, match=r"the answer a has no table 'frist'; its tables: 0 \(first\), 1 \(none\)"):
        said.to_pandas("frist")


def test_a_figure_is_a_chart_of_altair(run: Run) -> None:
    altair = pytest.importorskip("altair")
    answers = {one.name: one for one in runs_page.document([run]).sections}
    chart = answers["learning"].figures[0].chart()
    assert isinstance(chart, altair.LayerChart)
    spec = chart.properties(title="mine").to_dict()
    assert "mine" in vl_convert.vegalite_to_svg(spec)
    assert "var(--" not in json.dumps(spec)
    assert spec["title"] == "mine"
    assert sum(map(len, spec["datasets"].values())) > 50
    assert "<img" in (answers["learning"].figures[0]._repr_html_() or "")


def test_without_pandas_it_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pip install pandas"):
        run.to_pandas()
