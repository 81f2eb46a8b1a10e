"""Corrections for rollouts of another policy, on the arrays of a batch; their formulas are in `maths.corrections`.

Three policies: μ drew the rollouts, π_old is the trainer's when the batch comes to it, π the trainer's now. A
correction makes coefficients c_t ≥ 0 of the ratio π_old/μ, without a gradient; a surrogate keeps its own ratio π/π_old
(the decoupled form of TRL and verl). Surrogates are homogeneous in the credit A, for c ≥ 0 that of cA is c times that
of A, so that the coefficients multiply the credit. What has no credit has no coefficient: the KL to the reference and
the entropy bonus are means over the tokens as μ drew them.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from grposcope.maths.corrections import Correction
from grposcope.maths.importance import Floats, Ratios


def ratios(
    old: Float[Tensor, "B T"],
    sampler: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    advantages: Float[Tensor, " B"] | None = None,
) -> Ratios | None:
    """Log ratios π_old/μ of the rollouts that have tokens; None where none has any.

    old, sampler: log-probabilities of the trainer's policy and of the one that drew.
    """
    lengths = mask.sum(-1)
    nonempty = lengths > 0
    if not bool(nonempty.any()):
        return None
    log = (old.double() - sampler.double())[mask]
    own = None if advantages is None else advantages[nonempty].double().numpy(force=True)
    return Ratios(
        log.numpy(force=True), lengths[nonempty].numpy(force=True), own, sampler.double()[mask].numpy(force=True)
    )


def _on_tokens(values: Floats, mask: Bool[Tensor, "B T"], dtype: torch.dtype) -> Float[Tensor, "B T"]:
    """Values of the tokens (N,), in the order of `ratios`, 0 where masked."""
    placed = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return placed.masked_scatter(mask, torch.as_tensor(values, dtype=dtype, device=mask.device))


def coefficients(
    correction: Correction,
    old: Float[Tensor, "B T"],
    sampler: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    advantages: Float[Tensor, " B"] | None = None,
) -> Float[Tensor, "B T"]:
    """c_t of every token, 0 where masked. advantages: of the rollouts, for corrections that need them."""
    log_ratios = ratios(old, sampler, mask, advantages)
    return _on_tokens(np.empty(0) if log_ratios is None else correction.coefficients(log_ratios), mask, old.dtype)
