"""Gradients of groups under many credits: against autograd, one credit at a time, and as short vectors."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from grposcope.core.errors import UserError
from grposcope.instruments.credit import gradients as credit_gradients
from grposcope.lab import policies
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.logprobs import token_logprobs
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.arithmetic import Arithmetic


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policies.load("tiny")


@pytest.fixture(scope="module")
def rollouts(policy: Policy) -> RolloutBatch:
    task = Arithmetic(steps=2)
    sampling = Sampling(task.max_tokens)
    return collect(policy, task, task.problems("train"), recipes.RLOO, sampling, (2, 3), 1, 0).rollouts


def whole_gradients(policy: Policy, rollouts: RolloutBatch, credits: torch.Tensor) -> torch.Tensor:
    """(V, P, D) by one backward pass each."""
    prompts, group = rollouts.groups
    found = []
    for given in credits:
        for p in range(prompts):
            rows = torch.arange(p * group, (p + 1) * group)
            logp, _ = token_logprobs(policy.model, rollouts, rows)
            total = (logp * given[rows][:, : logp.shape[1]] * rollouts.mask[rows][:, : logp.shape[1]]).sum() / group
            parts = torch.autograd.grad(total, list(credit_gradients.trainable(policy).values()))
            found.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(found).unflatten(0, (len(credits), prompts))


def some_credits(rollouts: RolloutBatch, count: int) -> torch.Tensor:
    drawn = torch.randn(count, *rollouts.mask.shape, generator=torch.Generator().manual_seed(0)).double()
    return torch.cat([drawn, drawn.sum(0, keepdim=True), 0 * drawn[:1]])  # the last two cost no backward pass


def test_gradients_are_those_of_autograd(policy: Policy, rollouts: RolloutBatch) -> None:
    """Kept in full, entry by entry; a credit of zeros has the gradient 0."""
    credits = some_credits(rollouts, 2)
    entries = sum(p.numel() for p in credit_gradients.trainable(policy).values())
    full = credit_gradients.Sketch(credit_gradients.trainable(policy), entries)
    found = credit_gradients.of_groups(policy, rollouts, credits, sketch=full)
    torch.testing.assert_close(found, whole_gradients(policy, rollouts, credits), rtol=1e-4, atol=1e-5)
    assert not found[-1].any()


def test_short_vectors_keep_inner_products(policy: Policy, rollouts: RolloutBatch) -> None:
    """Within four standard errors √(2/K) of the product of the norms, all ten products of four vectors."""
    credits = some_credits(rollouts, 2)[:2]
    whole = whole_gradients(policy, rollouts, credits).flatten(0, 1)
    kept = credit_gradients.of_groups(policy, rollouts, credits).flatten(0, 1)
    assert kept.shape[1] == credit_gradients.WIDTH < whole.shape[1]
    sizes = whole.norm(dim=1)
    off = (kept @ kept.T - whole @ whole.T) / (sizes[:, None] * sizes[None])
    assert float(off.abs().max()) < 4 * (2 / credit_gradients.WIDTH) ** 0.5
    assert float(off.abs().max()) > 0


def test_sketch_is_linear_and_signs_depend_on_the_name() -> None:
    parameters = {"a": torch.zeros(7, 11), "b": torch.zeros(50)}
    sketch, gradient = credit_gradients.Sketch(parameters, 13), torch.randn(50)
    once, twice, other = torch.zeros(13), torch.zeros(13), torch.zeros(13)
    sketch.add("b", gradient, once)
    sketch.add("b", 2 * gradient, twice)
    credit_gradients.Sketch({"a": parameters["a"], "c": parameters["b"]}, 13).add("c", gradient, other)
    torch.testing.assert_close(twice, 2 * once)
    assert not torch.allclose(once, other)
    signs = sketch._signs["b"].float()
    start = 77 % 13
    by_hand = torch.zeros(13).index_add(0, (torch.arange(50) + start) % 13, gradient * signs)
    torch.testing.assert_close(once, by_hand)


def test_dependent_credits_share_backward_passes() -> None:
    rows = torch.randn(2, 9).double()
    credits = torch.stack([rows[0], 3 * rows[0], rows[1], rows[0] - rows[1], 0 * rows[0]])
    basis, parts = credit_gradients._independent(credits)
    assert basis.shape == (2, 9)
    torch.testing.assert_close(parts @ basis, credits)
    torch.testing.assert_close(basis @ basis.T, torch.eye(2).double())
    assert len(credit_gradients._independent(torch.zeros(3, 4).double())[0]) == 0


def test_a_gradient_that_is_not_finite_is_refused(policy: Policy, rollouts: RolloutBatch) -> None:
    broken = policies.load("tiny")
    with torch.no_grad():
        next(iter(broken.model.parameters()))[:] = torch.nan
    one = replace(rollouts, rewards=rollouts.rewards)
    with pytest.raises(UserError, match="not finite"):
        credit_gradients.of_groups(broken, one, some_credits(rollouts, 1))
