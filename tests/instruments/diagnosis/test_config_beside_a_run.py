"""What a file asks for beside what the run has: by the trainer's record, and by rows that no such setting gives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope import cli
from grposcope.core.finding import Sign
from grposcope.instruments.diagnosis import screen
from grposcope.instruments.lint.read import read
from grposcope.signs.settings.in_force import same

NAME = "setting not in force"
ASKED = {"learning_rate": 1e-6, "beta": 0.04, "num_generations": 8, "max_completion_length": 256}


def log(folder: Path, rate: Sequence[float], longest: float, kl: bool, group: int | None = None) -> Path:
    """A log of TRL: its learning rates, longest completion and whether it has kl."""
    noise = np.random.default_rng(0).normal(0, 0.02, len(rate))
    path = folder / "log.jsonl"
    rows: list[dict[str, Any]] = [
        {"step": step, "loss": 0.01, "grad_norm": 0.3, "learning_rate": lr,
         "reward": 0.3 + 0.005 * step + noise[step - 1], "reward_std": 0.2, "frac_reward_zero_std": 0.2,
         "completions/mean_length": 120.0,
         "completions/max_length": longest, **({"kl": 0.01} if kl else {})}
        for step, lr in enumerate(rate, 1)
    ]  # fmt: skip
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def config(folder: Path, settings: Mapping[str, Any] = ASKED) -> Path:
    path = folder / "train.yaml"
    path.write_text("\n".join(f"{key}: {value!r}" for key, value in settings.items()))
    return path


def judged(capsys: pytest.CaptureFixture[str], *flags: object) -> dict[str, Any]:
    """The finding of this fault as JSON has it; empty if there is none."""
    return next((one for one in told(capsys, *flags)["findings"] if one["fault"] == NAME), {})


def told(capsys: pytest.CaptureFixture[str], *flags: object) -> dict[str, Any]:
    """What `grposcope diagnose` says as JSON."""
    cli.main(["diagnose", *map(str, flags), "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_rows_that_no_such_setting_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finding = judged(capsys, log(tmp_path, [1e-5] * 40, 500, kl=False), "--config", config(tmp_path))
    assert (finding["status"], finding["grade"]) == ("present", "warning")
    assert "learning_rate is 1e-6 in the file and the rows reach 1e-5 (step 1)" in finding["because"]
    assert "beta is 0.04 in the file and the log has no kl" in finding["because"]
    assert "max_completion_length is 256 in the file and a completion of step 1 has 500 tokens" in finding["because"]


def test_what_agrees_is_excluded_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finding = judged(capsys, log(tmp_path, [1e-6] * 40, 200, kl=True), "--config", config(tmp_path))
    assert finding["status"] == "excluded"
    assert finding["because"].startswith("1 setting of train.yaml")


@pytest.mark.parametrize("rates", [np.linspace(1e-8, 4e-7, 40), np.linspace(1e-6, 1e-8, 40)])
def test_a_schedule_is_no_other_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str], rates: Any) -> None:
    finding = judged(capsys, log(tmp_path, list(map(float, rates)), 200, kl=True), "--config", config(tmp_path))
    assert finding["status"] in ("excluded", "cannot tell")


def test_a_peak_far_below_is_another_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rates = [*np.linspace(1e-9, 1e-7, 20), *np.linspace(1e-7, 1e-9, 20)]
    finding = judged(capsys, log(tmp_path, list(map(float, rates)), 200, kl=True), "--config", config(tmp_path))
    assert finding["status"] == "present"
    assert "reach 1e-7" in finding["because"]


def test_what_the_log_lacks_is_taken_from_the_file_and_not_compared_with_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path, [1e-6] * 40, 200, kl=True)
    finding = judged(capsys, path, "--config", config(tmp_path, {"num_generations": 1, "beta": 0.04}))
    assert finding["status"] == "cannot tell"
    document = told(capsys, path, "--config", config(tmp_path, {"num_generations": 1}))
    assert "group of one" in document["present"]


def test_without_a_file_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(capsys, log(tmp_path, [1e-5] * 40, 500, kl=False)) == {}


def test_a_file_of_another_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "verl.yaml"
    path.write_text("actor_rollout_ref:\n  rollout:\n    n: 8\nalgorithm:\n  adv_estimator: grpo\n")
    finding = judged(capsys, log(tmp_path, [1e-5] * 40, 500, kl=False), "--config", path)
    assert finding["status"] == "cannot tell"
    assert "settings of verl" in finding["because"]


def test_the_record_of_a_trainer_and_a_file_of_another_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "fixtures" / "record_optimal"
    asked = {
        key: value
        for key, value in json.loads((path / "config.json").read_text())["settings"].items()
        if value is not None
    }
    same_file = tmp_path / "same.json"
    same_file.write_text(json.dumps(asked))
    if read(same_file).dialect.name == "grposcope":
        assert judged(capsys, path, "--config", same_file)["status"] == "excluded"
    other = {
        **asked,
        **{
            key: value * 2
            for key, value in asked.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        },
    }
    same_file.write_text(json.dumps(other))
    finding = judged(capsys, path, "--config", same_file)
    assert finding["status"] == "present"
    assert finding["evidence"]


@pytest.mark.parametrize(
    ("asked", "actual", "equal"),
    [("1e-6", 1e-06, True), (True, "true", True), (None, "null", True), ("Group", "'group'", True), (0, 0.04, False),
     (1e-6, 1.001e-6, False), ("none", 0.0, False), ("a", "b", False)],
)  # fmt: skip
def test_values_that_are_one_setting(asked: Any, actual: Any, equal: bool) -> None:
    assert same(asked, actual) is equal


def test_a_setting_in_the_folder_is_the_cause_on_the_first_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = np.random.default_rng(0).normal(0, 1, 100)
    away = np.maximum(0, np.arange(100) - 40) / 60
    rows = [{"step": k + 1, "loss": 0.01, "grad_norm": 0.3, "reward": max(0.0, 0.5 - 0.8 * away[k]) + 0.02 * noise[k],
             "reward_std": 0.2, "frac_reward_zero_std": 0.2, "completions/mean_length": 120.0 + noise[k],
             "kl": (0.02 + 6 * away[k] ** 2) * np.exp(0.1 * noise[k])} for k in range(100)]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "config.yaml").write_text("learning_rate: 1.0e-3\nbeta: 0.04\nnum_generations: 8\ndelta: 2\n")
    document = told(capsys, tmp_path)
    assert document["findings"][0]["fault"] == "high learning rate"
    assert "learning_rate = 0.001 in the settings" in document["because"]
    (tmp_path / "config.yaml").write_text("learning_rate: 1.0e-6\nbeta: 0.04\nnum_generations: 8\n")
    assert told(capsys, tmp_path)["findings"][0]["fault"] == "kl blow-up"


@pytest.mark.parametrize("key", ["beta", "learning_rate", "num_generations", "max_completion_length"])
def test_whole_numbers_beyond_float_are_no_crash(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config(tmp_path)
    path.write_text(path.read_text() + f"\n{key}: 1{'0' * 400}\n")
    lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{key}: ") or len(line) > 300]
    path.write_text("\n".join(lines))
    for words in (["diagnose", log(tmp_path, [1e-6] * 40, 200, kl=True), "--config", path], ["lint", path]):
        assert cli.main([*map(str, words), "--json"]) in (0, 1, 2)
        json.loads(capsys.readouterr().out)


def test_a_setting_that_is_no_number_is_shown_by_its_name_alone() -> None:
    assert screen._measured(Sign("importance_sampling_level is not set"), {}) == "importance_sampling_level is not set"
    assert screen._measured(Sign("lr", 0.5), {}) == "lr:\u00a00.5"
