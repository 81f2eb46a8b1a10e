"""A real tiny TRL run, tried with every command as a new user would: with its output folder and with the record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engines import tiny_trl
from grposcope import cli
from grposcope.engines.trl import GRPOscopeCallback

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("trl")
    folder = tmp_path_factory.mktemp("out")
    options = {"log_completions": True, "max_steps": 40, "save_strategy": "steps", "save_steps": 20}
    functions = [tiny_trl.reward_letters, tiny_trl.reward_length]
    tiny_trl.trainer(folder, [GRPOscopeCallback()], functions, **options).train()
    return folder


def called(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = cli.main([str(word) for word in words])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("part", ["", "grposcope"])
def test_every_command_takes_either_folder(
    output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    place = output / part
    for words in (
        ("diagnose", place), ("fit", place), ("watch", "--once", place), ("compare", place, place), ("plan", place),
        ("stability", "--run", place), ("report", place, "--out", tmp_path / "page.html"),
    ):  # fmt: skip
        status, out, err = called(capsys, *words)
        assert status == 0, (words, err)
        assert not err, words
        assert "nan%" not in out.lower()


def test_the_page_is_of_the_whole_run(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sections = {}
    for place in (output, output / "grposcope"):
        _, out, _ = called(capsys, "report", place, "--json")
        sections[place.name] = json.loads(out)["sections"]
    first, second = sections.values()
    assert first.keys() == second.keys() >= {"rollouts", "learning"}
    (shown,) = first["rollouts"].values()
    assert shown["recorded_steps"] == 40


def test_the_advice_of_plan_can_be_followed(output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = called(capsys, "plan", output)
    advised = next(line for line in out.splitlines() if "grposcope probe --model" in line).split()
    assert advised[3] == str(output / "checkpoint-40")
    for model in (output, output / "grposcope", advised[3]):
        status, _, err = called(capsys, "probe", "--model", model)
        assert status == 2
        assert "does not name its task; give --task" in err
