"""k1, k2, k3 on a softmax over four tokens: every expectation is a sum over the tokens, hence exact.

As a value an estimator is judged by E k against KL(π ‖ π_ref); as a loss by E ∇k, the tokens held
as sampled, against ∇KL. The two disagree, which is what these tests pin down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from grposcope.lab.objectives import divergences
from grposcope.lab.objectives.recipes import GRPO

LOGITS = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64)
REFERENCE = torch.tensor([-0.5, 0.4, 0.2, 1.1], dtype=torch.float64).log_softmax(-1)
SAMPLER = torch.tensor([0.9, 0.2, -0.3, 0.0], dtype=torch.float64).log_softmax(-1)

Divergence = Callable[[Tensor, Tensor], Tensor]


def kl(first: Tensor, second: Tensor) -> Tensor:
    return (first.exp() * (first - second)).sum()


def derivative(value: Callable[[Tensor], Tensor]) -> Tensor:
    leaf = LOGITS.clone().requires_grad_()
    return torch.autograd.grad(value(leaf.log_softmax(-1)), leaf)[0]


FORWARD = derivative(lambda logp: kl(logp, REFERENCE))
REVERSE = derivative(lambda logp: kl(REFERENCE, logp))


def expected_value(divergence: Divergence) -> float:
    logp = LOGITS.log_softmax(-1)
    return float((logp.exp() * divergence(logp[:, None], REFERENCE[:, None])[:, 0]).sum())


def expected_gradient(divergence: Divergence) -> Tensor:
    return derivative(lambda logp: (logp.detach().exp() * divergence(logp[:, None], REFERENCE[:, None])[:, 0]).sum())


def test_formulas_at_one_token() -> None:
    logp, ref = torch.tensor([[math.log(0.2)]]), torch.tensor([[math.log(0.5)]])
    q = math.log(0.5 / 0.2)
    assert float(divergences.k1(logp, ref)) == pytest.approx(-q, rel=1e-6)
    assert float(divergences.k2(logp, ref)) == pytest.approx(q * q / 2, rel=1e-6)
    assert float(divergences.k3(logp, ref)) == pytest.approx(2.5 - 1 - q, rel=1e-6)


def test_values_k1_and_k3_are_unbiased_k2_is_not() -> None:
    truth = float(kl(LOGITS.log_softmax(-1), REFERENCE))
    assert truth > 0.1
    assert expected_value(divergences.k1) == pytest.approx(truth, rel=1e-12)
    assert expected_value(divergences.k3) == pytest.approx(truth, rel=1e-12)
    assert abs(expected_value(divergences.k2) - truth) > 0.01 * truth


def test_the_bias_of_k2_is_of_third_order() -> None:
    """Halving the distance to the reference divides E k2 − KL by 8."""

    def bias(step: float) -> float:
        logp = (REFERENCE + step * LOGITS).log_softmax(-1)
        value = (logp.exp() * divergences.k2(logp[:, None], REFERENCE[:, None])[:, 0]).sum()
        return float(value - kl(logp, REFERENCE))

    assert math.log2(bias(0.02) / bias(0.01)) == pytest.approx(3.0, abs=0.1)


def test_k1_can_be_negative_k2_and_k3_cannot() -> None:
    logp = LOGITS.log_softmax(-1)[:, None]
    assert float(divergences.k1(logp, REFERENCE[:, None]).min()) < 0
    assert float(divergences.k2(logp, REFERENCE[:, None]).min()) >= 0
    assert float(divergences.k3(logp, REFERENCE[:, None]).min()) >= 0


def test_gradients_are_the_other_way_round() -> None:
    torch.testing.assert_close(expected_gradient(divergences.k1), torch.zeros(4).double(), rtol=0, atol=1e-15)
    torch.testing.assert_close(expected_gradient(divergences.k2), FORWARD, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(expected_gradient(divergences.k3), REVERSE, rtol=1e-12, atol=1e-15)
    assert float((FORWARD - REVERSE).abs().max()) > 0.05


@pytest.mark.parametrize("sampler", [LOGITS.log_softmax(-1), SAMPLER], ids=["on policy", "old rollouts"])
@pytest.mark.parametrize(
    ("divergence", "truth"), [(divergences.k1, FORWARD), (divergences.k3, FORWARD)], ids=["k1", "k3"]
)
def test_with_the_ratio_the_gradient_is_that_of_the_kl(divergence: Divergence, truth: Tensor, sampler: Tensor) -> None:
    """`kl_weighted` through an objective without credit: the batch is the four tokens, weighted by the sampler."""
    objective = replace(GRPO, kl=1.0, kl_weighted=True, divergence=divergence)
    assert float((penalty_gradient(objective.partial_loss, sampler) - truth).abs().max()) < 1e-14


@pytest.mark.parametrize(("divergence", "truth"), [(divergences.k2, FORWARD), (divergences.k3, REVERSE)])
def test_without_the_ratio_the_objective_keeps_the_estimators_own_gradient(
    divergence: Divergence, truth: Tensor
) -> None:
    objective = replace(GRPO, kl=1.0, divergence=divergence)
    assert float((penalty_gradient(objective.partial_loss, LOGITS.log_softmax(-1)) - truth).abs().max()) < 1e-14


def penalty_gradient(partial_loss: Callable[..., Tensor], sampler: Tensor) -> Tensor:
    everywhere, no_credit = torch.ones(4, 1, dtype=torch.bool), torch.zeros(4, 1, dtype=torch.float64)
    chances = sampler.exp()[:, None]
    return derivative(
        lambda logp: partial_loss(logp[:, None], sampler[:, None], everywhere, no_credit, chances, REFERENCE[:, None])
    )
