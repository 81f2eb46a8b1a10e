"""The rooms of logs: no circle of imports, and no pyarrow where no Parquet file is read."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import grposcope
from grposcope.errors import UserError
from grposcope.runs import read
from grposcope.runs.formats import parquet

PACKAGE = Path(grposcope.__file__).parent


def test_no_circle_of_imports() -> None:
    """Between all modules of the package, imports inside functions included."""
    files = {
        ".".join(("grposcope", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): file
        for file in PACKAGE.rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for name, file in files.items():
        imported: set[str] = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                parts = [f"{node.module}.{alias.name}" for alias in node.names]
                imported.update(part if part in files else node.module for part in parts)
        graph[name] = imported & files.keys() - {name}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_logs_are_read_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.jsonl").write_text("".join(f'{{"step": {s}, "reward": 0.{s}}}\n' for s in range(1, 9)))
    code = f"""
import sys
sys.modules["pyarrow"] = None
from grposcope.diagnosis import diagnose
from grposcope.runs import read
run = read({str(tmp_path / "log.jsonl")!r})
assert len(diagnose(run)) > 9
print(run.table["reward"].tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.strip() == str(read(tmp_path / "log.jsonl").table["reward"].tolist())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match="needs pyarrow"):
        parquet.table(tmp_path / "completions_1.parquet")
