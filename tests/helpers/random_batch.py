"""A batch of random rollouts that no model drew."""

from __future__ import annotations

import torch

from grposcope.lab.rollout_batch import RolloutBatch


def batch(prompts: int = 3, group: int = 2) -> RolloutBatch:
    """Random tokens of unequal lengths, with rewards that the first token decides."""
    random, width = torch.Generator().manual_seed(1), 6
    size = prompts * group
    lengths = torch.randint(2, width + 1, (size, 1), generator=random)
    tokens = torch.randint(3, 40, (size, width), generator=random)
    mask = torch.arange(width) < lengths
    prompt = torch.randint(3, 40, (prompts, 4), generator=random).repeat_interleave(group, 0)
    padded = torch.arange(4) >= torch.randint(0, 3, (prompts, 1), generator=random).repeat_interleave(group, 0)
    none = torch.zeros(mask.shape)
    return RolloutBatch(prompt * padded, padded, tokens * mask, mask, none, none, ~mask[:, 0],
                    (tokens[:, 0] % 2).double().reshape(prompts, group))  # fmt: skip
