"""An objective is a composition: advantage ∘ ratio ∘ surrogate ∘ reduction, plus KL, proximal term and entropy.

    L = − Σ_{i,t} c_{i,t} · surrogate(ρ_{i,t}, log π_{i,t}, A_{i,t})
        + kl · Σ c · divergence(log π, log π_ref)  +  proximal · Σ c · proximity(log π, log π_old)
        −  entropy · mean over tokens of H

The one seam through which everything else sees an objective is the per-token weight
w_{i,t} = ∂L/∂log π(y_{i,t}), shape (B, T): the gradient of L is Σ w ∇log π, whatever L is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from grposcope.core.capabilities import LOWER_CLIP, WEIGHTED_KL, Comparison, Part, factor
from grposcope.core.errors import UserError
from grposcope.lab.objectives import advantages, divergences, ratios, reductions
from grposcope.lab.objectives.surrogates import Cispo, Clip, Surrogate
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.maths.aggregation import Aggregation, Components, combine


@dataclass(frozen=True)
class Objective:
    """One objective as a value; `dataclasses.replace` makes a variant.

    name, paper, degenerate: what it is called, where it comes from, what happens at G = 1, equal
    rewards and empty masks. advantage … reduction: the factors, from the modules of those names.
    kl: weight of the divergence to a reference policy; with `kl_weighted` the divergence is
    multiplied by the ratio, which makes the expected gradient of k3 that of the KL.
    proximal: weight of `proximity`, a divergence that holds the policy to the old one without the ratio.
    entropy: weight of the entropy bonus. resample_dead: draw further prompts in place of groups
    whose rewards are all equal. overlong: share of the length limit over which `shaping.overlong`
    punishes, 0 for none. aggregation: how several rewards make the advantage, with its `weights`, in place
    of `advantage`; None where that is taken of their weighted sum.
    """

    name: str
    paper: str
    degenerate: str
    advantage: Callable[[Tensor], Tensor] = advantages.standardized
    ratio: Callable[[Tensor, Tensor, Tensor], Tensor] = ratios.token
    surrogate: Surrogate = Clip()  # noqa: RUF009 - immutable
    reduction: Callable[[Tensor], Tensor] = reductions.sequence_mean
    divergence: Callable[[Tensor, Tensor], Tensor] = divergences.k3
    kl: float = 0.0
    kl_weighted: bool = False
    proximal: float = 0.0
    proximity: Callable[[Tensor, Tensor], Tensor] = divergences.k2
    entropy: float = 0.0
    resample_dead: bool = False
    overlong: float = 0.0
    aggregation: Aggregation | None = None

    @property
    def comparison(self) -> Comparison:
        """How the advantages compare the rollouts of a group, in batches whose dead groups may have been replaced."""
        if self.aggregation is not None:
            return "unknown"
        own = advantages.entry(self.advantage).comparison
        if not self.resample_dead:
            return own
        return "dead groups replaced" if own == "standardized" else "unknown"

    def part(self) -> Part:
        """What the objective needs of an engine's loss: its factors."""
        needs = {factor("ratio", self.ratio), factor("surrogate", type(self.surrogate))}
        needs.add(factor("reduction", self.reduction.func if isinstance(self.reduction, partial) else self.reduction))
        if isinstance(self.surrogate, Cispo) and self.surrogate.low < 1:
            needs.add(LOWER_CLIP)
        if self.kl:
            needs |= {factor("divergence", self.divergence)} | ({WEIGHTED_KL} if self.kl_weighted else set())
        if self.proximal:
            needs.add(factor("term to the old policy", self.proximity))
        return Part(f"recipe {self.name}", "use another recipe", frozenset(needs))

    def token_advantages(self, rollouts: RolloutBatch, dtype: torch.dtype | None = None) -> Float[Tensor, "B T"]:
        """The advantage A_i of the outcome rewards on every token of rollout i, 0 where masked.

        dtype: float32 where it is not given.
        """
        dtype = torch.float32 if dtype is None else dtype
        return (self.rollout_advantages(rollouts).reshape(-1, 1) * rollouts.mask).to(dtype)

    def rollout_advantages(self, rollouts: RolloutBatch) -> Float[Tensor, "P G"]:
        """The advantage A_i of the outcome rewards of every rollout."""
        if self.aggregation is None:
            return self.advantage(rollouts.rewards)
        return _combined(rollouts, self.aggregation.weights, self.aggregation)

    def coefficients(self, rollouts: RolloutBatch) -> Float[Tensor, "B T"]:
        """The coefficients of the reduction over a whole batch, in float64.

        Rollouts that left their group, whose reward is NaN, are in no mean: theirs are 0, the others' as without them.
        Where groups carry weights, each counts by its own, however many rollouts it has (`row_weights`).
        """
        mask, present = rollouts.mask, ~rollouts.rewards.isnan().reshape(-1)
        if rollouts.weights is None and bool(present.all()):
            return self.reduction(mask)
        out = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
        out[present] = self.reduction(mask[present])
        return out if rollouts.weights is None else out * row_weights(rollouts)[:, None]

    def loss(
        self,
        logp: Float[Tensor, "B T"],
        logp_old: Float[Tensor, "B T"],
        rollouts: RolloutBatch,
        *,
        credit: Float[Tensor, "B T"] | None = None,
        logp_ref: Float[Tensor, "B T"] | None = None,
        entropy: Float[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, ""]:
        """The scalar to minimise over a whole batch.

        logp, logp_old, logp_ref: log-probabilities under the policy, the one that sampled, the
        reference. credit: advantages per token, by default those of the outcome rewards.
        entropy: per-token entropies, needed when the objective has an entropy bonus.
        """
        mask = rollouts.mask
        token_credit = self.token_advantages(rollouts, logp.dtype) if credit is None else credit
        total = self.partial_loss(
            logp, logp_old, mask, token_credit, self.coefficients(rollouts).to(logp.dtype), logp_ref
        )
        if self.entropy:
            if entropy is None:
                raise UserError(f"{self.name} has an entropy bonus; pass the per-token entropies to loss")
            total = total - self.entropy * (reductions.token_mean(mask) * entropy.where(mask, 0.0)).sum().to(logp.dtype)
        return total

    def weights(
        self,
        logp: Float[Tensor, "B T"],
        logp_old: Float[Tensor, "B T"],
        rollouts: RolloutBatch,
        *,
        credit: Float[Tensor, "B T"] | None = None,
        logp_ref: Float[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T"]:
        """w = ∂L/∂log π over a whole batch. The entropy bonus is no function of log π(y) and is left out."""
        mask = rollouts.mask
        token_credit = self.token_advantages(rollouts, logp.dtype) if credit is None else credit
        return self.partial_weights(
            logp, logp_old, mask, token_credit, self.coefficients(rollouts).to(logp.dtype), logp_ref
        )

    def partial_loss(
        self,
        logp: Float[Tensor, "b T"],
        logp_old: Float[Tensor, "b T"],
        mask: Bool[Tensor, "b T"],
        credit: Float[Tensor, "b T"],
        coefficients: Float[Tensor, "b T"],
        logp_ref: Float[Tensor, "b T"] | None = None,
    ) -> Float[Tensor, ""]:
        """All terms but the entropy of some rows of a batch; credit and coefficients are slices of the batch's."""
        # where, not a product: whatever stands in masked places, infinities included, has no say, gradients included
        logp, logp_old, credit = (a.where(mask, 0.0) for a in (logp, logp_old, credit))
        ratio = self.ratio(logp, logp_old, mask)
        terms = -self.surrogate(ratio, logp, credit)
        if self.kl:
            if logp_ref is None:
                raise UserError(f"{self.name} has a KL term; pass logp_ref, the reference's log-probabilities")
            divergence = self.divergence(logp, logp_ref.where(mask, 0.0))
            terms = terms + self.kl * (ratio * divergence if self.kl_weighted else divergence)
        if self.proximal:
            terms = terms + self.proximal * self.proximity(logp, logp_old)
        return (coefficients * terms).sum()

    def partial_weights(
        self,
        logp: Float[Tensor, "b T"],
        logp_old: Float[Tensor, "b T"],
        mask: Bool[Tensor, "b T"],
        credit: Float[Tensor, "b T"],
        coefficients: Float[Tensor, "b T"],
        logp_ref: Float[Tensor, "b T"] | None = None,
    ) -> Float[Tensor, "b T"]:
        """∂ `partial_loss` / ∂ logp."""
        with torch.enable_grad():
            leaf = logp.detach().requires_grad_()
            loss = self.partial_loss(leaf, logp_old.detach(), mask, credit, coefficients, logp_ref)
            return torch.autograd.grad(loss, leaf)[0]

    def at_length(self, limit: int) -> Objective:
        """The objective for completions of at most `limit` tokens, which only the reduction `constant_length` needs."""
        if self.reduction is not reductions.constant_length:
            return self
        return replace(self, reduction=partial(reductions.constant_length, length=limit))

    def describe(self) -> dict[str, Any]:
        """Everything that defines the objective, as plain JSON values, for the record of a run."""
        return {name: _plain(getattr(self, name)) for name in self.__dataclass_fields__}


def _combined(rollouts: RolloutBatch, weights: Sequence[float], how: Aggregation) -> Tensor:
    """Advantages (P, G) of the components of the rollouts, 0 for those that left their group.

    UserError for rollouts without components, and weights that do not fit.
    """
    if rollouts.components is None:
        raise UserError("these rollouts have one reward; an aggregation of several needs each of them")
    present = ~rollouts.rewards.isnan()
    parts = rollouts.components.where(present[..., None], torch.nan)
    names = tuple(str(j) for j in range(parts.shape[-1]))
    components = Components.of_groups(
        names, parts.double().numpy(force=True), rollouts.lengths.double().numpy(force=True)
    )
    made = combine(components, weights, how).advantages
    return torch.from_numpy(made).reshape(rollouts.rewards.shape).to(rollouts.rewards)


def row_weights(rollouts: RolloutBatch) -> Float[Tensor, " B"]:
    """What a row's coefficient is multiplied by so that group x counts w_x/P: w_x · B/(P G_x), 0 for absent rollouts.

    P and B are the groups and the rollouts that are present, G_x those of the group, w_x = `rollouts.weights`; the mean
    over P groups of their weights times their own means is then the objective. 1 everywhere without weights.
    """
    present = ~rollouts.rewards.isnan()
    if rollouts.weights is None:
        return present.reshape(-1).double()
    sizes = present.sum(-1, keepdim=True)
    share = present.sum() / ((sizes > 0).sum() * sizes.clamp(min=1)).double()
    return (rollouts.weights[:, None].double() * share * present).reshape(-1)


def _plain(value: Any) -> Any:
    if isinstance(value, partial):
        return {"function": value.func.__name__, **value.keywords}
    if is_dataclass(value) and not isinstance(value, type):
        return {"function": type(value).__name__.lower(), **asdict(value)}
    return value.__name__ if callable(value) else value
