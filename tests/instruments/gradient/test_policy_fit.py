"""The test whether rollouts are a policy's own: its distribution where they are, and its size where they are not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from grposcope.core.errors import UserError
from grposcope.instruments.gradient.retokenize import _excess, _token_moments, _TokenMoments
from grposcope.lab import policies
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.arithmetic import Arithmetic


def drawn(logits: torch.Tensor, count: int, seed: int, scale: float = 1.0) -> tuple[_TokenMoments, torch.Tensor]:
    """`count` tokens from `logits`·scale of a random row each, with their moments under `logits`."""
    generator = torch.Generator().manual_seed(seed)
    rows = logits[torch.randint(len(logits), (count,), generator=generator)]
    chosen = torch.multinomial((rows * scale).softmax(-1), 1, generator=generator)
    logp = rows.log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1)
    variance = (logp.exp() * logp**2).sum(-1) - entropy**2
    picked = logp.gather(-1, chosen)[:, 0]
    return _TokenMoments(picked[None], entropy[None], variance[None]), torch.ones(1, count, dtype=torch.bool)


def test_z_of_own_draws_is_standard_normal() -> None:
    logits = 2 * torch.randn(50, 30, generator=torch.Generator().manual_seed(9))
    z = torch.tensor([_excess(*drawn(logits, 400, seed))[1] for seed in range(500)])
    assert abs(z.mean()) < 3 / math.sqrt(500)
    assert 0.88 < z.std() < 1.12
    assert z.abs().max() < 5


@pytest.mark.parametrize(("scale", "sign"), [(0.5, -1), (2.0, 1)])
def test_draws_at_another_temperature_are_told_by_the_sign(scale: float, sign: int) -> None:
    logits = 2 * torch.randn(50, 30, generator=torch.Generator().manual_seed(9))
    estimate, z = _excess(*drawn(logits, 400, 0, scale))
    assert sign * z > 5
    assert estimate.value / estimate.se == pytest.approx(z)


def test_masked_tokens_have_no_say_and_a_certain_policy_says_nothing() -> None:
    some, mask = drawn(torch.randn(50, 30), 100, 0)
    mask[0, 50:] = False
    spoiled = _TokenMoments(*(part.where(mask, math.inf) for part in (some.logp, some.entropy, some.variance)))
    first = _TokenMoments(*(part[:, :50] for part in (some.logp, some.entropy, some.variance)))
    assert _excess(spoiled, mask) == _excess(first, mask[:, :50])
    zero = torch.zeros(1, 3)
    estimate, z = _excess(_TokenMoments(zero, zero, zero), torch.ones(1, 3, dtype=torch.bool))
    assert math.isnan(z)
    assert estimate.flag == "the policy is certain of every token"


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policies.load("tiny")


@pytest.fixture(scope="module")
def batch(policy: Policy) -> RolloutBatch:
    task = Arithmetic()
    return collect(policy, task, task.problems("train"), recipes.GRPO, Sampling(20, 0.8), (6, 4), 0, 0).rollouts


def test_moments_are_those_of_the_sampler_and_of_the_definition(policy: Policy, batch: RolloutBatch) -> None:
    found = _token_moments(policy.model, batch, 0.8)
    torch.testing.assert_close(found.logp, batch.logp, atol=3e-5, rtol=1e-4)
    torch.testing.assert_close(found.entropy, batch.entropy, atol=3e-5, rtol=1e-4)
    ids = torch.cat([batch.prompt_ids[3][batch.prompt_mask[3]], batch.tokens[3][batch.mask[3]]])[None]
    with torch.no_grad():
        logp = (policy.model(ids).logits[0, int(batch.prompt_mask[3].sum()) - 1 : -1] / 0.8).log_softmax(-1)
    centred = logp - (logp.exp() * logp).sum(-1, keepdim=True)
    expected = (logp.exp() * centred**2).sum(-1)
    torch.testing.assert_close(found.variance[3][batch.mask[3]], expected, atol=1e-4, rtol=1e-3)
    in_pieces = _token_moments(policy.model, batch, 0.8, budget=1)
    torch.testing.assert_close(in_pieces.variance, found.variance, atol=1e-4, rtol=1e-4)
    assert abs(_excess(found, batch.mask)[1]) < 4


def test_completions_of_other_prompts_are_far_off(policy: Policy, batch: RolloutBatch) -> None:
    shifted = replace(batch, prompt_ids=batch.prompt_ids.roll(4, 0), prompt_mask=batch.prompt_mask.roll(4, 0))
    estimate, z = _excess(_token_moments(policy.model, shifted, 0.8), batch.mask)
    assert z < -30
    assert estimate.value < -1


def test_weights_that_overflowed_are_refused(policy: Policy, batch: RolloutBatch) -> None:
    class Broken(torch.nn.Module):
        config = policy.model.config

        def forward(self, **given: torch.Tensor) -> object:
            out = policy.model(**given)
            out.logits = out.logits * math.nan
            return out

    with pytest.raises(UserError, match="its weights have overflowed"):
        _token_moments(Broken(), batch, 1.0)
