"""The record's files: strict JSON, atomic, never over an existing run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from grposcope.errors import UserError
from grposcope.records import Estimate
from grposcope.runs.store import FORMAT, RunWriter, dumps, write_json


def test_numbers_that_are_not_finite_stay_visible() -> None:
    text = dumps({"a": [math.nan, math.inf, -math.inf, 1.5], "b": Estimate(math.nan, 0.0, 3, "why")})
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name)) == {
        "a": ["NaN", "Infinity", "-Infinity", 1.5],
        "b": {"value": "NaN", "se": 0.0, "n": 3, "flag": "why"},
    }


def test_lines_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run", {"seed": 1}) as record:
        record.step({"step": 1})
        record.group({"step": 1, "rewards": [0.0, 1.0]})
        record.evaluation({"step": 1})
        assert (tmp_path / "run" / "steps.jsonl").read_text() == '{"step": 1}\n'
        assert json.loads((tmp_path / "run" / "groups.jsonl").read_text())["rewards"] == [0.0, 1.0]
    assert json.loads((tmp_path / "run" / "config.json").read_text()) == {"format": FORMAT, "seed": 1}


def test_files_appear_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "summary.json"
    write_json(target, {"old": True})
    monkeypatch.setattr("os.fsync", lambda number: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_json(target, {"new": True})
    assert json.loads(target.read_text()) == {"old": True}


def test_folders_in_use_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        RunWriter(tmp_path, {})
    with pytest.raises(UserError, match="is a file"):
        RunWriter(tmp_path / "notes.txt", {})
    assert sorted(f.name for f in tmp_path.iterdir()) == ["notes.txt"]
