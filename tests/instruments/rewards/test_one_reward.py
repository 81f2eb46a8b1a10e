"""Rollouts of one reward: what its numbers say, in the command; a log without rollouts is refused as before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grposcope.cli import main


def written(path: Path, rewards: list[list[float]]) -> Path:
    rows = [
        {"step": 1, "group": str(group), "prompt": f"p{group}", "completion": f"c{group}{place}", "reward": reward}
        for group, own in enumerate(rewards)
        for place, reward in enumerate(own)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_one_reward_is_told_in_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "rollouts.jsonl", [[1, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0]])
    assert main(["rewards", str(path)]) == 0
    said = capsys.readouterr().out
    assert "One reward has all the weight: at its highest, 1, on 44% of 16 rollouts; siblings differ in 2 of 4" in said
    assert "groups all at 1" in said


def test_groups_that_hardly_differ_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = "In 6 of the 30 groups whose siblings differ they do so by less than 1% of the usual"
    for tiny, expected in ((0.001, True), (0.5, False)):
        groups = [[1, 0.0, 0, 1] for _ in range(24)] + [[0, tiny, 0, 0] for _ in range(6)]
        main(["rewards", str(written(tmp_path / "rollouts.jsonl", groups))])
        assert (told in " ".join(capsys.readouterr().out.split())) == expected


def test_a_log_without_rollouts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"step": step, "reward": 0.5, "loss": 0.1}) + "\n" for step in range(40)))
    assert main(["rewards", str(path)]) == 2
    assert "neither rewards of single rollouts nor the standard deviation of each function" in capsys.readouterr().err
