"""The examples run as they stand, each in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

EXAMPLES = ROOT / "examples"
LIMIT = 1500
"""Seconds for one example: far more than any takes, also on a machine that does other things."""


def run(name: str, *arguments: object, status: int = 0, launch: Sequence[str] = ()) -> str:
    """What an example prints; launch: arguments of Python before the example's own."""
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, *launch, str(EXAMPLES / name), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment)
    assert done.returncode == status, done.stderr[-2000:]
    return done.stdout + done.stderr


def torchrun(processes: int) -> list[str]:
    return ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)] if processes > 1 else []


def test_every_example_is_listed_and_short() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.iterdir():
        if path.suffix in (".py", ".ipynb"):
            assert f"]({path.name})" in listed
        if path.suffix == ".py":
            assert len(path.read_text().splitlines()) <= 60


@pytest.mark.slow
def test_diagnose_in_ci(tmp_path: Path) -> None:
    log = tmp_path / "train.jsonl"
    run("make_log.py", log)
    said = run("diagnose_in_ci.py", log, status=1)
    assert re.search(
        r"^::error title=failing::failing: reward [\d.]+ → [\d.]+,? .*; entropy [\d.]+ → [\d.]+ since", said
    )
    assert "\nfailing: entropy collapse, because " in said
    assert "::notice" in run("diagnose_in_ci.py", log, "--fail-on", "kl blow-up")
    assert run("diagnose_in_ci.py", tmp_path / "none", status=2).startswith("::error::")


@pytest.mark.slow
def test_own_task(tmp_path: Path) -> None:
    said = run("own_task.py", "--steps", 2, "--out", tmp_path / "mine")
    assert "held out: 0." in said
    assert (tmp_path / "mine" / "summary.json").exists()


@pytest.mark.slow
def test_own_task_learns_at_its_defaults(tmp_path: Path) -> None:
    said = run("own_task.py", "--out", tmp_path / "mine")
    first, last = (float(value) for value in re.findall(r"([\d.]+) ± [\d.]+ \(n=60\)", said))
    assert 0.2 < first < 0.5
    assert last > first + 0.15


@pytest.mark.slow
def test_compare_recipes(tmp_path: Path) -> None:
    said = run("compare_recipes.py", "--seeds", 0, 1, "--steps", 2, "--prompts", 4, "--problems", 8, "--out", tmp_path)
    assert "recipe=dr_grpo" in said
    assert "adjusted p" in said
    assert (tmp_path / "page.html").exists()


@pytest.mark.slow
def test_trl_callback(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    run("trl_callback.py", "--steps", 2, "--out", tmp_path)
    assert (tmp_path / "grposcope" / "summary.json").exists()
    assert (tmp_path / "grposcope" / "groups.jsonl").read_text().count("\n") == 2 * 4


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_trl_trainer(tmp_path: Path, processes: int) -> None:
    """Alone and on two ranks: every step in the record, every group, and a probe every 20 steps."""
    pytest.importorskip("trl")
    given = ["--steps", 100, "--credit", "steps", "--probe-every", 20, "--out", tmp_path]
    run("trl_trainer.py", *given, launch=torchrun(processes))
    folder = tmp_path / "grposcope"
    rows = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 101))
    assert [row["step"] for row in rows if "geometry/layer_stable" in row] == list(range(1, 101, 20))
    assert (folder / "groups.jsonl").read_text().count("\n") == 100 * 4 * processes
    assert [path.name for path in sorted((folder / "probes").iterdir())] == [f"step-{n:06d}" for n in range(0, 100, 20)]
    assert json.loads((folder / "summary.json").read_text())["steps"] == 100
    assert sum(row["reward"] for row in rows[-20:]) > sum(row["reward"] for row in rows[:20])  # it learns


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_100_steps_under_the_trl_callback(tmp_path: Path, processes: int) -> None:
    pytest.importorskip("trl")
    run("trl_callback.py", "--steps", 100, "--out", tmp_path, launch=torchrun(processes))
    folder = tmp_path / "grposcope"
    steps = [json.loads(line)["step"] for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 101))
    assert (folder / "groups.jsonl").read_text().count("\n") == 100 * 4 * processes
    assert json.loads((folder / "summary.json").read_text())["steps"] == 100


NOTEBOOK = EXAMPLES / "look_at_a_run.ipynb"


def shown(notebook: Any) -> list[Any]:
    """What each cell of code of a notebook shows: HTML, else the kind of picture."""
    outputs = [output for cell in notebook["cells"] if cell["cell_type"] == "code" for output in cell["outputs"]]
    assert all(output["output_type"] != "error" for output in outputs)
    data = [output.get("data", {}) for output in outputs]
    return ["".join(one["text/html"]) if "text/html" in one else next(iter(one)) for one in data]


def check_shown(said: list[Any]) -> None:
    """Two runs, a finding, two tables and a chart."""
    assert len(said) == 6
    assert "Failing: reward " in said[0]
    assert "Healthy" in said[5]
    assert all(card.count("data:image/png") == 1 for card in (said[0], said[5]))
    assert "What to do" in said[1]
    assert all("<table" in table for table in said[2:4])
    assert said[4] == "image/png"


def test_the_notebook_ships_with_outputs() -> None:
    check_shown(shown(json.loads(NOTEBOOK.read_text("utf-8"))))


@pytest.mark.slow
def test_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", paths)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    check_shown(shown(notebook))
