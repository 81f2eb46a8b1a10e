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

from grposcope.objectives import Objective, divergences, reductions
from grposcope.policies import recomputes_activations
from grposcope.records import Rollouts, rows_of_groups
from grposcope.training.logprobs import token_logprobs


@dataclass(frozen=True)
class Update:
    """Result of an optimiser step.

    grad_norm: before clipping; not finite means that the step was not taken. kl: mean k3 estimate
    of the divergence to the reference, NaN without one. kl_old: the same to the policy that
    sampled. clip_low, clip_high: shares of tokens held by the clip. trained: rollouts that took
    part. kl and kl_old are means over the tokens of those, the clip shares over all tokens.
    """

    loss: float
    grad_norm: float
    kl: float
    kl_old: float
    clip_low: float
    clip_high: float
    trained: int


@dataclass(frozen=True)
class TokenTerms:
    """Constants of a batch while it is trained on, all (B, T): credit, old and reference log-probabilities.

    old is None where the batch is used for one step only: the policy that sampled is the current one.
    reference is None without a KL term.
    """

    credit: Tensor
    old: Tensor | None = None
    reference: Tensor | None = None

    def take(self, prompts: Tensor, group: int) -> TokenTerms:
        """The rows of the groups `prompts` (indices into P)."""
        rows = rows_of_groups(prompts, group)
        old, reference = (None if a is None else a[rows] for a in (self.old, self.reference))
        return TokenTerms(self.credit[rows], old, reference)


@torch.no_grad()
def frozen_logprobs(model: PreTrainedModel, rollouts: Rollouts, temperature: float, micro_batch: int) -> Tensor:
    """log π of the whole batch without gradients, (B, T), `micro_batch` rollouts at a time."""
    out = torch.zeros(rollouts.mask.shape, device=rollouts.mask.device)
    for rows in torch.arange(len(out), device=out.device).split(micro_batch):
        logp, _ = token_logprobs(model, rollouts, rows, temperature)
        out[rows, : logp.shape[1]] = logp
    return out


def update(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    objective: Objective,
    rollouts: Rollouts,
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
    model.train(recomputes_activations(model))
    coefficients = objective.reduction(rollouts.mask).float()  # of the whole batch, so that its pieces add up
    bonus = objective.entropy * reductions.token_mean(rollouts.mask) if objective.entropy else None
    everyone = bool(objective.kl) or bonus is not None
    taking = torch.ones(len(rollouts.mask), dtype=torch.bool) if everyone else (terms.credit != 0).any(-1).cpu()
    rows_taking = taking.nonzero()[:, 0].to(rollouts.mask.device)
    sums = dict.fromkeys(("loss", "kl", "kl_old", "low", "high", "tokens"), 0.0)
    for rows in rows_taking.split(micro_batch) if len(rows_taking) else ():  # an empty tensor splits into one part
        logp, entropy = token_logprobs(model, rollouts, rows, temperature, entropy=bonus is not None)
        width = logp.shape[1]
        mask, credit = rollouts.mask[rows, :width], terms.credit[rows, :width]
        old = logp.detach() if terms.old is None else terms.old[rows, :width]
        reference = None if terms.reference is None else terms.reference[rows, :width]
        part = (mask, credit, coefficients[rows, :width], reference)
        weights = objective.partial_weights(logp, old, *part)
        total = (weights * logp).sum()
        with torch.no_grad():
            sums["loss"] += float(objective.partial_loss(logp, old, *part))
        if bonus is not None and entropy is not None:
            extra = (bonus[rows, :width] * entropy).sum()
            total = total - extra
            sums["loss"] -= float(extra.detach())
        total.backward()
        now = logp.detach()
        low, high = objective.surrogate.held(objective.ratio(now, old, mask), credit)
        sums["tokens"] += float(mask.sum())
        sums["low"] += float((low & mask).sum())
        sums["high"] += float((high & mask).sum())
        sums["kl_old"] += float((divergences.k3(now, old) * mask).sum())
        if reference is not None:
            sums["kl"] += float((divergences.k3(now, reference) * mask).sum())
    norm = _step(model, optimizer, clip_grad)
    model.eval()
    tokens, all_tokens = max(sums["tokens"], 1.0), max(int(rollouts.mask.sum()), 1)
    return Update(
        loss=sums["loss"],
        grad_norm=norm,
        kl=sums["kl"] / tokens if terms.reference is not None else math.nan,
        kl_old=sums["kl_old"] / tokens,
        clip_low=sums["low"] / all_tokens,
        clip_high=sums["high"] / all_tokens,
        trained=len(rows_taking),
    )


def _step(model: PreTrainedModel, optimizer: torch.optim.Optimizer, clip_grad: float) -> float:
    """Clip and step; returns the norm before clipping. A gradient that is not finite is not applied."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    for parameter in parameters:
        if parameter.grad is None:  # nothing to learn from, but the momentum still moves the weights
            parameter.grad = torch.zeros_like(parameter)
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, clip_grad or math.inf))
    if math.isfinite(norm):
        optimizer.step()
    return norm
