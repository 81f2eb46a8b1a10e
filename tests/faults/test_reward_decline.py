"""A reward that falls from one row to the next and rises again is of another stage; one that is lost is not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from raw_log import read_raw
from true_sentences import untrue

from grposcope.faults.judge import diagnose
from grposcope.instruments.diagnosis import answer, screen
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read

N, AT = 200, 100


def log(path: Path, seed: int, *, since: float = 0.2, kl: float = 1.0, rows: int = 1) -> Path:
    """A reward that rises, falls within so many rows, and gains `since` from there on; kl: times of its KL then."""
    rng, k = np.random.default_rng(seed), np.arange(N)
    fallen = np.clip((k - AT + 1) / rows, 0, 1)
    reward = (
        (0.4 + 0.003 * k) * (1 - fallen) + (0.25 + since * (k - AT) / (N - AT)) * fallen + 0.03 * rng.normal(size=N)
    )
    course = (0.0001 * k + 0.001) * np.where(k < AT, 1.0, kl) + 0.0001 * np.abs(rng.normal(size=N))
    length = np.where(k < AT, 300.0, 520.0) + 10 * rng.normal(size=N)
    table = [
        {"step": int(i) + 1, "reward": float(reward[i]), "kl": float(course[i]), "grad_norm": 0.5 + 0.05 * rng.normal(),
         "loss": 0.01 * rng.normal(), "completions/mean_length": float(length[i])} for i in k
    ]  # fmt: skip
    (path / f"{seed}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    return path / f"{seed}.jsonl"


def advice(path: Path) -> dict[str, str]:
    return {finding.fault: finding.remedy for finding in diagnose(read(path)) if finding.present}


def test_another_stage_asks_what_changed(tmp_path: Path) -> None:
    """And nobody is told that the loss favours length, which no policy gains in one row."""
    for seed in range(6):
        found = advice(log(tmp_path, seed))
        assert found["reward decline"].startswith("find out what else changed at that step")
        assert "length" not in found


@pytest.mark.parametrize("course", [{"since": 0.0}, {"kl": 30.0}, {"rows": 12}], ids=["lost", "a jump", "over rows"])
def test_what_is_no_other_stage(tmp_path: Path, course: dict[str, float]) -> None:
    for seed in range(6):
        found = advice(log(tmp_path, seed, **course))
        assert not found.get("reward decline", "").startswith("find out what else changed")


def test_prompts_of_another_length_from_that_step_on_are_said(tmp_path: Path) -> None:
    path = log(tmp_path, 2)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        length = (101.5 if row["step"] <= AT else 187.0) + 0.1 * (row["step"] % 7)
        row |= {"critic/score/mean": row.pop("reward"), "prompt_length/mean": length, "actor/pg_loss": row.pop("loss")}
        row |= {"training/global_step": row["step"], "response_length/mean": row.pop("completions/mean_length")}
        del row["kl"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = next(finding for finding in diagnose(read(path)) if finding.fault == "reward decline")
    assert "from that step on: the prompts are others" in found.because
    assert f"at step {AT + 1}, and is" in found.because
    assert found.remedy.startswith("find out what else changed")


def graded_otherwise(path: Path, seed: int, **moves: float) -> Path:
    """A reward that is graded otherwise from one row on: all else stays, but for what `moves` by so many times."""
    rng, k = np.random.default_rng(seed), np.arange(N)
    reward = np.where(k < AT, 0.4 + 0.003 * k, 0.25) + 0.04 * rng.normal(size=N)
    course = {"completions/mean_length": 300 + 15 * rng.normal(size=N), "entropy": 0.4 + 0.02 * rng.normal(size=N)}
    for name, times in moves.items():
        course[name.replace("length", "completions/mean_length")][AT:] *= times
    table = [
        {"step": int(i) + 1, "reward": float(reward[i]), "grad_norm": 0.5 + 0.05 * rng.normal(),
         "loss": 0.01 * rng.normal(), **{name: float(values[i]) for name, values in course.items()}} for i in k
    ]  # fmt: skip
    (path / f"graded{seed}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    return path / f"graded{seed}.jsonl"


@pytest.mark.parametrize("moves", [{}, {"length": 1.6}, {"entropy": 0.4}], ids=["nothing", "length", "entropy"])
def test_a_fall_while_nothing_that_is_sampled_moves_is_of_what_grades(moves: dict[str, float], tmp_path: Path) -> None:
    for seed in range(4):
        run = read(path := graded_otherwise(tmp_path, seed, **moves))
        findings = diagnose(run)
        first = next(finding for finding in findings if finding.present)
        told = "put completions from before and after that step to the reward function" in first.remedy
        assert told is not bool(moves)
        if told:
            shown = screen.text(run, verdict(run, findings), findings, answer.of_run(run, findings), "", 2000)
            assert "; it falls from one row to the next at step 101, where what is sampled did not move (" in shown
            names = {"reward": "reward", "length": "completions/mean_length", "entropy": "entropy",
                     "grad_norm": "grad_norm", "loss": "loss"}  # fmt: skip
            assert [claim for claim in untrue(shown, read_raw(path, "step", names)) if "did not move" in claim] == []


def test_the_screen_of_another_stage_is_true(tmp_path: Path) -> None:
    run = read(path := log(tmp_path, 1))
    findings = diagnose(run)
    shown = screen.text(run, verdict(run, findings), findings, answer.of_run(run, findings), "", 2000)
    assert "the policy did not jump there" in shown
    names = {"kl": "kl", "reward": "reward", "length": "completions/mean_length", "grad_norm": "grad_norm",
             "loss": "loss"}  # fmt: skip
    assert [claim for claim in untrue(shown, read_raw(path, "step", names)) if "jump" in claim] == []


@pytest.mark.parametrize(("lower", "grade"), [(0.06, {None, "note"}), (0.3, {"failing", "warning"})])
def test_a_decline_below_a_tenth_of_the_range_is_a_note(tmp_path: Path, lower: float, grade: set[str | None]) -> None:
    """A reward of 0.5 that goes up by so much in the middle of the run and back again."""
    rng, k = np.random.default_rng(3), np.arange(N)
    reward = 0.5 + lower * np.sin(np.pi * k / N) + 0.012 * rng.normal(size=N)
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"step": int(i) + 1, "reward": float(reward[i])}) + "\n" for i in k))
    run = read(path)
    found = next(finding for finding in diagnose(run) if finding.fault == "reward decline")
    assert found.grade in grade
