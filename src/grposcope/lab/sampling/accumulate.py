"""The gradient of Σ w log π of given completions, added to `.grad`; and log π alone, without gradients.

Models whose passes `cpu` makes go through these, any other model through its own forward and autograd, with the same
result; on a CPU that is said once, with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from grposcope.lab import cpu
from grposcope.lab.no_gradient import no_gradient
from grposcope.lab.policies import recomputes_activations
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.logprobs import token_collisions, token_logprobs

logger = logging.getLogger("grposcope")


def accumulate(
    model: PreTrainedModel,
    rollouts: RolloutBatch,
    rows: Tensor,
    temperature: float,
    micro_batch: int,
    weigh: cpu.Weigh,
    bonus: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Add the gradient of Σ w log π − Σ bonus · H over the rows (r,), in ascending order, to `.grad` of the parameters.

    weigh: the weights w (b, T) of some rows (b,) of a batch, from these and their log-probabilities (b, T). bonus
    (B, T): coefficients of the entropies, or None.
    Returns log π (r, T) and the entropies in nats (r, T), 0 where masked, the latter 0 everywhere without a bonus.
    Completions go through the model `micro_batch` at a time.
    """
    if not len(rows):
        nothing = torch.zeros(rollouts.mask[rows].shape, device=rollouts.mask.device)
        return nothing, nothing.clone()
    passes, reason = _passes(model, rollouts), _why_autograd(model)
    if passes is not None and not reason:
        return passes.accumulate(rollouts, rows, temperature, micro_batch, weigh, bonus)
    if model.device.type == "cpu":
        _say_slow(reason or _no_passes(model, rollouts))
    model.train(recomputes_activations(model))
    parts = [_by_autograd(model, rollouts, batch, temperature, weigh, bonus) for batch in rows.split(micro_batch)]
    model.eval()
    return torch.cat([logp for logp, _ in parts]), torch.cat([entropy for _, entropy in parts])


def _why_autograd(model: PreTrainedModel) -> str:
    """What autograd does and passes by hand do not, as a clause; empty where this model needs nothing of it."""
    if not all(p.requires_grad for p in model.parameters()):
        return "some of its weights are not trained"
    if recomputes_activations(model):
        return "it recomputes activations (gradient checkpointing)"
    return ""


def _passes(model: PreTrainedModel, rollouts: RolloutBatch) -> cpu.Passes | None:
    """The passes of this model by hand, which take completions without text of tools; None where there are none."""
    return None if rollouts.has_holes else cpu.passes(model)


def _no_passes(model: PreTrainedModel, rollouts: RolloutBatch) -> str:
    """Why `cpu` has no passes of this model, as a clause."""
    if rollouts.has_holes:
        return "completions have text of tools in them"
    if not cpu.enabled():
        return "the CPU engine is off"
    return f"{type(model).__name__} in {str(model.dtype).removeprefix('torch.')} is not a plain Llama or Qwen2"


@cache
def _say_slow(reason: str) -> None:
    logger.warning("updates go through the model's own forward and autograd, the slower way: %s", reason)


@no_gradient
@cpu.with_products
def frozen_logprobs(model: PreTrainedModel, rollouts: RolloutBatch, temperature: float, micro_batch: int) -> Tensor:
    """log π of the whole batch without gradients, (B, T), `micro_batch` rollouts at a time."""
    passes = _passes(model, rollouts)
    if passes is not None:
        return passes.logprobs(rollouts, temperature, micro_batch)[0]
    return _in_parts(rollouts, micro_batch, lambda batch: token_logprobs(model, rollouts, batch, temperature)[0])


@no_gradient
@cpu.with_products
def collisions(model: PreTrainedModel, rollouts: RolloutBatch, temperature: float, micro_batch: int) -> Tensor:
    """Σ_v π_v² of every token's distribution, (B, T), 0 where masked: the chance that two draws are the same token."""
    passes = _passes(model, rollouts)
    if passes is not None:
        return passes.logprobs(rollouts, temperature, micro_batch)[1]
    return _in_parts(rollouts, micro_batch, lambda batch: token_collisions(model, rollouts, batch, temperature))


def _in_parts(rollouts: RolloutBatch, micro_batch: int, values: Callable[[Tensor], Tensor]) -> Tensor:
    """Values of every token (B, T), from those of `micro_batch` rows (b,) at a time, (b, ≤ T)."""
    rows, width = torch.arange(len(rollouts.mask), device=rollouts.mask.device), rollouts.mask.shape[1]
    parts = [values(batch) for batch in rows.split(micro_batch)]
    return torch.cat([F.pad(batch_values, (0, width - batch_values.shape[1])) for batch_values in parts])


@cpu.with_products
def _by_autograd(
    model: PreTrainedModel,
    rollouts: RolloutBatch,
    rows: Tensor,
    temperature: float,
    weigh: cpu.Weigh,
    bonus: Tensor | None,
) -> tuple[Tensor, Tensor]:
    logp, entropy = token_logprobs(model, rollouts, rows, temperature, entropy=bonus is not None)
    narrow = (0, rollouts.mask.shape[1] - logp.shape[1])
    logp = F.pad(logp, narrow)
    total = (weigh(rows, logp.detach()) * logp).sum()
    nats = torch.zeros_like(logp) if entropy is None else F.pad(entropy, narrow)
    if bonus is not None:
        total = total - (bonus[rows] * nats).sum()
    total.backward()
    return logp.detach(), nats.detach()
