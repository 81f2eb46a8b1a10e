"""Each token at the logits: log π(y|x), and its score there, e_y − π, with the norm

‖e_y − π‖² = (1 − π_y)² + Σ_{v≠y} π_v²
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from grposcope.lab.rollout_batch import RolloutBatch

AT_ONCE = 32
"""Tokens whose probabilities are held at a time on a CPU."""

GPU_AT_ONCE = 256
"""The same on a GPU, where a kernel takes as long to start as to run over fewer."""


def tokens_at_once(device: torch.device) -> int:
    """Tokens whose probabilities are held at a time on this device."""
    return AT_ONCE if device.type == "cpu" else GPU_AT_ONCE


@dataclass(frozen=True)
class TokenScores:
    """Every token at the logits, all (B, T), 0 where masked. logp: log π(y_t). norms: ‖e_y − π‖."""

    logp: Tensor
    norms: Tensor


def without_padding(rollouts: RolloutBatch) -> RolloutBatch:
    """The rollouts without the columns on the left that are padding in every prompt."""
    start = rollouts.prompt_ids.shape[1] - int(rollouts.prompt_mask.sum(-1).max())
    return replace(rollouts, prompt_ids=rollouts.prompt_ids[:, start:], prompt_mask=rollouts.prompt_mask[:, start:])


def weighted_logp(
    model: Any,
    rollouts: RolloutBatch,
    weights: Tensor,
    temperature: float,
    after: Callable[[Tensor, TokenScores], None] | None = None,
) -> tuple[TokenScores, Tensor]:
    """The tokens at the logits, and Σ weights · log π with its graph, from one forward pass of whole rows.

    after: is given the scores e_y − π (B, K, V), see `_PickedTokens`, and the tokens, before this returns.
    """
    width = rollouts.tokens.shape[1]
    whole = F.pad(rollouts.prompt_mask.long(), (0, width), value=1)
    with torch.enable_grad():
        logits = model(
            input_ids=torch.cat((rollouts.prompt_ids, rollouts.tokens), 1),
            attention_mask=whole,
            position_ids=(whole.cumsum(-1) - 1).clamp(min=0),
            use_cache=False,
            logits_to_keep=width + 1,
        ).logits
        logp, norms = _PickedTokens.apply(logits, rollouts.tokens, rollouts.mask, temperature or 1.0)
        total = (logp * weights.to(logp)).sum()
    scores = TokenScores(logp.detach(), norms)
    if after is not None:
        after(logits.detach(), scores)
    return scores, total


class _PickedTokens(torch.autograd.Function):
    """log π of the tokens drawn and the norms of their scores, (B, T) each, a few tokens at a time.

    The logits (B, K, V) are overwritten by the scores e_y − π, those of the T tokens in the places [-T-1:-1], which
    the backward pass needs, so that there is never a second array of that size. Autograd raises an error if another
    operation still needs the logits.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, tokens: Tensor, mask: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """log π of the tokens and the norms of their scores, (B, T) each; the scores take the place of the logits."""
        kind = torch.promote_types(logits.dtype, torch.float32)
        logp, at_once = torch.zeros(tokens.shape, dtype=kind, device=logits.device), tokens_at_once(logits.device)
        norms, scores, width = torch.zeros_like(logp), logits.detach(), tokens.shape[1]
        for row, at in itertools.product(range(len(logits)), range(0, width, at_once)):
            piece = slice(at, min(at + at_once, width))
            chosen, scored = tokens[row, piece][:, None], scores[row, -width - 1 : -1][piece]
            logs = (scored.to(kind) / temperature if temperature != 1 else scored.to(kind)).log_softmax(-1)
            logp[row, piece] = logs.gather(-1, chosen)[:, 0]
            chances = logs.exp_()
            # the sum over v ≠ y is taken as such: 1 − 2π_y + Σ_v π_v² would cancel
            rest = torch.linalg.vector_norm(chances.scatter_(-1, chosen, 0.0), dim=-1)
            miss = -torch.expm1(logp[row, piece])
            norms[row, piece] = torch.hypot(miss, rest)
            torch.neg(chances.scatter_(-1, chosen, -miss[:, None]), out=chances)
            scored.copy_(chances)
        logp, norms = logp.where(mask, 0.0), norms.where(mask, 0.0)
        ctx.save_for_backward(scores, mask)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(norms)
        return logp, norms

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the logits, made in the place of the scores."""
        scores, mask = ctx.saved_tensors
        weights = F.pad(gradients[0].where(mask, 0.0) / ctx.temperature, (scores.shape[1] - mask.shape[1] - 1, 1))
        for row in range(len(scores)):
            scores[row] *= weights[row][:, None].to(scores)
        return scores, None, None, None
