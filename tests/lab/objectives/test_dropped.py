"""A rollout that left its group: every advantage and every recipe is what it would be without it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from closeness import within_ulps

from grposcope.lab.objectives import advantages, recipes
from grposcope.lab.rollout_batch import RolloutBatch

P, G, T = 3, 5, 4


def rewards() -> torch.Tensor:
    return torch.rand(P, G, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def dropped(given: torch.Tensor, *places: tuple[int, int]) -> torch.Tensor:
    out = given.clone()
    for place in places:
        out[place] = math.nan
    return out


BATCHWISE = ("batch_standardized", "shrunk", "whitened")


@pytest.mark.parametrize("name", [name for name in advantages.ALL if name not in BATCHWISE])
def test_advantages_of_a_group_are_those_of_the_smaller_group(name: str) -> None:
    function, given = advantages.ALL[name].function, rewards()
    found = function(dropped(given, (0, 2), (0, 4), (2, 0)))
    assert found[0, [2, 4]].tolist() == [0, 0]
    assert found[2, 0] == 0
    ulps = 4 if name == "exponential" else 0  # vectorized exponentials differ with the place in the array
    assert within_ulps(found[0, [0, 1, 3]], function(given[:1, [0, 1, 3]])[0], ulps)
    assert within_ulps(found[1], function(given[1:2])[0], ulps)
    assert within_ulps(found[2, 1:], function(given[2:, 1:])[0], ulps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_deviations_of_padded_groups_are_those_of_the_groups_alone_to_the_bit(dtype: torch.dtype) -> None:
    """Whatever the processor: both go through the same operations."""
    given = torch.rand(64, 12, dtype=dtype, generator=torch.Generator().manual_seed(5))
    sizes = [2 + p % 11 for p in range(64)]
    padded = given.where(torch.arange(12) < torch.tensor(sizes)[:, None], math.nan)
    found = advantages.standardized(padded)
    for p, size in enumerate(sizes):
        assert torch.equal(found[p, :size], advantages.standardized(given[p : p + 1, :size])[0]), size


@pytest.mark.parametrize("name", BATCHWISE)
def test_batchwise_advantages_take_the_mean_and_deviation_of_what_is_there(name: str) -> None:
    """The same rollout dropped from every group leaves a batch of smaller groups."""
    function, given = advantages.ALL[name].function, rewards()
    found = function(dropped(given, (0, 1), (1, 3), (2, 0)))
    kept = torch.stack([given[0, [0, 2, 3, 4]], given[1, [0, 1, 2, 4]], given[2, 1:]])
    expected = function(kept)
    torch.testing.assert_close(found[0, [0, 2, 3, 4]], expected[0])
    torch.testing.assert_close(found[1, [0, 1, 2, 4]], expected[1])
    torch.testing.assert_close(found[2, 1:], expected[2])


@pytest.mark.parametrize("name", list(advantages.ALL))
def test_one_left_or_none_has_no_advantage(name: str) -> None:
    found = advantages.ALL[name].function(dropped(rewards(), *((0, i) for i in range(4)), *((1, i) for i in range(5))))
    assert found.isfinite().all()
    assert not found[1].any()
    if advantages.ALL[name].needs_group:
        assert not found[0].any()
        assert found[2].any()


def test_dead_groups_are_those_whose_remaining_rewards_are_equal() -> None:
    given = torch.tensor([[1.0, math.nan, 1], [0, math.nan, 1], [math.nan, math.nan, 1], [math.nan] * 3])
    assert advantages.dead(given).tolist() == [True, False, True, True]


def rollouts(given: torch.Tensor, mask: torch.Tensor) -> RolloutBatch:
    tokens = torch.zeros(mask.shape, dtype=torch.long)
    zero = torch.zeros(mask.shape)
    truncated = torch.zeros(len(mask), dtype=torch.bool)
    return RolloutBatch(tokens, mask, tokens, mask, zero, zero, truncated, given)


@pytest.mark.parametrize("name", list(recipes.ALL))
def test_token_weights_are_those_of_the_batch_without_the_rollout(name: str) -> None:
    """A rollout dropped from every group; the batch of G − 1 has the same weights on all others."""
    recipe = recipes.ALL[name].at_length(T)
    given = rewards()
    mask = torch.arange(T)[None] < torch.randint(1, T + 1, (P * G, 1), generator=torch.Generator().manual_seed(2))
    logp = -torch.rand(P * G, T, generator=torch.Generator().manual_seed(3))
    old = logp + 0.1 * torch.rand(P * G, T, generator=torch.Generator().manual_seed(4))
    reference = logp - 0.1
    out = [0 * G + 1, 1 * G + 3, 2 * G + 0]
    stay = [row for row in range(P * G) if row not in out]
    cleared = mask.clone()
    cleared[out] = False
    gone = dropped(given, (0, 1), (1, 3), (2, 0))
    whole = replace(recipe, kl=0.1)  # rows without advantage take part in the divergence
    found = whole.weights(logp, old, rollouts(gone, cleared), logp_ref=reference)
    expected = whole.weights(
        logp[stay], old[stay], rollouts(given.reshape(-1)[stay].reshape(P, G - 1), mask[stay]), logp_ref=reference[stay]
    )
    torch.testing.assert_close(found[stay], expected)
    assert not found[out].any()
