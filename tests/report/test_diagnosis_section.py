"""The diagnosis on a page: its verdict, a line per rule, and charts of what is flagged with the onset marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import synthetic
from grposcope.diagnosis import diagnose
from grposcope.report import page
from grposcope.report.charts import base
from grposcope.report.sections import diagnosis
from grposcope.runs import read
from grposcope.runs.run import Meta, Run, no_evaluations, no_groups

HOSTILE = "</script><script>alert(1)</script>\x1b[2J\u202e"


def made(rows: int = 120, entropy_from: int | None = 80, name: str = "made up", **columns: Any) -> Run:
    noise = 0.01 * np.random.default_rng(1).normal(size=(3, rows))
    step = np.arange(1.0, rows + 1)
    entropy = 0.8 * (1 + noise[0])
    if entropy_from is not None:
        entropy[step >= entropy_from] *= 0.001
    gone = 0.0 if entropy_from is None else np.maximum(step - entropy_from, 0)
    table = {
        "step": step,
        "reward": 0.3 + 0.004 * step - 0.012 * gone + noise[1],
        "entropy": entropy,
        "grad_norm": 0.5 + noise[2],
    }
    return Run(Meta(Path(name), "trl", name, "finished"), {}, table | columns, no_groups(), no_evaluations())


def test_what_is_flagged_is_drawn_with_its_onset() -> None:
    found = diagnosis.section([made()])
    assert found is not None
    assert found.text[0].startswith("failing: entropy collapse, since step ")
    chart = found.figures[0]
    assert chart.name == "diagnosis-entropy"
    assert chart.data["onset"]["mode"] == ["entropy collapse"]
    assert abs(chart.data["onset"]["step"][0] - 80) <= 3
    flagged, rest = found.tables
    assert [row[:2] for row in flagged.rows] == [("entropy collapse", "failing"), ("reward decline", "failing")]
    assert 0.95 < float(flagged.rows[0][3]) <= 1
    assert rest.folded
    assert {row[1] for row in rest.rows} == {"cannot tell", "ok"}
    assert len(flagged.rows) + len(rest.rows) == len(diagnose(made()))
    assert found.numbers["made up"]["flagged"] == ["entropy collapse", "reward decline"]


def test_a_healthy_run_has_no_charts_and_says_what_is_missing() -> None:
    found = diagnosis.section([made(entropy_from=None)])
    assert found is not None
    assert found.text[0].startswith("healthy: ")
    assert found.figures == []
    (rest,) = found.tables
    kl = next(row for row in rest.rows if row[0] == "kl blow-up")
    assert kl[1] == "cannot tell"
    assert "to tell, log kl: TRL: beta=" in kl[-1]


def test_several_runs_have_a_verdict_each() -> None:
    found = diagnosis.section([made(name="a"), made(entropy_from=None, name="b")])
    assert found is not None
    assert [row[0] for row in found.tables[0].rows] == ["a", "b"]
    assert found.tables[0].rows[0][1].startswith("failing: ")
    assert found.tables[0].rows[1][1].startswith("healthy: ")


def test_runs_without_steps(tmp_path: Path) -> None:
    empty = made(0, None)
    assert diagnosis.section([empty]) is None
    found = diagnosis.section([empty, made()])
    assert found is not None
    assert len(found.tables[0].rows) == 2


@pytest.mark.parametrize("rows", [1, 2, 5, 29, 30, 31])
def test_short_runs(rows: int) -> None:
    found = diagnosis.section([made(rows, None)])
    assert found is not None
    if rows < 30:
        assert "cannot tell" in found.text[0]


def test_it_is_on_the_page_of_a_run_and_exports(tmp_path: Path) -> None:
    run = synthetic.make(tmp_path / "run", steps=60)
    content = page.document([read(run)])
    assert content.sections[0].name == "diagnosis"
    names = [figure.name for figure in content.figures]
    assert len(set(names)) == len(names)
    marked = page.document([made()])
    written = base.export([f for f in marked.figures if f.name.startswith("diagnosis")], tmp_path / "out", "svg")
    assert written
    assert "stroke-dasharray" in written[0].read_text()


def test_names_in_a_log_stay_text() -> None:
    """Names of reward functions come from the log; on the page they are data, without what is unseen."""
    rising, spread = np.linspace(0.1, 0.9, 120), np.full(120, 0.4)
    parts = {f"component/{HOSTILE}": 0.9 - rising, "component/format": 2 * rising}
    stds = {f"component_std/{HOSTILE}": spread, "component_std/format": spread}
    run = made(entropy_from=None, reward=0.9 + rising, **parts, **stds)
    found = diagnosis.section([run])
    assert found is not None
    cells = [cell for table in found.tables for row in table.rows for cell in row] + list(found.text)
    assert any("alert(1)" in cell for cell in cells)
    assert not any("\x1b" in cell or "\u202e" in cell for cell in cells)
    html = page.html(page.document([run]))
    assert "<script>alert" not in html
    assert "\x1b" not in html


def test_the_columns_that_a_finding_speaks_of() -> None:
    findings = {finding.mode: finding for finding in diagnose(made())}
    collapse = findings["entropy collapse"]
    assert diagnosis.evident(collapse, made().table) == ["entropy"]
    assert diagnosis.evident(collapse, {"step": 0, "entropy_loss": 0}) == ["entropy_loss"]
