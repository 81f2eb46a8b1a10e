"""Corrections against loops over tokens, against closed forms, and by listing every completion."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from grposcope.core.errors import UserError
from grposcope.instruments.offpolicy.distance import _mean_of_kept, of
from grposcope.maths.corrections import ALL, Correction
from grposcope.maths.importance import Ratios, effective
from reference.offpolicy_policies import World

BY_NAME = {one.name: one for one in ALL}


def one_by_one(name: str, rho: list[float], advantage: float, mu: list[float]) -> list[float]:
    """c_t of one rollout as the definitions say it, without arrays."""
    w, mean = math.prod(rho), math.prod(rho) ** (1 / len(rho))
    return {
        "none": [1.0 for _ in rho],
        "token_ratio": rho,
        "token_cap:2": [min(r, 2) for r in rho],
        "token_mask:3": [r if r <= 3 else 0 for r in rho],
        "icepop:0.5,5": [r if 0.5 <= r <= 5 else 0 for r in rho],
        "one_sided:0.2": [float(r <= 1.2 if advantage > 0 else r >= 0.8) for r in rho],
        "prefix_ratio": [math.prod(rho[: t + 1]) for t in range(len(rho))],
        "sequence_cap:2": [min(w, 2) for _ in rho],
        "sequence_mask:3": [w if w <= 3 else 0 for _ in rho],
        "sequence_rejection:0.5,2": [float(0.5 <= w <= 2) for _ in rho],
        "geometric_band:0.999,1.001": [float(0.999 <= mean <= 1.001) for _ in rho],
        "ppo_clip:0.2,0.2,3": [0 if (r > 1.2 if advantage > 0 else r < 0.8 or r > 3) else r for r in rho],
        "probability_band:0.2,0.2": [
            0 if (r * m - m > 0.2 if advantage > 0 else r * m - m < -0.2) else r for r, m in zip(rho, mu, strict=True)
        ],
        "gspo:0.0003,0.0004": [0 if (mean > 1.0004 if advantage > 0 else mean < 0.9997) else mean for _ in rho],
        "full": [w for _ in rho],
    }[name]


@pytest.mark.parametrize("correction", ALL, ids=lambda one: one.name)
def test_equal_to_the_definition_token_by_token(correction: Correction) -> None:
    rng = np.random.default_rng(0)
    spreads = (*([0.7] * 40), *([1e-4] * 10), *([5e-4] * 60))
    logs = [rng.normal(0, spread, rng.integers(1, 6)) for spread in spreads]
    advantages = rng.normal(size=len(logs))
    sampler = [np.log(rng.uniform(0.1, 0.9, len(one))) for one in logs]
    found = correction.coefficients(Ratios.of(logs, advantages, sampler))
    rows = zip(logs, advantages, sampler, strict=True)
    due = np.concatenate(
        [one_by_one(correction.name, np.exp(log).tolist(), a, np.exp(m).tolist()) for log, a, m in rows]
    )
    assert found == pytest.approx(due, rel=1e-9)
    assert correction.name == "none" or np.mean(np.abs(found - 1) > 1e-6) > 0, "the test has to reach the bounds"


@pytest.mark.parametrize("name", ["none", "token_ratio", "prefix_ratio", "full"])
def test_uncut_coefficients_have_mean_1_under_the_sampler(name: str) -> None:
    """Sum over every completion of probability × coefficient of its first and of its last token."""
    world = World(apart=0.8)
    for x in range(world.prompts):
        ratios = Ratios.of(world.log_ratios[x])
        coefficients = BY_NAME[name].coefficients(ratios)
        assert world.sampled[x] @ coefficients[ratios.starts] == pytest.approx(1.0)
    if name != "token_ratio":
        last = coefficients[ratios.starts + ratios.lengths - 1]
        assert world.sampled[x] @ last == pytest.approx(1.0)


@pytest.mark.parametrize("tokens", [500, 2000])
def test_share_of_weight_of_a_product_mask_is_the_closed_form(tokens: int) -> None:
    s = 0.02
    rng = np.random.default_rng(tokens)
    logs = [rng.normal(-s * s / 2, s, tokens) for _ in range(2000)]
    found = of(BY_NAME["sequence_mask:3"], Ratios.of(logs), np.arange(2000))
    due = float(ndtr((math.log(3) - tokens * s * s / 2) / (s * math.sqrt(tokens))))
    assert abs(found.weight.value - due) < 4 * found.weight.se


def lengthy(rng: np.random.Generator) -> tuple[Ratios, NDArray]:
    lengths = rng.integers(100, 3000, 900)
    return Ratios.of([rng.normal(-2e-4, 0.02, n) for n in lengths]), np.arange(900)


def test_opposite_length_biases_of_product_mask_and_geometric_band() -> None:
    ratios, prompts = lengthy(np.random.default_rng(1))
    mask, band = (of(BY_NAME[name], ratios, prompts) for name in ("sequence_mask:3", "geometric_band:0.999,1.001"))
    assert mask.thirds is not None
    assert band.thirds is not None
    assert mask.thirds[0] > mask.thirds[2] + 0.1
    assert band.thirds[0] < band.thirds[2] - 0.1
    for one in (mask, band):
        assert one.shares is not None
        assert sum(one.shares) == pytest.approx(1)


def test_equal_lengths_have_no_thirds() -> None:
    found = of(BY_NAME["full"], Ratios.of([np.zeros(5)] * 9), np.arange(9))
    assert found.thirds is None
    assert found.weight.value == 1
    assert found.ess == pytest.approx(1)


def test_effective_sample_size_of_a_few_weights() -> None:
    assert effective(np.array([1.0, 1, 1, 1])) == pytest.approx(1)
    assert effective(np.array([3.0, 0, 0, 0])) == pytest.approx(1 / 4)
    assert effective(np.array([1.0, 3.0])) == pytest.approx(16 / 20)
    assert effective(np.zeros(3)) == 0


def test_standard_error_is_by_prompt() -> None:
    """Ten rollouts of a prompt that agree are one observation."""
    values, prompts = np.repeat([1.0, 2, 3, 4], 10), np.repeat(np.arange(4), 10)
    assert _mean_of_kept(values, prompts).se == pytest.approx(np.std([1, 2, 3, 4], ddof=1) / 2)


def test_weights_of_very_long_completions_stay_finite() -> None:
    ratios = Ratios.of([np.full(5000, 0.5), np.full(5000, -0.5)])
    for correction in ALL:
        if not correction.of_advantage:
            found = of(correction, ratios, np.arange(2))
            assert math.isfinite(found.weight.value)
            assert 0 <= found.ess <= 1


def test_ratios_that_are_none() -> None:
    for bad in ([], [np.array([])], [np.array([0.1, np.nan])], [np.array([-np.inf])]):
        with pytest.raises(UserError):
            Ratios.of(bad)
    with pytest.raises(ValueError, match="advantages"):
        BY_NAME["one_sided:0.2"].coefficients(Ratios.of([np.zeros(2)]))
    with pytest.raises(ValueError, match="sampler"):
        BY_NAME["probability_band:0.2,0.2"].coefficients(Ratios.of([np.zeros(2)], np.ones(1)))
