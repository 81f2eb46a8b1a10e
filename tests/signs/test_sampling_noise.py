"""How noisy a mean reward is by its rollouts, against simulated batches and from every source in a log."""

from __future__ import annotations

import math

import numpy as np
import pytest
import synthetic_series as made

from grposcope.core.run import Groups
from grposcope.faults.judge import diagnose
from grposcope.instruments.diagnosis import learning
from grposcope.signs import sampling_noise

N, P, G, RATE = 60, 8, 4, 0.6
LENGTH = np.random.default_rng(9).uniform(100, 300, N)


def batches(seed: int, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """0/1 rewards (n, P, G) of prompts that differ in difficulty, and their success rates (n, P)."""
    rng = np.random.default_rng(seed)
    rates = rng.beta(3 * RATE, 3 * (1 - RATE), size=(n, P))
    return (rng.random((n, P, G)) < rates[:, :, None]).astype(float), rates


def test_the_bounds_hold_the_variance_of_a_mean() -> None:
    """With s² = p(1 − p), ρ = 1/4 by the Beta distribution of rates: s²/N (1 + (G − 1) ρ)."""
    drawn, _ = batches(0, 4000)
    expected = RATE * (1 - RATE) / (P * G) * (1 + (G - 1) / 4)
    assert drawn.mean((1, 2)).var() == pytest.approx(expected, rel=0.06)
    rewards = drawn[:N]
    within = np.sqrt(rewards.var(2, ddof=1)).mean(1)
    batch = rewards.std((1, 2), ddof=1)
    for spread in (
        {"reward_std": within},
        {"reward_std_batch": batch},
        {"reward_std": within, "reward_std_batch": batch},
    ):
        run = made.run({"reward": rewards.mean((1, 2)), **spread}, group=G, prompts=P)
        assert sampling_noise.per_step(run)[0] == P * G
        variance = sampling_noise.of_reward(run)
        assert variance is not None
        assert variance.low < expected < variance.high < 5 * expected


def test_groups_give_both_variances() -> None:
    rewards, _ = batches(1, 400)
    flat = [(step, group) for step in range(400) for group in range(P)]
    run = made.run({"reward": rewards.mean((1, 2))})
    groups = Groups.of([step for step, _ in flat], [str(at) for at in flat], [rewards[at] for at in flat])
    variance = sampling_noise.of_reward(type(run)(run.meta, run.config, run.table, groups, run.evaluations))
    expected = RATE * (1 - RATE) / (P * G) * (1 + (G - 1) / 4)
    assert variance is not None
    assert variance.high == pytest.approx(expected, rel=0.1)
    assert variance.low == pytest.approx(0.75 * RATE * (1 - RATE) / (P * G), rel=0.1)


SOURCES = {
    "rollouts in the settings": ({}, {"rollouts": 32}),
    "prompts and group": ({}, {"prompts": 8, "group": 4}),
    "a column": ({"rollouts": np.full(N, 32.0)}, {}),
    "tokens of completions": ({"tokens": 32 * LENGTH, "length": LENGTH}, {}),
    "tokens of prompts too": (
        {"tokens_batch": 32 * (LENGTH + 80), "length": LENGTH, "prompt_length": np.full(N, 80.0)}, {},
    ),
    "tokens so far": ({"tokens_total": np.cumsum(32 * (LENGTH + 80)), "length": LENGTH}, {}),
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_rollouts_per_step(source: str) -> None:
    columns, settings = SOURCES[source]
    assert sampling_noise.per_step(made.run({"reward": np.zeros(N), **columns}, **settings))[0] == pytest.approx(32)


def test_what_cannot_be_known_is_not() -> None:
    """Lengths that hardly differ do not tell rollouts from prompts; without a spread the rollouts are of no use."""
    length = 200 + np.random.default_rng(0).normal(0, 0.1, N)
    tokens = np.cumsum(32 * (length + np.random.default_rng(1).normal(80, 20, N)))
    assert math.isnan(
        sampling_noise.per_step(made.run({"reward": length, "tokens_total": tokens, "length": length}))[0]
    )
    mixed = {"reward": length, "tokens": np.random.default_rng(2).uniform(6e3, 9e3, N), "length": length}
    assert math.isnan(sampling_noise.per_step(made.run(mixed))[0])
    assert sampling_noise.of_reward(made.run({"reward": length}, rollouts=32)) is None
    assert sampling_noise.of_reward(made.run({"reward": length, "reward_std": 0 * length}, rollouts=32)) is None


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_a_short_decline(known: bool) -> None:
    """0.88 to 0.55 in 40 rows with noise of 0.08: found with rollouts known, else never explained away."""
    settings = {"rollouts": 32, "group": 4} if known else {}
    found = 0
    for seed in range(20):
        reward = np.linspace(0.88, 0.55, 40) + 0.08 * np.random.default_rng([7, seed]).normal(size=40)
        run = made.run({"reward": reward, "reward_std_batch": np.full(40, 0.08 * math.sqrt(32))}, **settings)
        finding = next(f for f in diagnose(run) if f.fault == "reward decline")
        found += finding.p < 0.005
        assert finding.status != "excluded"
        assert "no more than noise" not in learning.of_run(run).sentence
    assert found >= 15 if known else found >= 5


def test_three_answers() -> None:
    """More than noise, no more than noise, and a change that only wandering can explain."""
    rng = np.random.default_rng(0)
    wanders = 0.5 + 0.1 * made.ar1(rng, 60, 0.95) + 0.02 * rng.normal(size=60)
    said = learning.of_run(made.run({"reward": wanders}))
    assert said.verdict == "unknown"
    assert "which may be slow random drift (a longer run or the number of rollouts" in said.sentence
    noise = 0.08 * rng.normal(size=60)
    assert "no more than noise explains" in learning.of_run(made.run({"reward": 0.5 + noise})).sentence
    assert learning.of_run(made.run({"reward": np.linspace(0.2, 0.8, 60) + noise})).verdict == "up"
