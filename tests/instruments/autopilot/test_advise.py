"""`advise`: what would have been done in a run of any trainer, from groups or from means; terminal, JSON and page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic

from grposcope.cli import main
from grposcope.instruments.autopilot import answer, events
from grposcope.instruments.autopilot.pilot import Decision
from grposcope.instruments.autopilot.policy import AutopilotPolicy
from grposcope.instruments.autopilot.replay import replay
from grposcope.logs import read


def log(path: Path, levels: np.ndarray) -> Path:
    draw = np.random.default_rng(0)
    rows = [{"step": step, "reward": float(level + 0.03 * draw.normal()), "grad_norm": 1.0}
            for step, level in enumerate(levels, 1)]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_log_of_means_that_falls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "log.jsonl", np.r_[np.full(60, 0.7), np.full(60, 0.2)])
    assert main(["advise", str(path)]) == 0
    said = capsys.readouterr().out
    assert "An autopilot would first have reacted at step" in said
    assert "The policy got worse: the mean reward was at least" in said
    assert re.search(r"since step (59|6[0-4])", said)
    assert "Only the mean reward of each step is known" in said


def advised(levels: np.ndarray, tmp_path: Path) -> list[Decision]:
    story = replay(read(log(tmp_path / "log.jsonl", levels)), AutopilotPolicy(mode="advise"))
    return list(story.decisions)


def test_advice_that_nobody_follows_is_given_once(tmp_path: Path) -> None:
    (one,) = advised(np.r_[np.full(60, 0.7), np.full(200, 0.2)], tmp_path)
    assert one.action == "rollback"


def test_a_second_fall_is_told_once_the_first_was_made_good(tmp_path: Path) -> None:
    one, other = advised(np.r_[np.full(60, 0.7), np.full(40, 0.2), np.full(60, 0.7), np.full(60, 0.2)], tmp_path)
    assert one.step < 100
    assert other.step > 160


def test_a_sound_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "log.jsonl", np.linspace(0.2, 0.8, 120))
    assert main(["advise", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (
        document["sentence"]
        == "An autopilot would have done nothing: none of its monitors has enough evidence of a fault."
    )


def test_a_problem_that_only_the_diagnosis_finds_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(0)
    rows = [{"step": step, "reward": 0.5 + 0.02 * draw.normal(), "entropy": 0.8 * 0.9 ** max(0, step - 30)}
            for step in range(1, 101)]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["advise", str(tmp_path / "log.jsonl")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("An autopilot would have done nothing")
    assert "grposcope diagnose does find a problem: failing" in said


def test_a_gradient_that_is_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    norms = ["1.0"] * 20 + ["NaN"] * 5
    path.write_text(
        "".join(f'{{"step": {k}, "reward": 0.5, "grad_norm": {norm}}}\n' for k, norm in enumerate(norms, 1))
    )
    said = answer.of_run(read(path))
    assert "The gradient has not been finite since step 21".lower() in said.text[0].lower()


def test_bad_policies_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "log.jsonl", np.full(30, 0.5))
    assert main(["advise", str(path), "--policy", "advise:fall=7"]) == 2
    assert "fall is 7.0; it must be between 0 and 1" in capsys.readouterr().err


def test_a_log_without_rewards(tmp_path: Path) -> None:
    run = read(log(tmp_path / "log.jsonl", np.full(30, 0.5)))
    bare = replace(run, table={name: column for name, column in run.table.items() if name != "reward"})
    assert answer.of_run(bare).word == "cannot tell"


def test_the_page_tells_the_story(tmp_path: Path) -> None:
    folder = synthetic.make(tmp_path / "run", steps=40)
    assert answer.section([read(folder)]) is None
    events.append(folder, Decision(20, "rollback", "<b>the policy got worse</b>", "reward", 1e4, 17, 0.7, 0.6, 0.2, 10,
                                   1, 0.25, 0.6, True))  # fmt: skip
    assert main(["report", str(folder)]) == 0
    page = (folder / "page.html").read_text()
    assert "The autopilot acted once." in page
    assert "<b>The policy" not in page
    assert "<b>the policy" not in page
