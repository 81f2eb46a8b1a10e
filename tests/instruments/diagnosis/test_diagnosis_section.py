"""The diagnosis on a page: its verdict, a line per rule, and charts of what is flagged with the onset marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic

from grposcope import runs_page
from grposcope.core.run import Meta, Run, no_evaluations, no_groups
from grposcope.instruments.diagnosis import answer as diagnosis
from grposcope.instruments.diagnosis import diagnose, figures
from grposcope.logs import read
from grposcope.render import page
from grposcope.render.charts import export

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
    found = diagnosis.diagnosed([made()])
    assert found is not None
    assert found.word == "failing"
    assert found.sentence == "Failing: reward 0.59 → 0.39, down since step 84; entropy 0.8 → 8.0e-4 since step 80"
    assert found.text[0].startswith("Because the entropy ")
    assert found.do.endswith(". 1 more problem found")
    chart = found.figures[0]
    assert chart.name == "diagnosis-entropy"
    assert chart.data["onset"]["mode"] == ["entropy collapse"]
    assert abs(chart.data["onset"]["step"][0] - 80) <= 3
    flagged, evidence, advice, rest, how = found.tables
    assert [row[:2] for row in flagged.rows] == [("entropy collapse", "✗ failing"), ("reward decline", "✗ failing")]
    assert [row[0] for row in advice.rows] == ["entropy collapse", "reward decline"]
    assert advice.rows[0][1] + ". 1 more problem found" == found.do
    assert {row[0] for row in evidence.rows} == {"entropy collapse", "reward decline"}
    assert all(float(row[3]) > 0 for row in evidence.rows)
    assert flagged.rows[0][3] == "above 0.999"
    assert rest.folded
    assert how.folded
    assert {row[1] for row in rest.rows} == {"? cannot tell", "✓ excluded"}
    assert len(flagged.rows) + len(rest.rows) == len(diagnose(made()))
    assert found.document["made up"]["present"] == ["entropy collapse", "reward decline"]


def test_a_healthy_run_has_no_charts_and_says_what_is_missing() -> None:
    found = diagnosis.diagnosed([made(entropy_from=None)])
    assert found is not None
    assert found.sentence.startswith("Healthy: ")
    assert found.figures == []
    rest, how = found.tables
    kl = next(row for row in rest.rows if row[0] == "kl blow-up")
    assert kl[1] == "? cannot tell"
    (missing,) = found.missing
    assert missing.startswith("Not logged: ")
    assert missing[12:-1].split(", ") == [row[0] for row in how.rows], (
        "many are named in a line; how to log them is a table"
    )
    assert dict(how.rows)["kl"].startswith("TRL: beta=")


def test_several_runs_have_a_verdict_each() -> None:
    found = diagnosis.diagnosed([made(name="a"), made(entropy_from=None, name="b")])
    assert found is not None
    assert [row[0] for row in found.tables[0].rows] == ["a", "b"]
    assert found.tables[0].rows[0][1].startswith("failing: ")
    assert found.tables[0].rows[1][1].startswith("healthy: ")


def test_runs_without_steps(tmp_path: Path) -> None:
    empty = made(0, None)
    assert diagnosis.diagnosed([empty]) is None
    found = diagnosis.diagnosed([empty, made()])
    assert found is not None
    assert len(found.tables[0].rows) == 2


@pytest.mark.parametrize("rows", [1, 2, 5, 29, 30, 31])
def test_short_runs(rows: int) -> None:
    found = diagnosis.diagnosed([made(rows, None)])
    assert found is not None
    if rows < 10:
        assert found.word == "cannot tell"


@pytest.mark.slow
def test_it_is_on_the_page_of_a_run_and_exports(tmp_path: Path) -> None:
    run = synthetic.make(tmp_path / "run", steps=60)
    content = runs_page.document([read(run)])
    assert content.sections[0].name == "diagnosis"
    names = [figure.name for figure in content.figures]
    assert len(set(names)) == len(names)
    marked = [f for f in runs_page.document([made()]).figures if "onset" in f.data]
    assert [f.name for f in marked] == ["verdict", "reward", "entropy"], "on the panels, and on no curve of their own"
    written = export(marked, tmp_path / "out", "svg")
    assert written
    assert "stroke-dasharray" in written[0].read_text()


def test_names_in_a_log_stay_text() -> None:
    """Names of reward functions come from the log; on the page they are data, without what is unseen."""
    rising, spread = np.linspace(0.1, 0.9, 120), np.full(120, 0.4)
    parts = {f"component/{HOSTILE}": 0.9 - rising, "component/format": 2 * rising}
    stds = {f"component_std/{HOSTILE}": spread, "component_std/format": spread}
    run = made(entropy_from=None, reward=0.9 + rising, **parts, **stds)
    found = diagnosis.diagnosed([run])
    assert found is not None
    cells = [cell for table in found.tables for row in table.rows for cell in row] + list(found.paragraphs)
    assert any("alert(1)" in cell for cell in cells)
    assert not any("\x1b" in cell or "\u202e" in cell for cell in cells)
    html = page.html(runs_page.document([run]))
    assert "<script>alert" not in html
    assert "\x1b" not in html


def test_the_columns_that_a_finding_speaks_of() -> None:
    findings = {finding.fault: finding for finding in diagnose(made())}
    collapse = findings["entropy collapse"]
    assert figures.evident(collapse, made().table) == ["entropy"]
    assert figures.evident(collapse, {"step": 0, "entropy_loss": 0}) == ["entropy_loss"]
