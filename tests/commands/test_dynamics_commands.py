"""`grposcope fit`, `simulate` and `stability`: what they print, the JSON at the end, and bad input in one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope.cli import parser
from grposcope.dynamics import refresh
from grposcope.errors import UserError
from grposcope.geometry.curvature import DirectionalCurvature
from grposcope.records import Estimate
from grposcope.training import run_curvature
from grposcope.training.config import TrainConfig
from grposcope.training.loop import train


def call(*argv: str) -> int:
    arguments = parser(argv[:1]).parse_args(argv)
    return int(arguments.run(arguments))


def last_json(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    text = capsys.readouterr().out
    return json.loads(text.strip().splitlines()[-1]), text


def curve(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    t = np.arange(1, n + 1)
    return t, 0.8 - 0.6 * np.exp(-t / 25) + 0.03 * np.random.default_rng(0).standard_normal(n)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run of SGD whose reward has time constant 25: with β = 0.5 and η = 0.1, κ = 0.5/(0.1·25) = 0.2."""
    settings = {"momentum": 0.5, "interval": 1, "optimizer": "sgd"}
    (tmp_path / "config.json").write_text(
        json.dumps({"format": 2, "settings": settings, "lr": 0.1, "model": {"parameters": 100}})
    )
    rows = [{"step": int(t), "reward": float(r), "grad_norm": 0.5} for t, r in zip(*curve(), strict=True)]
    (tmp_path / "steps.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def write_csv(path: Path, rows: list[list[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def test_fit_of_a_run_folder(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("fit", str(run_folder), "--horizon", "60") == 0
    found, text = last_json(capsys)
    assert found["n"] == 120
    assert found["models"]["exponential"]["parameters"]["time_constant"]["value"] == pytest.approx(25, rel=0.15)
    assert found["forecast"]["step"] == 180
    assert found["forecast"]["low"] < found["forecast"]["mean"] < found["forecast"]["high"]
    assert found["plateau"]["value"] == pytest.approx(0.8, abs=0.03)
    assert [p["name"] for p in found["phases"]][-1] == "plateau"
    assert "Expected after 60 more steps: 0." in text
    assert "verdict: " in text


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
    assert "Hidden steps: 60 rewards" in text
    assert (tmp_path / "pictures" / "forecast.svg") in map(Path, found["figures"])
    with pytest.raises(UserError, match="5 usable points"):
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
    assert "constant reward" in found["comparison"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["step", "reward"], *[[i, i % 3] for i in range(5)]], "too few"),
        ([["step", "reward"], *[[i, "high"] for i in range(12)]], "no reward in it"),
        (
            [["step", "reward"], *[[i, f"0,{i + 11}"] for i in range(12)]],
            "reward is '0,11', a number with a decimal comma",
        ),
        ([["step", "my_score"], *[[i, i] for i in range(12)]], "has no reward; its metrics are my_score"),
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


def test_stability(capsys: pytest.CaptureFixture[str]) -> None:
    setting = ("stability", "--lr", "0.5", "--momentum", "0.9", "--curvature", "0.0959")
    assert call(*setting, "--interval", "2") == 0
    found, text = last_json(capsys)
    assert (found["threshold"], found["verdict"]) == (5.0, "stable")
    assert "stability map" in text
    assert call(*setting, "--interval", "5") == 0
    assert last_json(capsys)[0]["verdict"] == "stable, near the threshold"
    assert call(*setting, "--interval", "6") == 0
    found, text = last_json(capsys)
    assert found["verdict"] == "unstable"
    assert "remedy" in text
    assert call(*setting, "--interval", "6", "--curvature-se", "0.05") == 0
    found, _ = last_json(capsys)
    assert found["verdict"] == "cannot tell"
    assert found["threshold_range"][1] == "Infinity"
    assert call(*setting, "--interval", "600", "--ratio", "unclipped") == 0
    assert last_json(capsys)[0]["verdict"] == "stable"
    assert call(*setting, "--interval", "6", "--ratio", "clipped") == 0
    assert last_json(capsys)[0]["verdict"] == "cannot tell"


def test_stability_map_as_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("stability", "--lr", "0.1", "--momentum", "0.9", "--curvature", "0.0959", "--interval", "16",
                "--figures", str(tmp_path)) == 0  # fmt: skip
    assert (tmp_path / "stability.png").stat().st_size > 10_000
    assert "stability map:" in capsys.readouterr().out


def test_stability_with_adam(capsys: pytest.CaptureFixture[str]) -> None:
    """Adam with rms gradient 0.1 steps as heavy ball with η (1 − β₁)/0.1."""
    assert call("stability", "--lr", "0.5", "--momentum", "0.9", "--curvature", "0.0959", "--interval", "2",
                "--optimizer", "adam", "--rms-gradient", "0.1") == 0  # fmt: skip
    assert last_json(capsys)[0]["step"] == pytest.approx(0.5, rel=1e-6)
    with pytest.raises(UserError, match="rms-gradient"):
        call("stability", "--lr", "0.5", "--curvature", "1", "--optimizer", "adam")


def test_stability_of_a_run(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("stability", "--run", str(run_folder)) == 0
    found, _ = last_json(capsys)
    assert found["curvature"] == pytest.approx(0.2, rel=0.15)
    assert found["curvature_se"] < 0.05
    assert found["verdict"] == "stable"
    rows = [{"step": i, "reward": 0.1 * (i % 2), "grad_norm": 0.5} for i in range(60)]
    (run_folder / "steps.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert call("stability", "--run", str(run_folder)) == 0
    found, _ = last_json(capsys)
    assert found["verdict"] == "cannot tell"
    assert "time constant" in found["reason"]


def test_stability_by_a_measured_curvature(
    run_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """κ of the part that waits for a refresh decides, with its error; one within two errors of 0 decides nothing."""
    rest = Estimate(0.0, 0.0, 4)
    for stale, verdict in ((Estimate(0.2, 0.02, 4), "stable"), (Estimate(0.2, 0.11, 4), "cannot tell")):
        along = DirectionalCurvature(rest, Estimate(1.5, 0.1, 4), stale, rest, rest)
        monkeypatch.setattr(run_curvature, "of_run", lambda folder, settings, along=along: (None, along))
        assert call("stability", "--run", str(run_folder), "--measure") == 0
        found, text = last_json(capsys)
        assert (found["verdict"], found["momentum"], found["interval"]) == (verdict, 0.5, 1)
        assert "measured along the stiffest direction" in text
        assert "1.5 ± 0.1" in text
        if verdict == "stable":
            assert (found["curvature"], found["curvature_se"]) == (0.2, 0.02)
            assert found["threshold"] == refresh.threshold(0.1, 0.5, 0.2)


def test_stability_measured_on_the_model_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From training to the verdict, with fewer batches; what is said is what was measured."""
    seen = []
    measure = run_curvature.of_run

    def few(folder: Path, settings: dict[str, Any]) -> Any:
        seen.append(measure(folder, settings, batches=4)[1].stale)
        return None, DirectionalCurvature(*(seen[-1],) * 5)

    monkeypatch.setattr(run_curvature, "of_run", few)
    short = {"max_tokens": 8, "optimizer": "sgd", "lr": 0.1}
    train(
        TrainConfig(
            steps=1, prompts=2, group=2, eval_every=0, eval_problems=0, threads=1, out=str(tmp_path / "run"), **short
        )
    )
    capsys.readouterr()
    assert call("stability", "--run", str(tmp_path / "run"), "--measure") == 0
    found, _ = last_json(capsys)
    told = {key: found[key] for key in ("curvature", "curvature_se", "reason") if key in found}
    if seen[0].value > 2 * seen[0].se:
        assert (told["curvature"], told["curvature_se"]) == (seen[0].value, seen[0].se)
    else:
        assert f"waits for a refresh, {seen[0]}, does not stand out" in told["reason"]
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--curvature", "1"), "--lr"),
        (("--lr", "0.1"), "--curvature"),
        (("--lr", "0.1", "--curvature", "0"), "curvature 0"),
        (("--lr", "0.1", "--curvature", "1", "--momentum", "1"), "momentum 1"),
        (("--lr", "0.1", "--curvature", "1", "--interval", "-2"), "interval -2"),
        (("--run", "nowhere"), "there is no nowhere"),
    ],
)
def test_bad_stability(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        call("stability", *argv)


def test_interval_zero_is_refused() -> None:
    with pytest.raises(UserError, match="interval 0"):
        call("stability", "--lr", "0.1", "--curvature", "1", "--interval", "0")


def test_simulate_shows_the_threshold(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", "--momentum", "0.9", "--lr", "0.5", "--interval", "1,4,8", "--steps", "200") == 0
    found, text = last_json(capsys)
    assert [row["stable"] for row in found["rows"]] == [True, True, False]
    assert found["rows"][2]["swing"] > 20 * found["rows"][0]["swing"]
    assert "fixed point" in text


def test_simulate_sampled(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", "--group", "0,4,64", "--steps", "100", "--runs", "8", "--binary", "--lr", "0.2") == 0
    exact, small, large = last_json(capsys)[0]["rows"]
    assert exact["group"] == "exact"
    assert large["swing"] < small["swing"]
    assert large["end"]["se"] < small["end"]["se"]


def test_lists_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    for flag, value in (("--interval", "1.5"), ("--lr", "fast"), ("--group", "")):
        with pytest.raises(SystemExit):
            call("simulate", flag, value)
        assert f"{value!r} is no list of" in capsys.readouterr().err


def test_simulate_says_which_settings_are_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", "--steps", "20", "--interval", "1,2,3,4,5,6,7") == 0
    found, text = last_json(capsys)
    assert len(found["rows"]) == 7
    assert "the first 6 of 7 settings" in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--arms", "1"), "--arms 1"),
        (("--kl", "0"), "--kl"),
        (("--momentum", "1"), "momentum"),
        (("--interval", "0"), "interval"),
        (("--group", "-1"), "--group"),
    ],
)
def test_bad_simulations(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        call("simulate", *argv)
