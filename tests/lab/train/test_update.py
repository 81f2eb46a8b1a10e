"""One optimiser step against the plain way: autograd through the loss of the whole batch."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch

from grposcope.lab.objectives import Objective, recipes
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.sampling.logprobs import token_logprobs
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.train.update import TokenTerms, update


class Letters(Arithmetic):
    """Graded reward that differs between rollouts of a random model."""

    def reward(self, problem, completion):
        return sum(c.isalpha() for c in completion) / 8


@pytest.fixture
def rollouts(policy: Policy) -> RolloutBatch:
    task = Letters(size=40)
    made = collect(policy, task, task.problems("train"), recipes.GRPO, Sampling(8), (4, 4), seed=0, position=0)
    rewards = made.rollouts.rewards.clone()
    rewards[1] = 0.5  # a dead group
    return replace(made.rollouts, rewards=rewards)


def moved(policy: Policy) -> Policy:
    """The policy a few updates later, so that ratios differ from 1 and clips bite."""
    later = replace(policy, model=copy.deepcopy(policy.model))
    stream = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in later.model.parameters():
            parameter.add_(0.03 * torch.randn(parameter.shape, generator=stream))
    return later


def gradient(
    policy: Policy, objective: Objective, rollouts: RolloutBatch, terms: TokenTerms, size: int
) -> list[torch.Tensor]:
    """Minus the parameter change of one SGD step with learning rate 1."""
    model = copy.deepcopy(policy.model)
    before = [p.detach().clone() for p in model.parameters()]
    update(model, torch.optim.SGD(model.parameters(), lr=1.0), objective, rollouts, terms, 1.0, 0.0, size)
    return [b - p.detach() for b, p in zip(before, model.parameters(), strict=True)]


VARIANTS = [
    *[recipe.at_length(8) for recipe in recipes.ALL.values()],
    replace(recipes.GRPO, kl=0.3, kl_weighted=True),
    replace(recipes.GRPO, entropy=0.1),
]


@pytest.mark.parametrize("size", [100, 3])
@pytest.mark.parametrize("objective", VARIANTS, ids=lambda o: f"{o.name}-kl{o.kl}-h{o.entropy}")
def test_gradient_is_that_of_the_loss(policy: Policy, rollouts: RolloutBatch, objective: Objective, size: int) -> None:
    later = moved(policy)
    old = frozen_logprobs(policy.model, rollouts, 1.0, 5)
    terms = TokenTerms(objective.token_advantages(rollouts), old, old if objective.kl else None)
    ours = gradient(later, objective, rollouts, terms, size)

    logp, entropy = token_logprobs(later.model, rollouts, torch.arange(16), entropy=True)
    loss = objective.loss(logp, old, rollouts, logp_ref=old, entropy=entropy)
    plain = torch.autograd.grad(loss, list(later.model.parameters()), allow_unused=True)
    scale = max(float(g.abs().max()) for g in plain if g is not None)
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b, atol=1e-4 * scale, rtol=1e-3)


def test_fresh_rollouts_have_ratio_one(policy: Policy, rollouts: RolloutBatch) -> None:
    credit = recipes.GRPO.token_advantages(rollouts)
    implicit = gradient(policy, recipes.GRPO, rollouts, TokenTerms(credit, None, None), 100)
    old = frozen_logprobs(policy.model, rollouts, 1.0, 100)
    explicit = gradient(policy, recipes.GRPO, rollouts, TokenTerms(credit, old, None), 100)
    for a, b in zip(implicit, explicit, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


def test_dead_groups_take_no_part_but_count_in_the_scale(policy: Policy, rollouts: RolloutBatch) -> None:
    model = copy.deepcopy(policy.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    done = update(
        model,
        optimizer,
        recipes.GRPO,
        rollouts,
        TokenTerms(recipes.GRPO.token_advantages(rollouts), None, None),
        1.0,
        0.0,
        99,
    )
    live = int((recipes.GRPO.token_advantages(rollouts) != 0).any(-1).sum())
    assert done.trained == live <= 12
    with_kl = replace(recipes.GRPO, kl=0.1)
    old = frozen_logprobs(model, rollouts, 1.0, 99)
    done = update(
        model, optimizer, with_kl, rollouts, TokenTerms(with_kl.token_advantages(rollouts), None, old), 1.0, 0.0, 99
    )
    assert done.trained == 16
    assert done.kl == pytest.approx(0, abs=1e-9)


def test_reported_figures(policy: Policy, rollouts: RolloutBatch) -> None:
    later = moved(policy)
    old = frozen_logprobs(policy.model, rollouts, 1.0, 99)
    new = frozen_logprobs(later.model, rollouts, 1.0, 99)
    credit, mask = recipes.GRPO.token_advantages(rollouts), rollouts.mask
    optimizer = torch.optim.SGD(later.model.parameters(), lr=0.0)
    done = update(later.model, optimizer, recipes.GRPO, rollouts, TokenTerms(credit, old, None), 1.0, 0.0, 5)
    ratio = (new - old).exp()
    trained = mask & (credit != 0).any(-1, keepdim=True)
    assert done.clip_low == pytest.approx(float(((ratio < 0.8) & (credit < 0) & mask).sum() / mask.sum()))
    assert done.clip_high == pytest.approx(float(((ratio > 1.2) & (credit > 0) & mask).sum() / mask.sum()))
    assert done.clip_low > 0
    assert done.clip_high > 0
    k3 = (old - new).exp() - 1 - (old - new)
    assert done.kl_old == pytest.approx(float(k3[trained].mean()), rel=1e-4)
    assert done.loss == pytest.approx(float(recipes.GRPO.loss(new, old, rollouts)), rel=1e-4, abs=1e-6)
    assert math.isnan(done.kl)


def test_gradient_norm_is_clipped(policy: Policy, rollouts: RolloutBatch) -> None:
    terms = TokenTerms(100 * recipes.GRPO.token_advantages(rollouts), None, None)
    model = copy.deepcopy(policy.model)
    before = [p.detach().clone() for p in model.parameters()]
    done = update(model, torch.optim.SGD(model.parameters(), lr=1.0), recipes.GRPO, rollouts, terms, 1.0, 0.5, 99)
    change = math.sqrt(sum(float((b - p).square().sum()) for b, p in zip(before, model.parameters(), strict=True)))
    assert done.grad_norm > 0.5
    assert change == pytest.approx(0.5, rel=1e-4)


def test_a_gradient_that_is_not_finite_is_not_applied(policy: Policy, rollouts: RolloutBatch) -> None:
    credit = recipes.GRPO.token_advantages(rollouts)
    credit[0, 0] = math.inf
    model = copy.deepcopy(policy.model)
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    done = update(model, optimizer, recipes.GRPO, rollouts, TokenTerms(credit, None, None), 1.0, 1.0, 99)
    assert not math.isfinite(done.grad_norm)
    assert all(torch.equal(b, p) for b, p in zip(before, model.parameters(), strict=True))
