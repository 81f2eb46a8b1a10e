"""Beside an outcome: completions that shrank where a reward fell, a reward that rose where a score did not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from raw_log import read_raw
from true_sentences import untrue

from grposcope.instruments.diagnosis import answer, diagnose, screen
from grposcope.instruments.diagnosis.command import MORE
from grposcope.instruments.diagnosis.verdict import Verdict, verdict
from grposcope.logs import read

FEW = 26


def fell(folder: Path, shrink: float) -> tuple[Path, Verdict]:
    """A short log whose reward rises and falls while completions change in length by this factor."""
    noise = np.random.default_rng(1).normal(0, 0.02, (2, FEW))
    rows = []
    for k in range(FEW):
        reward = 0.42 + 0.04 * k if k < 6 else max(0.66 - 0.03 * (k - 6), 0.2)
        length = 320 * shrink ** (k / (FEW - 1)) * (1 + noise[1, k] / 2)
        rows.append({"step": k + 1, "reward": reward + noise[0, k], "response_length/mean": length, "entropy": 0.2})
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = read(path)
    return path, verdict(run, diagnose(run))


def test_a_reward_that_fell_while_completions_shrank(tmp_path: Path) -> None:
    path, judged = fell(tmp_path, 0.3)
    assert judged.word == "failing"
    assert [clause for clause in judged.remarks if clause.startswith("meanwhile completions went from 298 to 106")]
    run = read(path)
    findings = diagnose(run)
    shown = screen.text(run, judged, findings, answer.of_run(run, findings), MORE, 2000).replace(str(path), "LOG")
    raw = read_raw(path, "step", {"reward": "reward", "length": "response_length/mean", "entropy": "entropy"})
    assert untrue(shown, raw) == []


def test_completions_that_hardly_changed_are_not_said(tmp_path: Path) -> None:
    assert not [clause for clause in fell(tmp_path, 0.8)[1].remarks if clause.startswith("meanwhile")]


@pytest.mark.parametrize(("gain", "said"), [(0.06, True), (0.0, False)])
def test_a_reward_that_rose_beside_a_score_that_did_not(tmp_path: Path, gain: float, said: bool) -> None:
    rows, scores = 140, iter([0.0232, 0.0263, 0.0203, 0.0266, 0.0204, 0.0252])
    noise = np.random.default_rng(2).normal(0, 0.02, rows)
    table = [
        {"step": 10 * k, "reward": 0.2 + gain * k / rows + noise[k]} | ({} if k % 25 else {"eval/ndcg": next(scores)})
        for k in range(rows)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in table))
    run = read(path)
    judged = verdict(run, diagnose(run))
    assert judged.fault != "reward hacking"
    assert bool([clause for clause in judged.remarks if clause.startswith("training reward rose from")]) == said
