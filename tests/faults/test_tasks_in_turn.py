"""A log whose rows are of several tasks in turn is judged by task, and is no course of its own."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from raw_log import read_raw
from true_sentences import untrue

from grposcope.core.run import Run
from grposcope.instruments.diagnosis import answer, diagnose, screen
from grposcope.instruments.diagnosis.command import MORE
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read

ROWS = 160
SHARE = np.arange(ROWS) / ROWS


def _run(folder: Path, hard: np.ndarray, easy: np.ndarray, of_hard: np.ndarray, key: str | None = "task") -> Run:
    """A log of rows that are of the hard task where `of_hard`, with these mean rewards (ROWS,)."""
    noise = np.random.default_rng(5).normal(0, 0.03, ROWS)
    reward = np.where(of_hard, hard, easy) + noise
    rows = [{"step": i + 1, "reward": float(reward[i]), "entropy": 0.5 + float(noise[-i])} for i in range(ROWS)]
    for row, is_hard in zip(rows, of_hard, strict=True):
        row |= {key: "hard" if is_hard else "easy"} if key else {}
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read(path)


TURNS = {
    "one by one": np.arange(ROWS) % 2 == 1,
    "drawn": np.random.default_rng(2).random(ROWS) < 0.5,
    "a curriculum": np.random.default_rng(2).random(ROWS) < SHARE,
    "one after the other": np.arange(ROWS) >= ROWS // 2,
}


@pytest.mark.parametrize("turns", TURNS)
def test_tasks_that_each_rise_are_healthy_however_they_are_mixed(tmp_path: Path, turns: str) -> None:
    run = _run(tmp_path, 0.1 + 0.2 * SHARE, 0.6 + 0.3 * SHARE, TURNS[turns])
    findings = diagnose(run)
    said = verdict(run, findings)
    assert run.in_turn
    assert said.line.startswith("healthy: reward of ")
    assert not [finding.fault for finding in findings if finding.present]
    assert "tasks in turn" in " ".join(run.meta.notes)


def test_a_task_that_is_lost_is_named_and_its_own_levels_are_said(tmp_path: Path) -> None:
    run = _run(tmp_path, np.where(SHARE < 0.6, 0.4, 0.1), 0.6 + 0.2 * SHARE, TURNS["one by one"])
    said = verdict(run, diagnose(run))
    assert said.line.startswith("failing: reward of hard 0.4 → 0.1 at step ")
    assert said.because.startswith("hard: the reward fell from 0.3")
    alone = run.scopes["hard"]
    assert verdict(alone, diagnose(alone)).line == said.line.replace(" of hard", "")


def test_tasks_at_one_level_and_rows_without_a_task_are_one_course(tmp_path: Path) -> None:
    level = np.full(ROWS, 0.5)
    assert not _run(tmp_path, level, level, TURNS["one by one"]).in_turn
    unmarked = _run(tmp_path, 0.3 + 0 * SHARE, 0.7 + 0 * SHARE, TURNS["one by one"], key=None)
    assert not unmarked.in_turn
    assert verdict(unmarked, diagnose(unmarked)).word == "cannot tell"


@pytest.mark.parametrize("turns", TURNS)
def test_what_is_said_of_each_task_is_true_of_its_rows(tmp_path: Path, turns: str) -> None:
    run = _run(tmp_path, np.where(SHARE < 0.6, 0.4, 0.1), 0.6 + 0.2 * SHARE, TURNS[turns])
    findings = diagnose(run)
    judged = verdict(run, findings)
    shown = screen.text(run, judged, findings, answer.of_run(run, findings), MORE, 2000)
    names = {"reward": "reward", "entropy": "entropy"}
    files = {"all": tmp_path / "log.jsonl"}
    for task in ("hard", "easy"):
        files[task] = tmp_path / f"{task}.jsonl"
        rows = [line for line in files["all"].read_text().splitlines() if json.loads(line)["task"] == task]
        files[task].write_text("\n".join(rows) + "\n")
    raw = {name: read_raw(file, "step", names) for name, file in files.items()}
    whole = replace(raw.pop("all"), scopes=raw)
    assert untrue(shown.replace(str(run.meta.source), "LOG"), whole) == []
