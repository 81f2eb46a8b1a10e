"""Commands print text for people, or with --json the document and nothing else."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from grposcope.cli import main
from grposcope.commands import known, output
from grposcope.instruments import has, lacking

SETTING = ["stability", "--lr", "0.1", "--curvature", "1"]


@pytest.mark.needs("dynamics", "diagnosis")
@pytest.mark.parametrize("terminal", [True, False])
def test_json_is_printed_only_where_it_is_asked_for_and_then_alone(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    assert main(SETTING) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Stable: ")
    assert not any(line.startswith(("{", "[")) for line in lines)
    assert main([*SETTING, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "stable"


@pytest.mark.parametrize("name", [name for name, (_, one) in known().items() if one is None or not lacking(one)])
def test_every_command_has_the_flag(name: str, capsys: pytest.CaptureFixture) -> None:
    if name == "mcp":
        pytest.skip("speaks JSON alone")
    if name == "watch" and not has("diagnosis"):
        pytest.skip("needs diagnosis")
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    assert "--json" in capsys.readouterr().out


def test_a_document_is_one_line(capsys: pytest.CaptureFixture) -> None:
    output.finish(argparse.Namespace(json=True), {"text": "one\ntwo"})
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.needs("diagnosis", "runs")
@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("words", "written"),
    [(["report"], "log.jsonl.html"), (["diagnose", "--html", "verdict.html"], "verdict.html"), (["diagnose"], "")],
)
def test_files_are_written_where_the_reader_of_the_output_has_left(
    words: list[str], written: str, unbuffered: str, tmp_path: Path
) -> None:
    """Whether Python writes each line at once or all at the end."""
    shutil.copy(ROOT / "docs" / "example.jsonl", tmp_path / "log.jsonl")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "grposcope", words[0], "log.jsonl", *words[1:]], cwd=tmp_path, stdout=writer,
        stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": unbuffered}, timeout=120,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
    assert not written or (tmp_path / written).stat().st_size > 10_000
