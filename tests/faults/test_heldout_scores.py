"""Held-out scores that fall from their best or no longer follow: reward hacking, held-out decline, or nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import synthetic_series as made
from synthetic_series import Columns, U, flagged

from grposcope.core.run import Evaluations
from grposcope.instruments.diagnosis import diagnose

AT = np.arange(1, 13) / 12
"""Shares of the run at which it is evaluated."""


def evaluated(mean: np.ndarray, seed: int = 0, problems: int = 500) -> np.ndarray:
    """Shares of so many problems that are solved."""
    return np.random.default_rng(seed).binomial(problems, mean) / problems


def rising(scale: float = 1.0, offset: float = 0.0) -> Columns:
    """A healthy run whose reward rises from 0.3 to 0.9, on another scale."""
    table = made.healthy()
    return table | {"reward": offset + scale * (table["reward"] + 0.2 * U)}


PEAK = 0.4 + 0.15 * np.minimum(AT / 0.35, 1) - 0.11 * np.maximum(AT - 0.35, 0) / 0.65


@pytest.mark.parametrize("bonus", [0.0, 0.2])
def test_a_peak_on_the_way_is_found_and_said(bonus: float) -> None:
    run = made.run(rising(offset=bonus), evaluated(PEAK))
    first = diagnose(run)[0]
    assert (first.fault, first.status) == ("reward hacking", "present")
    assert first.because.startswith("held-out accuracy fell from 52% (around step 40) to 44% while the reward rose")
    assert first.since is not None
    assert first.since.first <= 50 <= first.since.last  # a tenth of the fall from step 42 on, at ten steps' distance
    assert first.since.first >= 30


@pytest.mark.parametrize("bonus", [0.0, 0.2])
def test_a_score_that_stays_is_found_whatever_the_bonus(bonus: float) -> None:
    assert "reward hacking" in flagged(rising(offset=bonus), evaluated(np.full(12, 0.4)))


def test_a_score_that_is_done_early_is_healthy() -> None:
    """It gains 0.3 of the reward's 0.4 in all, and nothing of the 0.13 that come last."""
    table = rising() | {"reward": made.healthy()["reward"] - 0.4 * U + 0.27 * np.minimum(U / 0.3, 1) + 0.13 * U}
    for seed in range(10):
        assert "reward hacking" not in flagged(table, evaluated(0.3 + 0.3 * np.minimum(AT / 0.3, 1), seed))


def test_a_score_near_its_ceiling_is_healthy() -> None:
    assert "reward hacking" not in flagged(rising(), evaluated(np.full(12, 0.96)))


def test_a_fall_of_both_is_not_put_down_to_overfitting() -> None:
    fall = 0.7 - 0.4 * np.abs(AT - 0.5)
    table = made.healthy() | {
        "reward": 0.7 - 0.4 * np.abs(U - 0.5) + 0.01 * made.ar1(np.random.default_rng(0), len(U), 0.0)
    }
    found = next(each for each in diagnose(made.run(table, evaluated(fall))) if each.fault == "held-out decline")
    assert found.present
    assert "the training reward fell as well" in found.remedy


def test_scales_that_do_not_compare_leave_falls() -> None:
    table = rising(9.0, -4.0)
    still = next(f for f in diagnose(made.run(table, evaluated(np.full(12, 0.4)))) if f.fault == "reward hacking")
    assert still.status != "present"
    assert still.because.endswith("but not whether it follows the reward")
    assert "reward hacking" in flagged(table, evaluated(0.6 - 0.3 * AT))


def test_a_fall_beside_a_reward_that_falls_is_no_hacking() -> None:
    table = rising()
    table["reward"] = table["reward"] - 1.2 * U
    modes = flagged(table, evaluated(0.6 - 0.3 * AT))
    assert {"held-out decline", "reward decline"} <= set(modes)
    assert "reward hacking" not in modes


def test_a_score_that_stopped_is_compared_with_the_reward_up_to_there() -> None:
    """Evaluations end at step 60 of 120, where the reward has hardly risen; it is said until when they go."""
    table = made.healthy(2)
    table["reward"] = (
        0.3 + 0.5 * np.clip((np.arange(120) - 55) / 60, 0, 1) + 0.02 * np.random.default_rng(2).normal(size=120)
    )
    score = 0.4 + 0.01 * np.random.default_rng(3).normal(size=12)
    steps = np.arange(5, 65, 5)
    run = made.run(table)
    held = Evaluations.of_rows(
        [(int(s), "accuracy", float(v), 0.01, 500, "") for s, v in zip(steps, score, strict=True)]
    )
    stopped = replace(run, evaluations=held)
    finding = next(one for one in diagnose(stopped) if one.fault == "reward hacking")
    assert finding.status != "present"
    assert "both up to step 60, where the evaluations end" in finding.because
    whole = made.run(table, np.interp(np.linspace(0, 1, 12), [0, 1], [0.4, 0.4]) + score - 0.4)
    assert "evaluations end" not in next(one for one in diagnose(whole) if one.fault == "reward hacking").because
