"""`grposcope lint` as a user meets it: the verdict, exit statuses, JSON, bad flags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grposcope.cli import main

BAD = "GRPOConfig(\n    num_generations=1,\n    loss_type='cispo',\n)\n"


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(BAD)
    return path


def call(capsys: pytest.CaptureFixture, *arguments: object) -> tuple[int, str, str]:
    status = main(["lint", *map(str, arguments)])
    return status, *capsys.readouterr()


def test_the_screen_names_place_reason_remedy_and_source(bad: Path, capsys: pytest.CaptureFixture) -> None:
    status, out, _ = call(capsys, bad)
    assert status == 0
    assert out.startswith("failing: with these settings the run stops or learns nothing (1 failing, 1 warning)")
    assert "num_generations = 1, line 2" in out
    assert "→ set num_generations to 4 or more" in out
    assert "https://github.com/huggingface/trl/pull/4495" in out


@pytest.mark.parametrize(
    ("fatal", "status"),
    [("failing", 1), ("warning", 1), ("note", 1), ("cispo clamp", 1), ("small groups", 1), ("reference", 0)],
)
def test_exit_status(fatal: str, status: int, bad: Path, capsys: pytest.CaptureFixture) -> None:
    assert call(capsys, bad, "--fail-on", fatal)[0] == status


def test_a_healthy_configuration_passes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "good.yaml").write_text("num_generations: 8\nlearning_rate: 1e-6\n")
    status, out, _ = call(capsys, tmp_path / "good.yaml", "--fail-on", "warning", "--json")
    assert status == 0
    document = json.loads(out)
    assert document["grade"] == "healthy"
    assert document["findings"] == []
    assert {one["check"] for one in document["unchecked"]} >= {"dead groups", "truncation"}


def test_what_is_known_beside_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "good.yaml").write_text("num_generations: 8\n")
    log = Path(__file__).parents[2] / "docs" / "example.jsonl"
    _, out, _ = call(capsys, tmp_path / "good.yaml", "--success-rate", "0.01", "--run", log, "--world", "3", "--json")
    findings = {finding["check"]: finding for finding in json.loads(out)["findings"]}
    assert findings["dead groups"]["grade"] == "failing"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--success-rate", "2"], "--success-rate 2 is no share"),
        (["--world", "0"], "--world 0 is no number of processes"),
        (["--fail-on", "bad"], "--fail-on 'bad' is no grade and no check"),
        (["--probe", "nowhere"], "--probe nowhere is no folder of a probe"),
        (["--run", "nowhere"], "there is no nowhere"),
    ],
)
def test_bad_flags_are_one_line(arguments: list[str], words: str, bad: Path, capsys: pytest.CaptureFixture) -> None:
    status, out, err = call(capsys, bad, *arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
