"""How good forecasts of success rates are, beside the base rate and the difficulty alone; their record."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from allocators import scores
from allocators.forecasts import ComparedForecaster
from scipy.stats import beta


def simulated(
    forecaster: ComparedForecaster,
    truth: Callable[[int], np.ndarray],
    batches: int,
    rng: np.random.Generator,
    size: int = 32,
) -> dict[str, np.ndarray]:
    """Batches of 8 rollouts on problems drawn at random: forecasts made before, and what came out."""
    kept: list[dict[str, np.ndarray]] = []
    for t in range(batches):
        which = rng.choice(len(forecaster.problems), size, replace=False)
        rates, means = forecaster.rates(which), forecaster.means(which)
        k = rng.binomial(8, truth(t)[which]).astype(float)
        forecaster.learn(which, k, np.full(size, 8.0))
        kept.append({**means, "a": rates.a, "b": rates.b, "k": k, "n": np.full(size, 8.0), "problem": which,
                     "t": np.full(size, t), "truth": truth(t)[which]})  # fmt: skip
    return {name: np.concatenate([batch[name] for batch in kept]) for name in kept[0]}


def drifting(n: int, rng: np.random.Generator) -> tuple[np.ndarray, Callable[[int], np.ndarray]]:
    """Difficulty (n,) and true rates over time: the level rises, difficulty explains some, problems their own share."""
    difficulty, own = rng.normal(size=n), rng.normal(size=n)

    def truth(t: int) -> np.ndarray:
        return np.asarray(1 / (1 + np.exp(-(-1.5 + 0.02 * t - 0.8 * difficulty + 0.8 * own))))

    return difficulty, truth


def test_it_has_skill_over_base_rate_and_difficulty_and_is_calibrated_while_rates_drift() -> None:
    rng = np.random.default_rng(0)
    difficulty, truth = drifting(200, rng)
    forecaster = ComparedForecaster([str(i) for i in range(200)], difficulty, np.full(200, 12))
    out = simulated(forecaster, truth, 120, rng)
    later = {name: column[out["t"] >= 20] for name, column in out.items()}
    given = later["k"], later["n"], later["problem"]
    for reference in ("base", "difficulty"):
        assert scores.skill(later["forecast"], later[reference], *given).interval[0] > 0.02
    over_base = scores.skill(later["difficulty"], later["base"], *given)
    assert over_base.interval[0] > 0.02  # difficulty is no straw man here
    told = scores.calibration(later["forecast"], *given)
    assert 0.9 < told.slope < 1.1
    assert abs(told.intercept) < 0.1
    inside = np.mean([abs(b.forecast - b.observed.value) < 3 * b.observed.se for b in told.bins])
    assert inside >= 0.9
    width = beta.cdf(later["truth"], later["a"], later["b"])  # uniform for a calibrated posterior
    assert 0.85 < np.mean((width > 0.05) & (width < 0.95)) < 0.97


def test_brier_scores_equal_the_sum_over_single_rollouts() -> None:
    rewards = np.array([[1, 0, 0, 1], [0, 0, 0, 0]])
    f = np.array([0.3, 0.2])
    single = ((rewards - f[:, None]) ** 2).sum(1)
    assert scores.brier(f, rewards.sum(1), np.full(2, 4.0)) == pytest.approx(single)


def test_skill_is_0_against_itself_and_negative_for_noise() -> None:
    rng = np.random.default_rng(4)
    p = rng.uniform(0.1, 0.9, 300)
    k, n, problems = rng.binomial(8, p), np.full(300, 8.0), np.arange(300)
    assert scores.skill(p, p, k, n, problems).skill == 0
    assert scores.skill(rng.permutation(p), np.full(300, p.mean()), k, n, problems).interval[1] < 0
    extreme = 1 / (1 + np.exp(-3 * np.log(p / (1 - p))))
    assert scores.calibration(extreme, k, n, problems).slope_interval[1] < 0.6


def test_the_plain_forecasts_go_on_from_a_state_bit_for_bit() -> None:
    rng = np.random.default_rng(3)
    difficulty, truth = drifting(50, rng)
    whole, again = (ComparedForecaster([str(i) for i in range(50)], difficulty, np.full(50, 12)) for _ in range(2))
    simulated(whole, truth, 5, rng, 16)
    again.restore(json.loads(json.dumps(whole.state())))
    which = np.arange(50)
    for kind, means in whole.means(which).items():
        assert again.means(which)[kind].tolist() == means.tolist()
