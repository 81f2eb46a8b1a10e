"""Log-probabilities with the prompt read once per group, against plain forwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from grposcope.instruments.gradient.retokenize import _token_moments
from grposcope.lab.policies import Policy, recompute_activations
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.accumulate import accumulate, frozen_logprobs
from grposcope.lab.sampling.logprobs import token_logprobs

P, G, S, T = 3, 4, 6, 7


@pytest.fixture
def rollouts() -> RolloutBatch:
    stream = torch.Generator().manual_seed(0)
    prompt_mask = torch.ones(P, S, dtype=torch.bool)
    prompt_mask[1, :3] = False
    ids = torch.randint(3, 60, (P, S), generator=stream).masked_fill(~prompt_mask, 0)
    lengths = torch.tensor([7, 1, 3, 5] * P)
    mask = torch.arange(T) < lengths[:, None]
    tokens = torch.randint(3, 60, (P * G, T), generator=stream).masked_fill(~mask, 0)
    zeros = torch.zeros(P * G, T)
    return RolloutBatch(
        prompt_ids=ids.repeat_interleave(G, 0),
        prompt_mask=prompt_mask.repeat_interleave(G, 0),
        tokens=tokens,
        mask=mask,
        logp=zeros,
        entropy=zeros,
        truncated=torch.zeros(P * G, dtype=torch.bool),
        rewards=torch.zeros(P, G, dtype=torch.float64),
    )


def naive(policy: Policy, rollouts: RolloutBatch, row: int, temperature: float) -> tuple[Tensor, Tensor]:
    """Row's log-probs and entropies by a plain forward without padding, (t,) each."""
    prompt = rollouts.prompt_ids[row][rollouts.prompt_mask[row]]
    tokens = rollouts.tokens[row][rollouts.mask[row]]
    logits = policy.model(torch.cat((prompt, tokens))[None]).logits[0, len(prompt) - 1 : -1]
    logp = (logits / temperature).log_softmax(-1)
    return logp.gather(-1, tokens[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt_neox"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_values(family: str, temperature: float, make_policy, rollouts: RolloutBatch) -> None:
    policy = make_policy(family)
    rows = torch.tensor([11, 0, 5, 6])  # any rows in any order
    logp, entropy = token_logprobs(policy.model, rollouts, rows, temperature, entropy=True)
    assert entropy is not None
    for index, row in enumerate(rows.tolist()):
        expected, nats = naive(policy, rollouts, row, temperature)
        torch.testing.assert_close(logp[index, : len(expected)], expected, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(entropy[index, : len(expected)], nats, atol=2e-5, rtol=1e-4)
        assert logp[index, len(expected) :].abs().sum() == 0


def test_gradient_is_that_of_plain_forwards(policy: Policy, rollouts: RolloutBatch) -> None:
    weights = torch.randn(P * G, T, generator=torch.Generator().manual_seed(2))
    parameters = list(policy.model.parameters())
    logp, _ = token_logprobs(policy.model, rollouts, torch.arange(P * G))
    ours = torch.autograd.grad((weights * logp).sum(), parameters)
    total = sum(
        (weights[row, : int(rollouts.mask[row].sum())] * naive(policy, rollouts, row, 1.0)[0]).sum()
        for row in range(P * G)
    )
    plain = torch.autograd.grad(total, parameters)
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_activation_checkpointing_changes_nothing(policy: Policy, rollouts: RolloutBatch) -> None:
    rows = torch.arange(P * G)
    plain, _ = token_logprobs(policy.model, rollouts, rows)
    recompute_activations(policy.model)
    policy.model.train()
    checkpointed, _ = token_logprobs(policy.model, rollouts, rows)
    torch.testing.assert_close(checkpointed, plain, atol=2e-5, rtol=1e-4)
    checkpointed.sum().backward()
    assert all(p.grad is not None for p in policy.model.parameters())


def test_what_is_masked_has_no_say(policy: Policy, rollouts: RolloutBatch) -> None:
    rows = torch.arange(P * G)
    before, _ = token_logprobs(policy.model, rollouts, rows)
    rollouts.tokens[~rollouts.mask] = 17
    rollouts.prompt_ids[~rollouts.prompt_mask] = 23
    after, _ = token_logprobs(policy.model, rollouts, rows)
    torch.testing.assert_close(before, after, atol=1e-6, rtol=1e-6)


def with_tools(rollouts: RolloutBatch) -> RolloutBatch:
    """The rollouts with the second token of each that has three or more written by a tool, and two rows' third too."""
    mask = rollouts.mask.clone()
    mask[rollouts.mask.sum(-1) >= 3, 1] = False
    mask[:2, 2] = False
    mask[1] = rollouts.mask[1]
    return replace(rollouts, mask=mask)


def test_text_of_tools_is_read_and_not_predicted(policy: Policy, rollouts: RolloutBatch) -> None:
    """Log-probabilities, entropies and gradients of the other tokens are those of the whole sequence."""
    holes = with_tools(rollouts)
    assert holes.has_holes
    assert not rollouts.has_holes
    rows = torch.tensor([0, 2, 3, 1, 7])
    logp, entropy = token_logprobs(policy.model, holes, rows, 0.7, entropy=True)
    whole, nats = token_logprobs(policy.model, rollouts, rows, 0.7, entropy=True)
    assert entropy is not None
    assert nats is not None
    mask = holes.mask[rows]
    torch.testing.assert_close(logp, whole.where(mask, 0.0), atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(entropy, nats.where(mask, 0.0), atol=2e-5, rtol=1e-4)
    fitted, plain = (_token_moments(policy.model, own, 0.7) for own in (holes, rollouts))
    torch.testing.assert_close(fitted.logp, plain.logp.where(holes.mask, 0.0), atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(fitted.logp[rows], logp, atol=2e-5, rtol=1e-4)


def test_updates_on_masks_with_holes(policy: Policy, rollouts: RolloutBatch) -> None:
    """The gradient of a batch with text of tools is that of weights that are 0 there, by whatever engine."""
    holes, rows = with_tools(rollouts), torch.arange(P * G)
    weights = torch.randn(P * G, T, generator=torch.Generator().manual_seed(3)) * holes.mask
    found = []
    for batch in (holes, rollouts):
        policy.model.zero_grad()
        accumulate(policy.model, batch, rows, 1.0, 4, lambda part, _: weights[part])
        found.append([p.grad.clone() for p in policy.model.parameters() if p.grad is not None])
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        frozen_logprobs(policy.model, holes, 1.0, 5), frozen_logprobs(policy.model, rollouts, 1.0, 5) * holes.mask,
        atol=2e-5, rtol=1e-4,
    )  # fmt: skip
