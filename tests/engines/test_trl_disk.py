"""The record of a TRL run on a disk that fills up, and in a folder that another process is writing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from engines.test_trl_callback import Play, lines
from grposcope.engines.trl import GRPOscopeCallback
from grposcope.logs import read


def test_what_does_not_fit_waits_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, free = os.write, [True]

    def write(file: int, data: bytes) -> int:
        if free[0]:
            return whole(file, data)
        if len(data) > 20:
            return whole(file, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", write)
    play = Play(GRPOscopeCallback(), tmp_path)
    play.run(10, end=False)
    free[0] = False
    for step in range(11, 21):
        play.event("step_begin")
        play.state.global_step = step
        play.event("log", logs=play.log(step))
    steps = tmp_path / "grposcope" / "steps.jsonl"
    assert [row["step"] for row in lines(steps)] == list(range(1, 10))
    assert steps.read_text().endswith("}\n")
    free[0] = True
    play.event("step_begin")
    play.event("log", logs={"train_runtime": 1.5})
    play.event("train_end")
    assert read(tmp_path / "grposcope").table["step"].tolist() == list(range(1, 21))
    said = capsys.readouterr().err
    assert said.count("No space left on device") == 1
    assert "until then the record is kept in memory" in said
    assert "without a record" not in said


def test_a_second_run_does_not_touch_the_record_of_one_that_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Play(GRPOscopeCallback(), tmp_path)
    first.run(5, end=False)
    Play(GRPOscopeCallback(), tmp_path).run(3)
    said = [line for line in capsys.readouterr().err.splitlines() if "being written" in line]
    assert len(said) == 1
    assert f"{tmp_path / 'grposcope'} is being written by another process (pid {os.getpid()})" in said[0]
    assert said[0].endswith("the training continues without a record")
    assert [path.name for path in tmp_path.iterdir()] == ["grposcope"]
    first.event("train_end")
    rows: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "grposcope/steps.jsonl").open()]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
