"""Metrics that are one number, or a straight line, while rewards differ: they were not measured."""

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
from grposcope.signs import unmeasured
from grposcope.signs.quantities import Quantities

ROWS = 30
NOISE = np.random.default_rng(4).normal(0, 0.02, (2, ROWS))


def log(folder: Path, **columns: list[float]) -> Path:
    """A log whose reward rises, with these columns in place of a noisy KL."""
    rows = [
        {"step": 5 * k, "reward": 0.5 + 0.01 * k + NOISE[0, k], "kl": 0.02 + abs(NOISE[1, k])}
        | {key: values[k] for key, values in columns.items()}
        for k in range(ROWS)
    ]
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def clause(path: Path) -> str:
    return unmeasured.clause(Quantities(read(path)))


def test_a_number_that_never_changes_is_said_and_true(tmp_path: Path) -> None:
    path = log(tmp_path, kl=[0.031415926535897934] * ROWS, loss=[0.3 - 0.005 * k for k in range(ROWS)])
    said = "kl is 0.0314 in all 30 rows and loss lies on a straight line in all 30 rows"
    assert clause(path).startswith(f"{said}: such numbers are not measured")
    run = read(path)
    findings = diagnose(run)
    shown = screen.text(run, verdict(run, findings), findings, answer.of_run(run, findings), MORE, 2000)
    assert "lies on a straight line" in " ".join(shown.split())
    raw = read_raw(path, "step", {"reward": "reward", "kl": "kl", "loss": "loss"})
    assert untrue(shown.replace(str(path), "LOG"), raw) == []


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"kl": [0.02] * ROWS},
        {"kl": [0.0] * ROWS},
        {"loss": [0.3 - 0.005 * k + 1e-5 * (k % 2) for k in range(ROWS)]},
        {"learning_rate": [1e-6 * (ROWS - k) for k in range(ROWS)]},
        {"kl": [0.0314159] * (ROWS - 1) + [0.0314158]},
    ],
)
def test_rounded_numbers_zeros_schedules_and_noise_are_not(tmp_path: Path, columns: dict[str, list[float]]) -> None:
    assert clause(log(tmp_path, **columns)) == ""
