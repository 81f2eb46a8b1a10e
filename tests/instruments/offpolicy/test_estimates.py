"""Products of estimates from one pass of a model, against autograd, one token after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from geometry_models import batch as rollouts
from geometry_models import build, logprobs
from gradient_products import from_estimates
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.instruments.offpolicy import error, estimates
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.maths.corrections import ALL, FULL, named
from grposcope.maths.importance import Ratios


def drawn(spread: float, seed: int = 0) -> tuple[RolloutBatch, Ratios]:
    """Rollouts in groups of four, the rewards of the second all equal, and ratios of their tokens."""
    batch = rollouts(prompts=4, group=4)
    rewards = torch.tensor([[0.0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1], [0.5, 0, 1, 0.2]], dtype=torch.float64)
    batch = replace(batch, rewards=rewards)
    rng = np.random.default_rng(seed)
    logs = [rng.normal(0, spread, int(n)) for n in batch.lengths]
    sampler = [np.log(rng.uniform(0.1, 0.9, len(one))) for one in logs]
    return batch, Ratios.of(logs, (rewards - rewards.mean(-1, keepdim=True)).numpy().reshape(-1), sampler)


def token_scores(model: Any, batch: RolloutBatch) -> list[NDArray]:
    """∇ log π of every token of every rollout, (T, D) each, a backward pass per token."""
    found = []
    for row in range(len(batch.mask)):
        logp = logprobs(model, batch, row)
        own = [torch.autograd.grad(one, list(model.parameters()), retain_graph=True, allow_unused=True) for one in logp]
        found.append(np.stack([
            torch.cat([torch.zeros_like(p).flatten() if g is None else g.flatten()
                       for g, p in zip(grads, model.parameters(), strict=True)]).numpy()
            for grads in own
        ]))  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("family", "spread", "digits"), [("llama", 0.7, 1e-6), ("gpt2", 0.7, 1e-9), ("gpt2", 0.01, 1e-9)]
)
def test_products_are_those_of_autograd_token_by_token(family: str, spread: float, digits: float) -> None:
    """digits: relative; the norms of Llama are taken in float32."""
    model, (batch, ratios) = build(family), drawn(spread)
    scores, shares = token_scores(model, batch), error.leave_one_out(batch.rewards.numpy()).reshape(-1) / 4

    def prompts(correction: Any) -> NDArray:
        pieces = np.split(correction.coefficients(ratios), ratios.starts[1:])
        rows = [u * (c @ s) for u, c, s in zip(shares, pieces, scores, strict=True)]
        return np.array(rows).reshape(4, 4, -1).sum(1)

    found = estimates.measure(model, batch, ratios, ALL)
    full = prompts(FULL)
    for one in ALL:
        due = from_estimates(prompts(one), full)
        scale = np.abs(due.full).max()
        for name in ("own", "cross", "full"):
            assert getattr(found.products[one.name], name) == pytest.approx(getattr(due, name), abs=digits * scale)
        size = max(1e2 * digits * np.abs(due.difference).max(), 1e-13 * scale)
        assert found.products[one.name].difference == pytest.approx(due.difference, abs=size)
    norms = np.array([np.linalg.norm(s.sum(0)) for s in scores])
    assert found.norms[:4] == pytest.approx(norms[:4], rel=digits)
    assert np.isnan(found.norms[4:8]).all(), "of a group with equal rewards nothing is taken"


def test_a_small_bias_keeps_its_digits_in_float32() -> None:
    batch, ratios = drawn(1e-4)
    whole, short = (
        estimates.measure(build("gpt2").to(dtype), batch, ratios, ALL, check=False)
        for dtype in (torch.float64, torch.float32)
    )
    for name in ("token_ratio", "none"):
        due, found = (one.products[name].difference for one in (whole, short))
        assert np.abs(due).max() < 1e-4 * np.abs(whole.products[name].own).max()
        assert found == pytest.approx(due, abs=1e-3 * np.abs(due).max())


def test_copies_are_of_rollouts_that_a_bound_reaches() -> None:
    """One token of one rollout lies above the caps: one copy for the ratio of each rollout, one for each bound."""
    batch, _ = drawn(0.1)
    logs = [np.full(int(n), 1e-3) for n in batch.lengths]
    for one in logs:
        one[0] = -1e-3
    logs[8][0] = 1.0
    ratios = Ratios.of(logs)
    few = [named(name) for name in ("none", "token_ratio", "token_cap", "sequence_cap", "full")]
    found = estimates.measure(build("llama"), batch, ratios, few, check=False)
    assert found.copies == sum(not 4 <= i < 8 for i in range(len(logs))) + 1


def test_equal_rewards_are_refused() -> None:
    batch, ratios = drawn(0.1)
    equal = replace(batch, rewards=torch.ones_like(batch.rewards))
    with pytest.raises(UserError, match="equal rewards"):
        estimates.measure(build("llama"), equal, ratios, ALL)
