"""What listed policies of texts (`test_merging.Listed`) say of each of their rollouts: log π, Σπ², exact values."""

from __future__ import annotations

from collections.abc import Callable

import torch
from test_merging import Credit, Listed
from torch import Tensor

PerRow = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Rows of the list (B,), mask (B, T) and rewards (P, G) to credit (B, T)."""


def by_row(listed: Listed, credit: PerRow) -> Credit:
    """A credit that is told which of the listed rollouts each row is, as `Listed.expected` calls it."""
    known = {text: i for i, text in enumerate(listed.texts)}

    def called(tokens: Tensor, ends: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
        texts = [tuple(row[keep].tolist()) for row, keep in zip(tokens, mask, strict=True)]
        return credit(torch.tensor([known[text] for text in texts]), mask, rewards)

    return called


def collision(listed: Listed, logits: Tensor) -> Tensor:
    """Σπ² of the distribution of every token, (N, T)."""
    return logits.softmax(-1).square().sum(-1)[listed.place] * listed.mask


def exact_values(listed: Listed, logits: Tensor) -> Tensor:
    """V(s_t) before every token by summing over all texts that begin as this one, (N, T)."""
    logp = listed.token_logp(logits)
    values = torch.zeros(listed.mask.shape, dtype=torch.float64)
    for i, text in enumerate(listed.texts):
        for t in range(len(text)):
            same = torch.tensor([other[:t] == text[:t] and len(other) > t for other in listed.texts])
            left = logp[:, t:].sum(-1).exp() * same
            values[i, t] = (left * listed.rewards).sum() / left.sum()
    return values
