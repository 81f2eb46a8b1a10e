"""Small batches and objectives that tests share: unequal lengths, empty rows, holes, both clips reached."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from grposcope.lab.objectives import recipes
from grposcope.lab.objectives.surrogates import Clip
from grposcope.lab.rollout_batch import RolloutBatch


@dataclass(frozen=True)
class Case:
    """logp, old, ref: (B, T) float64 log-probabilities under the policy, the one that sampled, the reference."""

    name: str
    rollouts: RolloutBatch
    logp: Tensor
    old: Tensor
    ref: Tensor


def case(name: str, rewards: list[list[float]], mask: list[str], spread: float, seed: int) -> Case:
    """`mask` has a row of 1 and 0 per rollout; `spread` is how far, in nats, the policies lie apart."""
    kept = torch.tensor([[c == "1" for c in row] for row in mask])
    random = torch.Generator().manual_seed(seed)

    def noise() -> Tensor:
        return torch.randn(kept.shape, generator=random, dtype=torch.float64)

    logp = -noise().abs() - 0.1
    old, ref = logp + spread * noise(), logp + 0.5 * noise()
    tokens = torch.randint(3, 20, kept.shape, generator=random)
    prompts = torch.randint(3, 20, (len(rewards), 4), generator=random).repeat_interleave(len(rewards[0]), 0)
    rollouts = RolloutBatch(
        prompt_ids=prompts,
        prompt_mask=torch.ones_like(prompts, dtype=torch.bool),
        tokens=tokens,
        mask=kept,
        logp=old * kept,
        entropy=noise().abs() * kept,
        truncated=torch.zeros(len(kept), dtype=torch.bool),
        rewards=torch.tensor(rewards, dtype=torch.float64),
    )
    return Case(name, rollouts, logp, old, ref)


LENGTHS = ["111111", "110000", "111000", "100000", "000000", "111110", "111100", "111111"]

CASES = [
    case("binary", [[1, 0, 0, 1], [0, 1, 1, 1]], LENGTHS, spread=1.2, seed=23),
    case("graded", [[0.2, 0.9], [1.5, 0.3], [0.0, 0.7]], ["1111", "1000", "0000", "1110", "1111", "1100"], 1.2, seed=1),
    case("one group", [[0, 0, 1, 0, 1]], ["111", "100", "110", "111", "110"], spread=1.2, seed=2),
    case("dead group", [[1, 1, 1], [0, 1, 0], [0, 0, 0]], ["111", "110", "100"] * 3, spread=1.2, seed=3),
    case("holes", [[1, 0], [0, 1]], ["101101", "010000", "011110", "110011"], spread=1.2, seed=4),
    case("nearly fresh", [[1, 0, 0, 1], [0, 1, 1, 1]], LENGTHS, spread=2e-4, seed=5),
    case("fresh", [[1, 0, 0, 1], [0, 1, 1, 1]], LENGTHS, spread=0.0, seed=6),
]

# Every recipe, and variants with every further term an objective can have
OBJECTIVES = [
    *recipes.ALL.values(),
    replace(recipes.GRPO, name="grpo, kl", kl=0.1),
    replace(recipes.GRPO, name="grpo, weighted kl", kl=0.1, kl_weighted=True),
    replace(recipes.GSPO, name="gspo, weighted kl", kl=0.1, kl_weighted=True),
    replace(recipes.GRPO, name="grpo, dual clip", surrogate=Clip(bound=1.5)),
    replace(recipes.DAPO, name="dapo, entropy", entropy=0.1),
]
