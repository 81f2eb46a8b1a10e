"""verl's corrections for another sampler are ours, by its own code, and so are its measures of the distance.

verl's k1 is −log ρ, and its bounds `lower_upper` are held against e^k1: they are bounds of 1/ρ, where ours are of ρ.
They are the same only if lower × upper = 1. Its `token_k2`, `token_k3` keep an interval of ρ; what it keeps by the sum,
the mean or the maximum of k2 and k3 over a rollout has no counterpart here. It rounds to 24 binary digits, and cuts
log ρ and log w at ± 20.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq

from grposcope.instruments.offpolicy import distance
from grposcope.instruments.offpolicy.distance import of
from grposcope.maths.corrections import named
from grposcope.maths.importance import Ratios

pytest.importorskip("verl", reason="needs the extra verl: make test-verl")

from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

SPREADS = np.array([1e-3, 0.02, 0.3, 0.9])


@dataclass(frozen=True)
class Logged:
    """Log-probabilities of trainer and sampler as verl has them, (B, T), with the mask of the tokens."""

    trainer: torch.Tensor
    sampler: torch.Tensor
    mask: torch.Tensor

    @property
    def ratios(self) -> Ratios:
        """As we read them: the tokens of each rollout, end to end."""
        difference = (self.trainer.double() - self.sampler.double()).numpy()
        return Ratios.of([row[: int(n)] for row, n in zip(difference, self.mask.sum(1), strict=True)])


def logged(seed: int = 0, rollouts: int = 60) -> Logged:
    """Rollouts of 1 to 7 tokens with ratios near to and far from 1."""
    rng = np.random.default_rng(seed)
    mask = np.arange(7) < rng.integers(1, 8, rollouts)[:, None]
    sampler = -rng.exponential(size=mask.shape)
    trainer = sampler + rng.choice(SPREADS, (rollouts, 1)) * rng.normal(size=mask.shape)
    return Logged(torch.tensor(trainer).float(), torch.tensor(sampler).float(), torch.tensor(mask).long())


def by_verl(data: Logged, **options: Any) -> tuple[NDArray, dict[str, float]]:
    """verl's coefficient of every token (N,), its weight times its mask, and its metrics."""
    weights, mask, metrics = compute_rollout_correction_and_rejection_mask(
        data.trainer, data.sampler, data.mask, **{"rollout_is": None, **options}
    )
    found = torch.ones_like(data.trainer) if weights is None else weights.batch["rollout_is_weights"]
    return (found * mask)[data.mask.bool()].double().numpy(), metrics


def interval(limit: float) -> str:
    """Bounds of ρ within which ρ − 1 − log ρ ≤ limit."""
    low, high = (brentq(lambda x: math.exp(x) - 1 - x - limit, *ends, xtol=1e-15) for ends in ((-9.0, 0.0), (0.0, 9.0)))
    return f"{math.exp(low)!r},{math.exp(high)!r}"


ANY = 1e6
"""A bound that no ratio reaches."""

# our name: verl's options
SAME: dict[str, dict[str, Any]] = {
    "none": {},
    "token_ratio": {"rollout_is": "token", "rollout_is_threshold": ANY},
    "token_cap:2": {"rollout_is": "token", "rollout_is_threshold": 2.0},
    "icepop:0.5,1.5": {"rollout_is": "token", "rollout_is_threshold": "0.5_1.5"},
    f"icepop:{1 / 1.6},2": {
        "rollout_is": "token", "rollout_is_threshold": ANY, "rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_1.6",
    },
    f"icepop:{math.exp(-math.sqrt(0.2))!r},{math.exp(math.sqrt(0.2))!r}": {
        "rollout_is": "token", "rollout_is_threshold": ANY, "rollout_rs": "token_k2", "rollout_rs_threshold": 0.1,
    },
    f"icepop:{interval(0.05)}": {
        "rollout_is": "token", "rollout_is_threshold": ANY, "rollout_rs": "token_k3", "rollout_rs_threshold": 0.05,
    },
    "sequence_cap:2": {"rollout_is": "sequence", "rollout_is_threshold": 2.0},
    "full": {"rollout_is": "sequence", "rollout_is_threshold": ANY},
    "sequence_mask:3": {"rollout_is": "sequence", "rollout_is_threshold": "1e-9_3"},
    "sequence_rejection:0.5,2": {"rollout_rs": "seq_sum_k1", "rollout_rs_threshold": "0.5_2"},
    "sequence_rejection:0.4,2": {"rollout_rs": "seq_sum_k1", "rollout_rs_threshold": "0.5_2.5"},
    f"geometric_band:{1 / 1.001!r},{1 / 0.999!r}": {
        "rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.999_1.001"
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_coefficients_are_those_of_verl(name: str) -> None:
    data = logged()
    theirs, _ = by_verl(data, **SAME[name])
    ours = named(name).coefficients(data.ratios)
    assert theirs == pytest.approx(ours, rel=3e-6, abs=0)
    assert np.any(ours > 0)


def test_the_bounds_are_reached_and_no_two_coincide() -> None:
    """Otherwise one comparison would pass on another's formula."""
    ratios = logged().ratios
    found = {name: named(name).coefficients(ratios) for name in SAME}
    for i, first in enumerate(SAME):
        for second in list(SAME)[i + 1 :]:
            assert np.abs(found[first] - found[second]).max() > 0.1, (first, second)


@pytest.mark.parametrize(("option", "ours"), [("seq_sum_k1", "sequence_rejection"), ("seq_mean_k1", "geometric_band")])
def test_bounds_of_verl_are_of_the_inverse_ratio(option: str, ours: str) -> None:
    """With 0.5_4 verl keeps ratios from 0.25 to 2, and drops one of 3."""
    data = logged(1, 400)
    theirs, _ = by_verl(data, rollout_rs=option, rollout_rs_threshold="0.5_4")
    assert np.array_equal(theirs, named(f"{ours}:0.25,2").coefficients(data.ratios))
    assert not np.array_equal(theirs, named(f"{ours}:0.5,4").coefficients(data.ratios))


def test_distances_are_those_of_verl() -> None:
    """kl is k1 and k3_kl is k3, per token; chi2_seq is χ² of rollouts; 1 + chi2_token is (mean ρ)² ÷ ESS of tokens."""
    data = logged(2)
    _, metrics = by_verl(data)
    ratios = data.ratios
    found = distance.measure(ratios, np.arange(len(ratios.lengths)))
    assert metrics["rollout_corr/kl"] == pytest.approx(found.k1.value, rel=1e-5)
    assert metrics["rollout_corr/k3_kl"] == pytest.approx(found.k3.value, rel=1e-5)
    assert metrics["rollout_corr/chi2_seq"] == pytest.approx(found.chi2.value, rel=1e-5)
    of_tokens = (1 + metrics["rollout_corr/chi2_token"]) * found.ess_token
    assert of_tokens == pytest.approx(found.ratio.value**2, rel=1e-5)


def test_the_effective_sample_size_of_verl_is_that_of_truncated_weights() -> None:
    """Ours of what the cap leaves is verl's, and that of the raw ratios lies below it: the cap hides the mismatch.

    Of rollouts of one length: verl counts a rollout's weight once per token.
    """
    rng = np.random.default_rng(5)
    sampler = torch.tensor(-rng.exponential(size=(300, 5))).float()
    data = Logged(sampler + torch.tensor(rng.normal(0, 0.6, (300, 5))).float(), sampler, torch.ones(300, 5).long())
    ratios, prompts = data.ratios, np.arange(300)
    for name in ("token_cap:2", "sequence_cap:2"):
        metrics = by_verl(data, **SAME[name])[1]
        theirs = metrics["rollout_corr/rollout_is_eff_sample_size"]
        assert theirs == pytest.approx(of(named(name), ratios, prompts).ess, rel=1e-5)
        assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx(
            of(named(name), ratios, prompts).weight.value, rel=1e-5
        )
    assert distance.measure(ratios, prompts).ess.value < 0.7 * theirs


def test_verl_cuts_ratios_at_e_to_the_20() -> None:
    """Far beyond it our χ² goes on to grow, and verl's does not."""
    sampler = torch.zeros(2, 4)
    data = Logged(torch.tensor([[0.0] * 4, [10.0] * 4]), sampler, torch.ones(2, 4).long())
    assert by_verl(data)[1]["rollout_corr/chi2_seq"] == pytest.approx((1 + math.exp(40)) / 2, rel=1e-4)
    assert distance.measure(data.ratios, np.arange(2)).chi2.value == pytest.approx((1 + math.exp(80)) / 2, rel=1e-9)
