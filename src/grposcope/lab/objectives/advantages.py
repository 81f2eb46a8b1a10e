"""Advantages: what a rollout's reward is compared with.

Every function maps rewards (..., P, G) or (..., G) to advantages of the same shape, the last axis
being the group: one reward per rollout gives one advantage per rollout. With a score
`s_i = ∇ log π(y_i | x)`, `g = ∇ E r` and `(1/G) Σ A_i s_i` as the gradient estimate, the docstrings
say what its expectation is.

Degenerate groups: where all rewards of a group are equal every group-relative advantage is 0 and
the group contributes nothing (`dead`). A group of one (G = 1) has no baseline: the group-relative
functions refuse it.

A reward of NaN is that of a rollout that left its group: its advantage is 0, and those of the others are what they
would be in the smaller group without it. One that is left alone has no baseline, and the advantage 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from grposcope.core.capabilities import PAIRS, Capabilities, Comparison
from grposcope.core.errors import UserError


def none(rewards: Float[Tensor, "*P G"]) -> Float[Tensor, "*P G"]:
    """A = r, REINFORCE without a baseline (Williams 1992). Expectation g; any G."""
    return rewards.where(~rewards.isnan(), 0.0)


def centered(rewards: Float[Tensor, "*P G"]) -> Float[Tensor, "*P G"]:
    """A = r − r̄, the group mean as baseline (Dr. GRPO, arXiv:2503.20783). Expectation (G−1)/G · g.

    The mean contains the rollout's own reward, which shrinks the estimate by (G−1)/G and nothing else.
    """
    _needs_group(rewards)
    return _less_mean(rewards)


def leave_one_out(rewards: Float[Tensor, "*P G"]) -> Float[Tensor, "*P G"]:
    """A = r − mean of the others = G/(G−1) (r − r̄) (RLOO, arXiv:2402.14740). Expectation g: unbiased."""
    group = (~rewards.isnan()).sum(-1, keepdim=True).to(rewards)
    return centered(rewards) * (group / (group - 1).clamp(min=1))


def shrunk(rewards: Float[Tensor, "*P G"], centre: float = 0.0) -> Float[Tensor, "*P G"]:
    """A = r − b, b = c + λ (mean of the others − c): leave-one-out drawn towards c = `centre`. Expectation g: unbiased.

    λ = Σ (V−c)² / Σ [(V−c)² + Var r/(G−1)] over the *other* prompts of the batch, so it does not depend on the rollouts
    of its own: the least error where Cov(r, ‖s‖²) = 0 and prompts are alike. On prompts that are hardly ever solved the
    mean of the others is mostly noise. λ = 1, plain leave-one-out, for a prompt alone. A group of equal rewards
    contributes where they differ from c. Method of this project; its error for a fixed λ: `group_size.mse.shrunk`.
    """
    _needs_group(rewards)
    present = ~rewards.isnan()
    own = rewards.where(present, 0.0)
    count = present.sum(-1, keepdim=True).to(rewards)
    others = (own.sum(-1, keepdim=True) - own) / (count - 1).clamp(min=1)
    away = (own - centre).where(present, 0.0)
    squares = (away**2).sum(-1, keepdim=True)
    pairs = (count * (count - 1)).clamp(min=1)
    distance = (away.sum(-1, keepdim=True) ** 2 - squares) / pairs  # unbiased for (V − c)²
    noise = (squares - away.sum(-1, keepdim=True) ** 2 / count.clamp(min=1)) / (count - 1).clamp(min=1) ** 2
    if rewards.dim() < 2 or rewards.shape[-2] < 2:
        shrink = torch.ones_like(count)
    else:
        far, near = (distances.sum(-2, keepdim=True) - distances for distances in (distance, noise))
        shrink = _ratio(far.clamp(min=0), far.clamp(min=0) + near)
    baseline = centre + shrink * (others - centre)
    return (own - baseline).where(present & (count > 1), 0.0)


def standardized(rewards: Float[Tensor, "*P G"], ddof: int = 1, eps: float = 1e-4) -> Float[Tensor, "*P G"]:
    """A = (r − r̄) / (σ + ε), GRPO (arXiv:2402.03300). Biased: prompts are re-weighted.

    ddof is that of σ: 1 in TRL, verl and OpenRLHF, 0 in some others; ε is 1e-4, 1e-6 or 1e-9.
    For binary rewards with success rate p, ddof 0 and ε = 0 the expectation is w_G(p) · g with
    w_G(p) = E[√(K/G (1−K/G))] / (p(1−p)), K ~ Bin(G, p): rare successes count for more.
    """
    return _ratio(centered(rewards), _deviation(rewards, ddof) + eps)


def batch_standardized(
    rewards: Float[Tensor, "*P G"], ddof: int = 1, eps: float = 1e-4, deviation: Float[Tensor, ""] | None = None
) -> Float[Tensor, "*P G"]:
    """A = (r − group mean) / (σ of the whole batch + ε) (arXiv:2508.08221, and TRL's scale_rewards="batch").

    One common scale, so prompts keep their relative weight; it still depends on the batch drawn. deviation: σ, where
    `rewards` are not the whole batch.
    """
    return _ratio(centered(rewards), (_deviation(rewards.reshape(-1), ddof) if deviation is None else deviation) + eps)


def mean_normalized(rewards: Float[Tensor, "*P G"], eps: float = 1e-6) -> Float[Tensor, "*P G"]:
    """A = (r − r̄) / (r̄ + ε), for rewards ≥ 0 (MaxRL, arXiv:2602.02710).

    For binary rewards this is the mean score of the successes minus the mean score of all, an
    estimate of ∇ log V(x) instead of ∇V(x). All-zero groups give 0.
    """
    _needs_group(rewards)
    if bool((rewards < 0).any()):
        raise UserError("mean-normalised advantages need rewards ≥ 0; shift the rewards or use another recipe")
    return _ratio(centered(rewards), _mean(rewards) + eps)


def exponential(rewards: Float[Tensor, "*P G"], temperature: float = 1.0) -> Float[Tensor, "*P G"]:
    """A = (r − r̄) e^{(r − r̄)/τ}: good rollouts weigh more, bad ones less (RED-Weight of arXiv:2509.24203)."""
    plain = centered(rewards)
    return plain * (plain / temperature).exp()


def whitened(rewards: Float[Tensor, "*P G"], ddof: int = 1, eps: float = 1e-4) -> Float[Tensor, "*P G"]:
    """A = (r − batch mean) / (σ of the batch + ε), one baseline for all prompts (REINFORCE++, PPO practice). Any G.

    The baseline does not know the prompt, so advantages of a group need not sum to zero.
    """
    flat = rewards.reshape(-1)
    return _ratio(_less_mean(flat).reshape(rewards.shape), _deviation(flat, ddof) + eps)


def dead(rewards: Float[Tensor, "*P G"]) -> Bool[Tensor, "*P"]:
    """Groups whose rewards are all equal. For binary rewards its probability is p^G + (1−p)^G."""
    absent = rewards.isnan()
    return rewards.masked_fill(absent, -torch.inf).amax(-1) <= rewards.masked_fill(absent, torch.inf).amin(-1)


def _less_mean(rewards: Tensor) -> Tensor:
    """r − r̄ over the last axis; exactly 0 where all are equal, even if their mean rounds to another number."""
    return (rewards - _mean(rewards)).masked_fill(dead(rewards)[..., None] | rewards.isnan(), 0.0)


def _mean(rewards: Tensor) -> Tensor:
    """r̄ of the rewards that are present, over the last axis, which is kept; 0 where there is none."""
    return _of_present(rewards, lambda group: group.mean(-1, keepdim=True), least=1)


def _deviation(rewards: Tensor, ddof: int) -> Tensor:
    """σ of the rewards that are present, over the last axis, which is kept; 0 where there are too few."""
    return _of_present(rewards, lambda group: group.std(-1, keepdim=True, correction=ddof), least=ddof + 1)


def _of_present(rewards: Tensor, statistic: Callable[[Tensor], Tensor], least: int) -> Tensor:
    """A statistic over the last axis, which is kept, of the rewards that are present; 0 where fewer than `least` are.

    A padded group goes through the operations of the group alone, so that both have the same number to the last bit.
    """
    size, present = rewards.shape[-1], ~rewards.isnan()
    if size >= least and bool(present.all()):
        return statistic(rewards)
    groups = [row[here] for row, here in zip(rewards.reshape(-1, size), present.reshape(-1, size), strict=True)]
    each = [statistic(group) if len(group) >= least else rewards.new_zeros(1) for group in groups]
    return torch.stack(each).reshape(*rewards.shape[:-1], 1)


def _ratio(numerator: Tensor, scale: Tensor) -> Tensor:
    """numerator / scale, where 0/0 is 0: without ε a group of equal rewards still contributes nothing."""
    return numerator / scale.where(scale != 0, 1.0)


def _needs_group(rewards: Tensor) -> None:
    if rewards.shape[-1] < 2:
        raise UserError(
            "a group baseline needs at least two rollouts per prompt, got G = 1: its advantage would always be 0; "
            "draw groups of 2 or more, or use an advantage without a group baseline, as in recipe reinforce"
        )


@dataclass(frozen=True)
class Advantage:
    """An advantage by name. needs: what must be there for it, groups of 2 or more where it compares their rollouts.

    comparison: which theory of the best group size holds for it.
    """

    function: Callable[[Tensor], Tensor]
    needs: Capabilities = frozenset({PAIRS})
    comparison: Comparison = "unknown"

    @property
    def needs_group(self) -> bool:
        """Whether it compares the rollouts of a group."""
        return PAIRS in self.needs


ALL = {
    "none": Advantage(none, frozenset(), "no group"),
    "centered": Advantage(centered, comparison="leave-one-out"),
    "leave_one_out": Advantage(leave_one_out, comparison="leave-one-out"),
    "standardized": Advantage(standardized, comparison="standardized"),
    "batch_standardized": Advantage(batch_standardized, comparison="leave-one-out"),
    "mean_normalized": Advantage(mean_normalized),
    "exponential": Advantage(exponential),
    "whitened": Advantage(whitened, frozenset(), "no group"),
    "shrunk": Advantage(shrunk),
}
"""Name of a setting -> advantage."""


def entry(function: Callable[[Tensor], Tensor]) -> Advantage:
    """The entry of an objective's advantage, one of ALL or a `partial` of one; one that needs nothing for others."""
    plain = function.func if isinstance(function, partial) else function
    return next(
        (advantage for advantage in ALL.values() if advantage.function is plain), Advantage(function, frozenset())
    )
