"""The record of a run that drew by an allocator of earlier versions: it is read, and resumed with one clear line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from places import TESTS

from grposcope import cli
from grposcope.instruments.group_size.dead_groups_answer import _allocation_section
from grposcope.logs import read

FIXTURE = TESTS / "fixtures" / "record_optimal"


def test_it_is_read_diagnosed_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = read(FIXTURE)
    assert run.setting("allocate") == "optimal"
    assert len(run.groups) == 3 * 3
    assert run.table["allocation/saving_predicted"].shape == (3,)
    section = _allocation_section([run])
    assert section is not None
    assert section.sentence.startswith("Allocated by optimal. Of the groups drawn, ")
    assert cli.main(["diagnose", str(FIXTURE), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert cli.main(["report", str(FIXTURE), "--out", str(tmp_path / "page.html")]) == 0
    assert "Where were rollouts spent?" in (tmp_path / "page.html").read_text()


def test_it_is_not_resumed_and_the_line_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    shutil.copytree(FIXTURE, folder)
    (folder / "summary.json").unlink()
    assert cli.main(["train", "--resume", str(folder)]) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"{folder} cannot be resumed by this version (allocate optimal: this way was retired" in told
    assert "start a new run from the model of its last checkpoint" in told
