"""The turn Gram matrix of a small model against a backward pass for each turn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_policies import make_policy, policy

from grposcope.core.errors import UserError
from grposcope.instruments.gradient import turns
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.logprobs import token_logprobs

__all__ = ["make_policy", "policy"]

P, G, S, T = 2, 4, 4, 7
RUNS = ([0, 0, -1, 1, 1, -1, 2], [0, -1, -1, 1, 1, 1, -1], [0, 0, 0, -1, -1, -1, -1], [0, -1, 1, -1, 2, 2, -1])
"""Turn of each token of the rollouts of a group."""


@pytest.fixture
def rollouts() -> RolloutBatch:
    stream = torch.Generator().manual_seed(0)
    number = torch.tensor(RUNS).repeat(P, 1)
    mask = number >= 0
    zeros = torch.zeros(P * G, T)
    paid = torch.where(mask & ~torch.nn.functional.pad(mask[:, 1:], (0, 1)), 1.0 + torch.arange(T), 0.0)
    return RolloutBatch(
        prompt_ids=torch.randint(3, 60, (P, S), generator=stream).repeat_interleave(G, 0),
        prompt_mask=torch.ones(P * G, S, dtype=torch.bool),
        tokens=torch.randint(3, 60, (P * G, T), generator=stream),
        mask=mask,
        logp=zeros,
        entropy=zeros,
        truncated=torch.zeros(P * G, dtype=torch.bool),
        rewards=torch.randn(P, G, generator=stream, dtype=torch.float64),
        token_annotations={"step_rewards": paid.double(), "step_ends": paid > 0},
    )


def naive(policy: Policy, rollouts: RolloutBatch, prompt: int) -> np.ndarray:
    """(G, H, D): the gradient of the log-probability of every turn, 0 for turns that were not taken."""
    parameters = [p for p in policy.model.parameters() if p.requires_grad]
    scores = []
    for row in range(prompt * G, prompt * G + G):
        logp, _ = token_logprobs(policy.model, rollouts, torch.tensor([row]))
        own = torch.tensor(RUNS[row % G])[: logp.shape[1]]
        for turn in range(3):
            if not bool((own == turn).any()):
                scores.append(torch.zeros(sum(p.numel() for p in parameters)))
                continue
            parts = torch.autograd.grad((logp[0] * (own == turn)).sum(), parameters, retain_graph=True)
            scores.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(scores).reshape(G, 3, -1).double().numpy()


def test_turns_are_told_by_the_mask(rollouts: RolloutBatch) -> None:
    assert turns._of_tokens(rollouts).tolist() == [*map(list, RUNS), *map(list, RUNS)]
    assert turns.several(rollouts)
    assert not turns.several(replace(rollouts, mask=torch.arange(T) < torch.tensor([[3]] * P * G)))


def test_products_of_turns(policy: Policy, rollouts: RolloutBatch) -> None:
    found = turns.measure(policy.model, rollouts)
    for prompt in range(P):
        scores = naive(policy, rollouts, prompt)
        wanted = np.einsum("ihd,jkd->ihjk", scores, scores)
        np.testing.assert_allclose(found[prompt], wanted, atol=1e-4 * np.abs(wanted).max())


def test_the_credit_of_turns(rollouts: RolloutBatch) -> None:
    found = turns._credits(rollouts, 3)
    np.testing.assert_array_equal(found[turns.WHOLE][..., 0], rollouts.rewards)
    np.testing.assert_array_equal(found[turns.TO_GO][0], [[14.0, 12.0, 7.0], [7.0, 6.0, 0.0], [3.0, 0.0, 0.0],
                                                          [10.0, 9.0, 6.0]])  # fmt: skip
    assert [*turns._credits(replace(rollouts, token_annotations={}), 3)] == [turns.WHOLE]


def test_savings_of_a_model(policy: Policy, rollouts: RolloutBatch) -> None:
    found = turns.savings(rollouts, turns.measure(policy.model, rollouts))
    assert {*found.ratio} == {turns.WHOLE, turns.TO_GO}
    assert sum(share.value for share in found.share) == pytest.approx(1, abs=1e-9)


def test_rollouts_without_a_trained_token(policy: Policy, rollouts: RolloutBatch) -> None:
    with pytest.raises(UserError, match="no rollout has a token that is trained on"):
        turns.measure(policy.model, replace(rollouts, mask=torch.zeros_like(rollouts.mask)))
