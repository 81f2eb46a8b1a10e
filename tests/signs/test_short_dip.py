"""A reward that is lost for a few rows and is back hides no gain; a loss that lasts is none of these."""

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
from grposcope.signs.short_dip import short_dip

N = 160


def course(seed: int, gain: float, first: int, behind: int) -> np.ndarray:
    """A reward that gains so much over N rows, and is near 0 from the row `first` to the row `behind`."""
    rows = np.arange(N)
    level = np.where((rows >= first) & (rows < behind), 0.02, 0.3 + gain * rows / N)
    return np.asarray(level + 0.03 * np.random.default_rng(seed).normal(size=N))


def log(path: Path, values: np.ndarray) -> Path:
    rows = [{"step": k + 1, "reward": float(value), "grad_norm": 0.5, "loss": 0.01} for k, value in enumerate(values)]
    (path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path / "log.jsonl"


@pytest.mark.parametrize(("first", "behind"), [(80, 86), (40, 41), (100, 115)])
def test_a_dip_is_found_to_the_row(first: int, behind: int) -> None:
    for seed in range(10):
        assert short_dip(course(seed, 0.5, first, behind)) == (first, behind)


@pytest.mark.parametrize(
    ("first", "behind"), [(80, 130), (150, N), (0, 6), (0, 0)], ids=["long", "at the end", "at the start", "none"]
)
def test_what_is_no_short_dip(first: int, behind: int) -> None:
    assert all(short_dip(course(seed, 0.5, first, behind)) is None for seed in range(10))


def test_a_gain_is_seen_beside_a_dip(tmp_path: Path) -> None:
    """It is told where the gain is seen without those rows alone; and a run without a gain is not healthy for it."""
    said = 0
    for seed in range(5):
        run = read(log(tmp_path, course(seed, 0.5, 80, 86)))
        told = verdict(run, diagnose(run))
        assert told.word == "healthy"
        said += "steps 81 to 86, far below those around, left out" in told.outcome
        flat = read(log(tmp_path, course(seed, 0.0, 80, 86)))
        assert verdict(flat, diagnose(flat)).word != "healthy"
    assert said >= 3


def test_the_screen_is_true(tmp_path: Path) -> None:
    run = read(path := log(tmp_path, course(0, 0.5, 80, 86)))
    findings = diagnose(run)
    shown = screen.text(run, verdict(run, findings), findings, answer.of_run(run, findings), "", 2000)
    names = {"reward": "reward", "grad_norm": "grad_norm", "loss": "loss"}
    assert [claim for claim in untrue(shown, read_raw(path, "step", names)) if "reward" in claim] == []
