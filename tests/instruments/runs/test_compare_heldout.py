"""Held-out scores in `grposcope compare`: sentence, table and document, of scores that the runs have in common."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from asked import asked


def log(path: Path, seed: int, gain: float, score: str = "eval/accuracy") -> Path:
    """A run whose held-out score gains so much, evaluated every ten steps."""
    rng = np.random.default_rng(seed)
    rows = [{"step": k + 1, "reward": 0.3 + 0.02 * rng.normal()} for k in range(100)]
    rows += [{"step": k, score: round(0.3 + gain * k / 100 + 0.002 * rng.normal(), 4)} for k in range(10, 101, 10)]
    path.write_text("".join(json.dumps(row) + "\n" for row in sorted(rows, key=lambda row: row["step"])))
    return path


def test_the_last_evaluation_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = log(tmp_path / "a.jsonl", 0, 0.0), log(tmp_path / "b.jsonl", 1, 0.2)
    status, document = asked("compare", first, second)
    shown = capsys.readouterr().out
    values = [
        [json.loads(row)["eval/accuracy"] for row in path.read_text().splitlines() if "eval" in row]
        for path in (first, second)
    ]
    assert status == 0
    assert [end["value"] for end in document["heldout"]["accuracy"]] == [values[0][-1], values[1][-1]]
    assert all(end["step"] == 100 for end in document["heldout"]["accuracy"])
    said = next(line for line in shown.splitlines() if "held-out accuracy" in line)
    assert said.startswith(f"b.jsonl against a.jsonl: held-out accuracy {values[1][-1]:.1%}")
    assert f"against {values[0][-1]:.1%}" in said
    best = int(np.argmax(values[0]))
    assert f"best {values[0][best]:.0%} at step {10 * (best + 1)}" in " ".join(shown.split())


def test_without_a_score_in_common_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = log(tmp_path / "b.jsonl", 1, 0.2, score="eval/pass_rate_hard")
    _, document = asked("compare", log(tmp_path / "a.jsonl", 0, 0.0), other)
    assert "heldout" not in document
    assert "Held-out scores" not in capsys.readouterr().out


def test_a_run_that_is_not_decided_can_fail(tmp_path: Path) -> None:
    (tmp_path / "short.jsonl").write_text("".join(json.dumps({"step": k, "reward": 0.1 * k}) + "\n" for k in range(4)))
    assert asked("diagnose", tmp_path / "short.jsonl", "--fail-on", "cannot tell")[0] == 1
    assert asked("diagnose", tmp_path / "short.jsonl", "--fail-on", "failing")[0] == 0
