"""One optimiser step on one part of a batch: log-probabilities → per-token weights w → gradient → step.

The gradient of any objective is Σ w ∇log π, so the backward pass starts from (w · log π).sum().
Rollouts whose weights are all zero, those of dead groups among them, are left out of it: exact, and cheaper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from grposcope.lab.objectives import Objective, divergences, reductions
from grposcope.lab.objectives.objective import row_weights
from grposcope.lab.rollout_batch import RolloutBatch, rows_of_groups
from grposcope.lab.sampling.accumulate import accumulate
from grposcope.lab.train.moved_weights import MovedWeights


@dataclass(frozen=True)
class Update:
    """Result of an optimiser step.

    grad_norm: before clipping; not finite means that the step was not taken. kl: mean k3 estimate
    of the divergence to the reference, NaN without one. kl_old: the same to the policy that
    ratios are to. clip_low, clip_high: shares of tokens held by the clip. trained: rollouts that took
    part, in the `rows` of what was given, (trained,), with the log-probabilities `logp` (trained, T) that the loss was
    taken at and the `weights` (trained, T) = ∂L/∂log π that the backward pass began from. kl and kl_old are
    means over the tokens of those, the clip shares over all tokens. moved: share of the sampled weights that the step
    changed (`moved_weights`).
    """

    loss: float
    grad_norm: float
    kl: float
    kl_old: float
    clip_low: float
    clip_high: float
    trained: int
    moved: float = math.nan
    rows: Tensor | None = None
    logp: Tensor | None = None
    weights: Tensor | None = None


@dataclass(frozen=True)
class TokenTerms:
    """Constants of a batch while it is trained on, all (B, T): credit, old and reference log-probabilities.

    credit: times the coefficients of the correction, where there is one. old is None where the batch is used for one
    step only and was sampled with the weights as they are: the policy that sampled is the current one.
    reference is None without a KL term. trainer: log-probabilities of the policy that trains when the batch comes to
    it, where another may have drawn it, else None.
    """

    credit: Tensor
    old: Tensor | None = None
    reference: Tensor | None = None
    trainer: Tensor | None = None

    def take(self, prompts: Tensor, group: int) -> TokenTerms:
        """The rows of the groups `prompts` (indices into P)."""
        rows = rows_of_groups(prompts, group)
        others = (None if a is None else a[rows] for a in (self.old, self.reference, self.trainer))
        return TokenTerms(self.credit[rows], *others)


def update(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    objective: Objective,
    rollouts: RolloutBatch,
    terms: TokenTerms,
    temperature: float,
    clip_grad: float,
    micro_batch: int,
) -> Update:
    """Take one optimiser step on `rollouts`, in pieces of at most `micro_batch`.

    Where `terms.old` is None the rollouts are fresh: the policy that sampled is the current one,
    and the ratio is exactly 1.
    """
    optimizer.zero_grad()
    mask = rollouts.mask
    coefficients = objective.coefficients(rollouts).float()  # of the whole batch, so that its pieces add up
    bonus = objective.entropy * reductions.token_mean(mask) if objective.entropy else None
    if bonus is not None and rollouts.weights is not None:
        bonus = bonus * row_weights(rollouts)[:, None]
    everyone = bool(objective.kl or objective.proximal) or bonus is not None
    taking = (
        (mask.any(-1) if rollouts.weights is not None else torch.ones_like(mask[:, 0]))
        if everyone
        else (terms.credit != 0).any(-1)
    )
    rows = taking.nonzero()[:, 0]

    def given(rows: Tensor, logp: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        """What the objective takes for some rows: log π, old log π, mask, credit, coefficients, reference log π."""
        old = logp if terms.old is None else terms.old[rows]
        reference = None if terms.reference is None else terms.reference[rows]
        return logp, old, mask[rows], terms.credit[rows], coefficients[rows], reference

    taken_weights = torch.zeros(mask.shape, device=mask.device)

    def weigh(rows: Tensor, logp: Tensor) -> Tensor:
        found = objective.partial_weights(*given(rows, logp))
        taken_weights[rows] = found.float()
        return found

    logp, entropy = accumulate(model, rollouts, rows, temperature, micro_batch, weigh, bonus)
    norm, moved = _step(model, optimizer, clip_grad)
    logp, old, taken, credit, _, reference = part = given(rows, logp)
    loss = float(objective.partial_loss(*part)) - (0.0 if bonus is None else float((bonus[rows] * entropy).sum()))
    low, high = objective.surrogate.held(objective.ratio(logp, old, taken), credit)
    tokens, all_tokens = max(int(taken.sum()), 1), max(int(mask.sum()), 1)
    return Update(
        loss=loss,
        grad_norm=norm,
        kl=math.nan if reference is None else float((divergences.k3(logp, reference) * taken).sum()) / tokens,
        kl_old=float((divergences.k3(logp, old) * taken).sum()) / tokens,
        clip_low=float((low & taken).sum()) / all_tokens,
        clip_high=float((high & taken).sum()) / all_tokens,
        trained=len(rows),
        moved=moved,
        rows=rows,
        logp=logp,
        weights=taken_weights[rows],
    )


def _step(model: PreTrainedModel, optimizer: torch.optim.Optimizer, clip_grad: float) -> tuple[float, float]:
    """Clip, step and free the gradient; returns the norm before clipping, and the share of weights that moved.

    A gradient that is not finite is not applied.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    for parameter in parameters:
        if parameter.grad is None:  # nothing to learn from, but the momentum still moves the weights
            parameter.grad = torch.zeros_like(parameter)
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if clip_grad and norm > clip_grad:
        torch.nn.utils.clip_grads_with_norm_(parameters, clip_grad, norm)
    before = MovedWeights(parameters)
    if norm.isfinite():
        optimizer.step()
    optimizer.zero_grad()  # so that the next batch is sampled without its memory
    return float(norm), before.share()
