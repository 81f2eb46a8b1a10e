"""Credit spread by position and entropy, and the placebo of a credit."""

from __future__ import annotations

import torch
from cases import CASES

from grposcope.lab.credit import SOURCES, placebo, shaped
from grposcope.lab.objectives import recipes

LIVE = CASES[0].rollouts


def test_position_weighs_by_what_is_still_to_come() -> None:
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()
    sums = torch.tensor([1 + 0.5 + 0.25, 1 + 0.5, 1.0]).double()
    given = shaped._position_weights(mask, 0.5)
    torch.testing.assert_close(given[0, :3], sums / sums.mean())
    assert given[1].tolist() == [1, 0, 0, 0]
    assert not given[2].any()


def test_entropy_weighs_by_the_policys_doubt() -> None:
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()
    entropy = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 9.0]])
    given = shaped._entropy_weights(entropy, mask)
    torch.testing.assert_close(given[0], torch.tensor([1.0, 0.0, 2.0]).double())
    assert given[1].tolist() == [1, 1, 0]


def test_shaped_credit_keeps_the_sum_of_outcome_credit() -> None:
    outcome = recipes.GRPO.token_advantages(LIVE, torch.float64)
    for given in (
        SOURCES["position"].assign(recipes.GRPO, LIVE, decay=0.9),
        SOURCES["entropy"].assign(recipes.GRPO, LIVE),
    ):
        torch.testing.assert_close(given.sum(-1), outcome.sum(-1), rtol=1e-12, atol=1e-12)
        assert not given[~LIVE.mask].any()


def test_a_placebo_has_the_same_values_on_other_tokens() -> None:
    holes = CASES[4].rollouts
    for rollouts in (LIVE, holes):
        credit = torch.randn(rollouts.mask.shape, generator=torch.Generator().manual_seed(5)).double() * rollouts.mask
        given = placebo.permuted(credit, rollouts.tokens, rollouts.mask)
        assert not given[~rollouts.mask].any()
        assert not torch.equal(given, credit)
        for row, other, keep in zip(given, credit, rollouts.mask, strict=True):
            torch.testing.assert_close(row[keep].sort().values, other[keep].sort().values)
        torch.testing.assert_close(placebo.permuted(credit, rollouts.tokens, rollouts.mask), given)
