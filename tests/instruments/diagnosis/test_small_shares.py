"""Held-out shares of a few per cent are told apart in words, and times of the machine are no scores that fell."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from grposcope.core.text import digits_of_shares
from grposcope.instruments.diagnosis import diagnose
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read

ROWS = 60


def told(folder: Path, more: dict[int, dict[str, float]]) -> tuple[str, str]:
    """Headline and everything else that is said of a run whose reward rises, with these values in some rows."""
    noise = np.random.default_rng(3).normal(0, 0.01, ROWS)
    rows = [{"step": k + 1, "reward": 0.1 + 0.003 * k + noise[k], **more.get(k, {})} for k in range(ROWS)]
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = read(path)
    judged = verdict(run, diagnose(run))
    return judged.line, " ".join((judged.because, *judged.remarks))


def test_a_fall_of_a_small_share_is_seen_in_words(tmp_path: Path) -> None:
    scores = {k: {"eval/ndcg": 0.0237 - 0.00013 * k} for k in range(4, ROWS, 5)}
    line, rest = told(tmp_path, scores)
    assert re.search(r"2\.[0-9]% → 1\.[0-9]%", line)
    assert "stayed at 2%" not in rest


@pytest.mark.parametrize(
    ("shares", "digits"), [((0.53, 0.41), 0), ((0.0222, 0.016), 1), ((0.004, 0.001), 2), ((0.0, 0.0), 0), ((0.1,), 0)]
)
def test_decimals_of_shares(shares: tuple[float, ...], digits: int) -> None:
    assert digits_of_shares(*shares) == digits


def test_a_time_that_two_rows_have_is_no_score(tmp_path: Path) -> None:
    times = {20: {"timing_s/save_checkpoint": 0.99}, 40: {"timing_s/save_checkpoint": 0.42}}
    assert "save_checkpoint" not in told(tmp_path, times)[1]
    scores = {20: {"accuracy": 0.99}, 40: {"accuracy": 0.42}}
    assert "accuracy" in told(tmp_path, scores)[1].lower()


@pytest.mark.parametrize(("top", "word"), [(1.0, "healthy"), (1.4, "cannot tell")])
def test_a_held_out_reward_is_a_share_only_where_rewards_end_at_one(tmp_path: Path, top: float, word: str) -> None:
    """Evaluated rewards of 0.9 are near the top where 1 is the most that is paid, and not where 1.4 is."""
    noise = np.random.default_rng(5).normal(0, 0.02, 13)
    rows = [
        {"step": 10 * k, "loss": 0.1, "reward": top - 0.05 - abs(noise[k]), "reward_std": 0.3}
        | ({"eval_reward": (0.905, 0.9, 0.92, 0.91)[k // 4]} if k % 4 == 0 else {})
        for k in range(13)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = read(path)
    judged = verdict(run, diagnose(run))
    assert judged.word == word
    assert ("near the top of its range" in judged.outcome) == (word == "healthy")
