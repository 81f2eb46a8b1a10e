"""`grposcope fit`: what it prints, its JSON, and bad input in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asked import call, last_json
from reward_logs import curve, write_csv, write_run

from grposcope.core.errors import UserError


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    return write_run(tmp_path)


def test_fit_of_a_run_folder(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("fit", str(run_folder), "--horizon", "60") == 0
    found, text = last_json(capsys)
    assert found["n"] == 120
    assert found["models"]["exponential"]["parameters"]["time_constant"]["value"] == pytest.approx(25, rel=0.15)
    assert found["forecast"]["step"] == 180
    assert found["forecast"]["low"] < found["forecast"]["mean"] < found["forecast"]["high"]
    assert found["plateau"]["value"] == pytest.approx(0.8, abs=0.03)
    assert {*found["models"]} == {"exponential", "inertial"}
    assert "Expected after 60 more steps: 0." in text
    assert found["sentence"] in text


def test_fit_of_a_csv_with_other_names_gaps_and_a_restart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    t, y = curve()
    rows: list[list[Any]] = [["when", "my score"], *zip(t, y, strict=True), [121, "nan"]]
    rows.insert(20, [20, 9.0])
    path = write_csv(tmp_path / "log.csv", rows)
    assert call("fit", str(path), "--map", "step=when,reward=my score") == 0
    found, _ = last_json(capsys)
    assert found["n"] == 120
    assert found["models"]["exponential"]["parameters"]["time_constant"]["value"] == pytest.approx(25, rel=0.15)
    assert "without a finite step and reward" in found["forecast"]["flag"]


def test_hidden_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_csv(tmp_path / "log.csv", [["step", "reward"], *zip(*curve(), strict=True)])
    assert call("fit", str(path), "--until", "60", "--figures", str(tmp_path / "pictures"), "--format", "svg") == 0
    found, text = last_json(capsys)
    assert found["n"] == 60
    assert found["forecast"]["step"] == 120
    assert found["truth"]["points"] == 60
    assert 0.7 < found["truth"]["covered"] <= 1
    assert "of 60 rewards lie inside" in text
    assert (tmp_path / "pictures" / "forecast.svg") in map(Path, found["figures"])
    with pytest.raises(UserError, match="10 points or more"):
        call("fit", str(path), "--until", "5")


def test_fit_of_a_log_that_the_readers_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = [{"step": int(t), "reward": float(r), "loss": 0.0, "kl": 0.0} for t, r in zip(*curve(), strict=True)]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": history, "global_step": 120}))
    assert call("fit", str(path)) == 0
    assert last_json(capsys)[0]["n"] == 120
    with pytest.raises(UserError, match="no key 'accuracy'; its keys are"):
        call("fit", str(path), "--map", "reward=accuracy")


def test_fit_takes_any_log_that_diagnose_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other names of the reward are understood; the range can be given."""
    path = write_csv(tmp_path / "log.csv", [["step", "reward/mean"], *zip(*curve(), strict=True)])
    assert call("fit", str(path)) == 0
    plain, _ = last_json(capsys)
    assert plain["forecast"]["range"] == [0.0, 1.0]
    assert call("fit", str(path), "--set", "reward_low=-1", "--set", "reward_high=0.9") == 0
    known, _ = last_json(capsys)
    assert known["forecast"]["range"] == [-1, 0.9]
    assert known["forecast"]["high"] <= 0.9


def test_fit_of_a_constant_reward(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_csv(tmp_path / "log.csv", [["step", "reward"], *[[i, 0.5] for i in range(30)]])
    assert call("fit", str(path)) == 0
    found, _ = last_json(capsys)
    assert found["forecast"]["verdict"] == "cannot tell"
    assert "the reward is constant" in found["forecast"]["flag"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["step", "reward"], *[[i, i % 3] for i in range(5)]], "10 points or more"),
        ([["step", "reward"], *[[i, "high"] for i in range(12)]], "no key is named as a reward"),
        (
            [["step", "reward"], *[[i, f"0,{i + 11}"] for i in range(12)]],
            "reward is '0,11', a number with a decimal comma",
        ),
        ([["step", "my_number"], *[[i, i] for i in range(12)]], "no key is named as a reward.* --map reward=my_number"),
    ],
)
def test_bad_curves(tmp_path: Path, rows: list[list[Any]], message: str) -> None:
    path = write_csv(tmp_path / "log.csv", rows)
    with pytest.raises(UserError, match=message):
        call("fit", str(path))


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no"):
        call("fit", str(tmp_path / "none.csv"))
    (tmp_path / "list.jsonl").write_text("[1, 2]\n")
    with pytest.raises(UserError, match=r"list\.jsonl"):
        call("fit", str(tmp_path / "list.jsonl"))
