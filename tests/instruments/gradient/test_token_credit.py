"""Credit over tokens: the prefix tree against a search, cancellation where it can be counted by hand."""

from __future__ import annotations

import pytest
import torch
from geometry_models import batch

from grposcope.instruments.gradient.probe import _token_credit


def test_sharers_are_the_rollouts_with_the_same_text_so_far() -> None:
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 2, (12, 5), generator=random)
    mask = torch.arange(5) < torch.randint(1, 6, (12, 1), generator=random)
    credit = _token_credit(ids, mask, torch.ones(12, 5), torch.ones(12, 5), group=6)
    for i in range(12):
        for t in range(5):
            same = sum(
                bool(mask[j, t]) and ids[j, : t + 1].tolist() == ids[i, : t + 1].tolist() and j // 6 == i // 6
                for j in range(12)
            )
            assert credit.sharers[i, t] == (same if mask[i, t] else 0)


def test_opposite_weights_cancel_on_what_is_shared_and_nowhere_else() -> None:
    ids = torch.tensor([[5, 6, 7], [5, 6, 8], [5, 9, 9], [5, 9, 9]])
    mask = torch.ones(4, 3, dtype=torch.bool)
    weights = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]]).expand(4, 3)
    credit = _token_credit(ids, mask, weights, torch.full((4, 3), 2.0), group=4)
    assert credit.mass.sum() == 24
    assert credit.net.tolist() == [[0, 0, 2], [0, 0, 2], [0, 0, 0], [0, 0, 0]]
    assert credit.cancelled == pytest.approx(1 - 4 / 24)
    assert credit.common == pytest.approx(4 * 2 / 24)
    assert credit.shared == pytest.approx(10 / 12)


def test_nothing_cancels_between_prompts_or_without_weights() -> None:
    ids, mask = torch.full((2, 3), 4), torch.ones(2, 3, dtype=torch.bool)
    weights = torch.tensor([[1.0], [-1.0]]).expand(2, 3)
    assert _token_credit(ids, mask, weights, torch.ones(2, 3), group=1).cancelled == 0
    assert _token_credit(ids, mask, 0 * weights, torch.ones(2, 3), group=2).cancelled != 0  # NaN: no gradient


def test_what_is_masked_has_no_say() -> None:
    rollouts = batch()
    weights, norms = torch.ones(rollouts.mask.shape), torch.rand(rollouts.mask.shape)
    plain = _token_credit(rollouts.tokens, rollouts.mask, weights, norms, 3)
    odd = _token_credit(
        rollouts.tokens.masked_fill(~rollouts.mask, 11),
        rollouts.mask,
        weights.masked_fill(~rollouts.mask, torch.nan),
        norms.masked_fill(~rollouts.mask, torch.inf),
        3,
    )
    torch.testing.assert_close(plain.net, odd.net)
    assert plain.cancelled == odd.cancelled
