"""`grposcope stability`: what it prints, its JSON, and bad input in one line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from asked import call, last_json
from reward_logs import write_run

from grposcope.cli import main
from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.instruments.dynamics import refresh
from grposcope.lab.train import run_curvature
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train
from grposcope.lab.train.run_curvature import _DirectionalCurvature


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    return write_run(tmp_path)


def test_a_run_may_be_given_like_everywhere(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for place in ([str(run_folder)], ["--run", str(run_folder)]):
        assert call("stability", *place) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


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
    assert "What to do: reuse rollouts for at most 2 steps" in text
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
        along = _DirectionalCurvature(rest, Estimate(1.5, 0.1, 4), stale, rest, rest)
        monkeypatch.setattr(run_curvature, "of_run", lambda folder, settings, along=along: (None, along))
        assert call("stability", "--run", str(run_folder), "--measure") == 0
        found, text = last_json(capsys)
        assert (found["verdict"], found["momentum"], found["interval"]) == (verdict, 0.5, 1)
        assert "measured along the stiffest direction" in text
        assert "1.5 ± 0.1" in text
        if verdict == "stable":
            assert (found["curvature"], found["curvature_se"]) == (0.2, 0.02)
            assert found["threshold"] == refresh.threshold(0.1, 0.5, 0.2)


@pytest.mark.slow
def test_stability_measured_on_the_model_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From training to the verdict, with fewer batches; what is said is what was measured."""
    seen = []
    measure = run_curvature.of_run

    def few(folder: Path, settings: dict[str, Any]) -> Any:
        seen.append(measure(folder, settings, batches=4)[1].stale)
        return None, _DirectionalCurvature(*(seen[-1],) * 5)

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
        assert f"changes only with new rollouts, {seen[0]}, does not differ from 0" in told["reason"]
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


def test_an_interval_without_end_is_said_so() -> None:
    assert refresh.onset(1e-20, 0.0, 1.0) == math.inf


def test_numbers_come_from_a_file_and_flags_go_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "setting.yaml"
    file.write_text("lr: 1e-3\nmomentum: 0.9\ncurvature: 0.5\noptimizer: adam\nrms-gradient: 0.01\ninterval: 4\n")
    typed = ["--lr", "1e-3", "--momentum", "0.9", "--curvature", "0.5", "--optimizer", "adam", "--rms-gradient", "0.01"]
    assert main(["stability", *typed, "--interval", "8"]) == 0
    expected = capsys.readouterr().out
    assert main(["stability", "--settings", str(file), "--interval", "8"]) == 0
    assert capsys.readouterr().out == expected
    assert main(["stability", "--settings", str(file)]) == 0
    assert "4 optimiser steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lr: 0.1\nbeta: 0.9\n", "line 2: there is no setting beta; choose one of lr, momentum"),
        ("lr: much\n", "line 1: lr is 'much'; write a number"),
        ("optimizer: adagrad\n", "line 1: optimizer is 'adagrad'; use one of sgd"),
        ("- 1\n", "holds no named settings; write for example lr: 0.1"),
    ],
)
def test_a_file_that_cannot_be_is_refused_by_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "setting.yaml"
    file.write_text(text)
    assert main(["stability", "--settings", str(file)]) == 2
    assert said in capsys.readouterr().err
