"""`grposcope lint` as a user meets it: the verdict, exit statuses, JSON, bad flags."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from grposcope.cli import main
from grposcope.core import files

BAD = "GRPOConfig(\n    num_generations=1,\n    loss_type='cispo',\n)\n"


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(BAD)
    return path


def call(capsys: pytest.CaptureFixture, *arguments: object) -> tuple[int, str, str]:
    status = main(["lint", *map(str, arguments)])
    return status, *capsys.readouterr()


def excluded(document: Mapping[str, Any]) -> set[str]:
    """The faults that are not there, of the JSON document."""
    return {finding["fault"] for finding in document["findings"] if finding["status"] == "excluded"}


def test_the_screen_names_place_reason_remedy_and_source(bad: Path, capsys: pytest.CaptureFixture) -> None:
    status, out, _ = call(capsys, bad)
    assert status == 0
    assert out.startswith(
        "failing: with these settings the run stops or learns nothing "
        "(1 failing, 1 warning; 37 of 39 checks could judge)"
    )
    assert "num_generations = 1, line 2" in out
    assert "What to do: set num_generations to 4 or more." in out
    assert "  failing  groups of one rollout (group of one)" in out
    assert "  warning  cispo clamps every ratio (cispo clamp)" in out
    assert "https://github.com/huggingface/trl/pull/4495" in out


def test_a_pipe_is_read_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Also one that writes late and in parts."""
    os.mkfifo(tmp_path / "pipe")
    command = "sleep 0.2; printf 'num_generations: 8\\n'; sleep 0.2; printf 'learning_rate: 1e-6\\n'"
    with subprocess.Popen(f"({command}) > {tmp_path / 'pipe'}", shell=True):
        status, out, _ = call(capsys, tmp_path / "pipe", "--json")
    assert status == 0
    assert json.loads(out)["trainer"] == "trl"


@pytest.mark.parametrize("written", ["", "x" * 70_000])
def test_a_pipe_without_an_end_is_refused(
    written: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_PATIENCE", 0.5)
    monkeypatch.setattr(files, "_LARGEST_PIPE", 65_536)
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)  # never closed while the command runs
    sent = threading.Thread(target=_write, args=(writer, written), daemon=True)
    sent.start()
    try:
        status, _, said = call(capsys, tmp_path / "pipe")
    finally:
        sent.join()
        os.close(writer)
    assert status == 2
    assert ("does not end" if written else "nothing was written") in said
    assert call(capsys, "/dev/zero")[0] == 2


def _write(pipe: int, text: str) -> None:
    for start in range(0, len(text), 4096):
        while True:
            with suppress(BlockingIOError):
                os.write(pipe, text[start : start + 4096].encode())
                break
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("fatal", "status"),
    [("failing", 1), ("warning", 1), ("note", 1), ("cispo clamp", 1), ("group of one", 1), ("missing reference", 0)],
)
def test_exit_status(fatal: str, status: int, bad: Path, capsys: pytest.CaptureFixture) -> None:
    assert call(capsys, bad, "--fail-on", fatal)[0] == status


def test_a_healthy_configuration_passes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "good.yaml").write_text("num_generations: 8\nlearning_rate: 1e-6\n")
    status, out, _ = call(capsys, tmp_path / "good.yaml", "--fail-on", "warning", "--json")
    assert status == 0
    document = json.loads(out)
    assert document["grade"] == "healthy"
    statuses = {one["fault"]: one["status"] for one in document["findings"]}
    assert set(statuses.values()) == {"cannot tell", "excluded"}
    assert (statuses["starved"], statuses["length"]) == ("cannot tell", "cannot tell")
    assert statuses["group of one"] == "excluded"


def test_what_is_known_beside_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "good.yaml").write_text("num_generations: 8\n")
    log = ROOT / "docs" / "example.jsonl"
    _, out, _ = call(capsys, tmp_path / "good.yaml", "--success-rate", "0.01", "--run", log, "--world", "3", "--json")
    findings = {finding["fault"]: finding for finding in json.loads(out)["findings"]}
    assert findings["starved"]["grade"] == "failing"
    assert [sign["what"] for sign in findings["starved"]["evidence"]] == ["num_generations = 8"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--success-rate", "2"], "--success-rate 2 is not a share"),
        (["--world", "0"], "--world 0 is not a number of processes"),
        (["--fail-on", "bad"], "--fail-on 'bad' is neither a grade nor a fault"),
        pytest.param(
            ["--probe", "nowhere"], "--probe nowhere is not the folder of a probe", marks=pytest.mark.needs("gradient")
        ),
        (["--run", "nowhere"], "there is no nowhere"),
    ],
)
def test_bad_flags_are_one_line(arguments: list[str], words: str, bad: Path, capsys: pytest.CaptureFixture) -> None:
    status, out, err = call(capsys, bad, *arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_settings_that_cannot_be_read_are_not_called_healthy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text("from trl import GRPOConfig\nkw = load()\nconfig = GRPOConfig(learning_rate=LR, **kw)\n")
    assert main(["lint", str(path)]) == 0
    assert capsys.readouterr().out.startswith("cannot tell: no problem in the settings that can be read (no findings; ")


@pytest.mark.needs("rewards")
def test_rollouts_of_the_base_model_say_what_rewards_will_weigh(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """As JSON lines, without a reward of their own: dead groups are those of the sum, and weights are the settings'."""
    lines = [
        {"group": f"p{group}", "rewards": {"right": float((group + i) % 3 == 0), "form": 0.02 * (i % 2)}}
        for group in range(30) for i in range(8)
    ]  # fmt: skip
    (tmp_path / "base.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "trl.yaml").write_text("num_generations: 8\nreward_weights: [1.0, 1.0]\n")
    status, out, _ = call(capsys, tmp_path / "trl.yaml", "--run", tmp_path / "base.jsonl", "--json")
    assert status == 0
    (finding,) = [one for one in json.loads(out)["findings"] if one["fault"] == "muted component"]
    assert (finding["status"], finding["brief"]) == ("present", "form will hardly count")
    assert "form 2% (intended: 50%)" in finding["because"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nonsense=1", "--set nonsense: TRL has no setting 'nonsense'; choose one of accumulation, adam_beta1,"),
        (
            "num_generatons=4",
            "TRL has no setting 'num_generatons'; did you mean num_generations?",
        ),
        ("beta=abc", "--set beta=abc: beta must be a number; write for example beta=0"),
        ("use_vllm=maybe", "--set use_vllm=maybe: use_vllm is on or off; give true or false"),
    ],
)
def test_a_value_that_cannot_be_set_is_refused(given: str, said: str, bad: Path, capsys: pytest.CaptureFixture) -> None:
    status, out, error = call(capsys, bad, "--set", given)
    assert (status, out) == (2, "")
    assert said in error


@pytest.mark.parametrize("given", ["num_generations=8", "group=8"])
def test_a_value_that_is_set_is_judged_in_place_of_that_in_the_file(
    given: str, bad: Path, capsys: pytest.CaptureFixture
) -> None:
    told = json.loads(call(capsys, bad, "--set", given, "--json")[1])
    assert "group of one" in excluded(told)
    assert "Judged with num_generations=8 in place of what the file says." in told["notes"]


def test_with_an_earlier_run_a_setting_of_logs_is_of_its_log(bad: Path, capsys: pytest.CaptureFixture) -> None:
    log = ROOT / "docs" / "example.jsonl"
    told = json.loads(call(capsys, bad, "--run", log, "--set", "group=8", "--set", "beta=0.5", "--json")[1])
    assert "group of one" not in excluded(told)
    assert "Judged with beta=0.5 in place of what the file says." in told["notes"]


@pytest.mark.slow
def test_a_pipe_that_drips_is_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LONGEST", 1.0)
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(f"(while sleep 0.1 && echo x; do :; done) > {tmp_path / 'pipe'} 2>&1", shell=True) as writer:
        try:
            status, _, said = call(capsys, tmp_path / "pipe")
        finally:
            writer.kill()
    assert status == 2
    assert "does not end" in said


def test_a_dash_is_standard_input(bad: Path) -> None:
    command = [sys.executable, "-m", "grposcope", "lint", "-", "--json"]
    done = subprocess.run(command, input=bad.read_bytes(), capture_output=True, timeout=60)
    assert json.loads(done.stdout)["source"] == "/dev/stdin"


FILLED = {
    "num_generations": 4, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "num_iterations": 1,
    "generation_batch_size": 16, "steps_per_generation": 2, "max_completion_length": 64, "learning_rate": 1e-6,
}  # fmt: skip
"""Arguments of TRL as a trainer that has started holds them: of two that say the same thing it fills in the other."""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", json.dumps({"format": 2, "engine": "trl", "settings": {}, "logged": FILLED})),
        ("config.yaml", "".join(f"{key}: {{value: {value}}}\n" for key, value in FILLED.items())),
    ],
    ids=["the callback's record", "W&B"],
)
@pytest.mark.parametrize("whole", [True, False], ids=["folder", "file"])
def test_what_a_trainer_filled_in_is_no_mistake(
    name: str, text: str, whole: bool, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / name).write_text(text)
    status, out, _ = call(capsys, tmp_path if whole else tmp_path / name, "--json", "--fail-on", "failing")
    assert status == 0
    told = json.loads(out)
    assert told["trainer"] == "trl"
    assert {"indivisible batches", "growing oscillation"} <= excluded(told)


def test_of_two_arguments_that_say_the_same_a_script_gives_one(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in FILLED.items()))
    assert "TRL refuses both" in call(capsys, tmp_path / "config.yaml")[1]
