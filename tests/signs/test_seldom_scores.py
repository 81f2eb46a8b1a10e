"""A score that few rows of training have is looked at as an evaluation is, and what fell there is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from raw_log import read_raw
from true_sentences import untrue

from grposcope.instruments.diagnosis import answer, diagnose, screen
from grposcope.instruments.diagnosis.command import MORE
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read

ROWS = 200


def _log(folder: Path, key: str, values: dict[int, float]) -> Path:
    """A log of ROWS rows whose reward rises, and with these values of a further column at these rows."""
    noise = np.random.default_rng(7).normal(0, 0.03, (2, ROWS))
    rows = [
        {"step": i + 1, "reward": 0.3 + 0.4 * i / ROWS + noise[0, i], "entropy": 0.5 + noise[1, i]}
        | ({key: values[i]} if i in values else {})
        for i in range(ROWS)
    ]
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _sparse(first: float, last: float) -> dict[int, float]:
    """A value at every tenth row, from the first level to the last, with noise."""
    at = range(5, ROWS, 10)
    noise = np.random.default_rng(8).normal(0, 0.02, len(at))
    return {row: first + (last - first) * row / ROWS + float(noise[k]) for k, row in enumerate(at)}


@pytest.mark.parametrize(
    ("key", "values", "said"),
    [
        ("accuracy", {0: 0.52, ROWS - 1: 0.31}, "accuracy fell from 52% to 31% on the 2 rows that have it"),
        ("f1", _sparse(0.6, 0.1), "f1 fell from 55% to 15% on the 20 rows that have it"),
    ],
)
def test_what_fell_on_few_rows_is_told_and_true(tmp_path: Path, key: str, values: dict[int, float], said: str) -> None:
    path = _log(tmp_path, key, values)
    run = read(path)
    findings = diagnose(run)
    judged = verdict(run, findings)
    assert said in judged.remarks
    assert judged.word == "healthy"
    shown = screen.text(run, judged, findings, answer.of_run(run, findings), MORE, 2000).replace(str(path), "LOG")
    raw = read_raw(path, "step", {"reward": "reward", "entropy": "entropy", key: key})
    assert untrue(shown, raw) == []
    assert untrue(shown.replace(" on the ", " on the 1"), raw)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("f1", _sparse(0.3, 0.5)),
        ("f1", {0: 0.5, ROWS - 1: 0.45}),
        ("mean_length_share", _sparse(0.6, 0.1)),
        ("epoch_time", _sparse(0.6, 0.1)),
    ],
)
def test_what_did_not_fall_or_is_no_score_is_not_told(tmp_path: Path, key: str, values: dict[int, float]) -> None:
    run = read(_log(tmp_path, key, values))
    assert not any("rows that have it" in remark for remark in verdict(run, diagnose(run)).remarks)
