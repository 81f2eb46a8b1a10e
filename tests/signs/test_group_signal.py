"""What groups carry, against brute force and simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import synthetic_series as made

from grposcope.core.run import Groups, Run
from grposcope.instruments.diagnosis import diagnose
from grposcope.signs import group_signal


def grouped(rewards: np.ndarray) -> Run:
    """A run with rewards (steps, prompts, G) as its groups."""
    steps, prompts, size = rewards.shape
    table = made.healthy(n=steps)
    table["reward"] = rewards.mean((1, 2))
    del table["dead_fraction"]
    count = steps * prompts
    found = Groups(
        np.repeat(np.arange(1, steps + 1), prompts), np.zeros(count, np.int64), ("p",), rewards.ravel().astype(float),
        np.arange(0, count * size + 1, size),
    )  # fmt: skip
    return replace(made.run(table), groups=found)


def drawn(rng: np.random.Generator, p: float, steps: int = 40, prompts: int = 30, size: int = 8) -> np.ndarray:
    rates = rng.beta(3 * p, 3 * (1 - p), (steps, prompts))
    return (rng.random((steps, prompts, size)) < rates[:, :, None]).astype(float)


def test_variances_by_hand_and_without_bias() -> None:
    table = np.array([[0.0, 1, np.nan], [2, 4, 6]])
    within, between = group_signal.variances(table)
    assert within.value == pytest.approx((0.5 + 8) / 3)
    mean = (1 + 12) / 5
    middle = 2 * (0.5 - mean) ** 2 + 3 * (4 - mean) ** 2
    assert between.value == pytest.approx((middle - within.value) / (5 - (4 + 9) / 5))
    rng = np.random.default_rng(0)
    found = [group_signal.variances(rng.normal(size=(12, 1)) * 2 + 3 * rng.normal(size=(12, 5))) for _ in range(500)]
    assert np.mean([w.value for w, _ in found]) == pytest.approx(9, rel=0.05)
    assert np.mean([b.value for _, b in found]) == pytest.approx(4, rel=0.12)
    assert np.mean([w.se for w, _ in found]) == pytest.approx(np.std([w.value for w, _ in found]), rel=0.15)


def test_signal_of_the_late_part() -> None:
    rewards = np.concatenate([drawn(np.random.default_rng(1), 0.5), drawn(np.random.default_rng(2), 0.98)])
    run = grouped(rewards)
    late, early = group_signal.signal(run), group_signal.signal(run, (0.0, 0.15))
    assert late is not None
    assert early is not None
    assert (late.first, late.last, late.groups) == (65, 80, 16 * 30)
    part = rewards[64:].reshape(-1, 8)
    assert late.dead.value == pytest.approx((part.min(1) == part.max(1)).mean())
    assert late.expected is not None
    assert abs(late.expected.value - late.dead.value) < 4 * late.expected.se
    assert late.dead.value > 0.85 > 0.5 > early.dead.value
    assert late.live[8].value == pytest.approx(100 * (1 - late.dead.value) / 8)
    assert late.best == max(late.live, key=lambda size: late.live[size].value)


def test_copied_rollouts_are_more_dead_than_rates_explain() -> None:
    """Every rollout twice: pairs agree more often than chance, which a Beta of rates takes for prompts far apart."""
    rng = np.random.default_rng(3)
    half = (rng.random((40, 30, 2)) < 0.5).astype(float)
    found = group_signal.signal(grouped(np.repeat(half, 4, axis=2)))
    assert found is not None
    assert found.expected is not None
    assert found.dead.value == pytest.approx(0.5, abs=0.1)
    assert found.expected.value > 10 * 0.5**7


def test_selected_groups_have_nothing_to_expect() -> None:
    run = grouped(drawn(np.random.default_rng(4), 0.5))
    chosen = group_signal.signal(replace(run, config={**run.config, "objective": {"resample_dead": True}}))
    assert chosen is not None
    assert chosen.expected is None


def test_rewards_of_many_values() -> None:
    found = group_signal.signal(grouped(np.random.default_rng(5).normal(size=(40, 30, 4))))
    assert found is not None
    assert found.expected is None
    assert found.live == {}
    assert found.dead.value == 0


def test_no_groups_no_block() -> None:
    run = made.run(made.healthy())
    assert group_signal.signal(run) is None
    assert group_signal.document(run) is None


def test_saturation_is_seen_in_groups_alone_and_says_what_they_carry() -> None:
    rewards = np.concatenate([drawn(np.random.default_rng(6), 0.5), drawn(np.random.default_rng(7), 0.995)])
    finding = next(f for f in diagnose(grouped(rewards)) if f.fault == "saturated")
    assert finding.status == "present"
    said = " ".join(str(evidence) for evidence in finding.evidence)
    assert "variance of the reward within groups" in said
    assert "live groups per 100 rollouts with group size 8" in said
