"""Whether rollouts were drawn from a policy: their log-probabilities against its entropies.

Under the policy that drew token y_t, log π(y_t) + H_t has mean 0 given all tokens before it, and variance
V_t = Σ_v π_v log² π_v − H_t². The sum over tokens is a martingale, so

    z = Σ_t (log π(y_t) + H_t) / √(Σ_t V_t)

is nearly N(0, 1) for many tokens. It is far below 0 where the tokens are unlikely: other prompts, another model or
template; above 0 where they were drawn at a lower temperature, or with the tail cut off (top-k, top-p).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.lab.rollout_batch import RolloutBatch


@dataclass(frozen=True)
class _TokenMoments:
    """log π(y_t), entropy H_t in nats and variance V_t of log π of every token, each (B, T), 0 where masked."""

    logp: Tensor
    entropy: Tensor
    variance: Tensor


def excess(moments: _TokenMoments, mask: Tensor) -> tuple[Estimate, float]:
    """Mean of log π(y_t) + H_t per token, in nats, with the standard error that the policy itself predicts; and z.

    NaN where every V_t is 0: a policy that is certain says nothing about its draws.
    """
    count = int(mask.sum())
    total = float((moments.logp + moments.entropy)[mask].double().sum())
    spread = math.sqrt(float(moments.variance[mask].double().sum()))
    if not count or not spread:
        return Estimate(math.nan, math.nan, count, "the policy is certain of every token"), math.nan
    return Estimate(total / count, spread / count, count), total / spread


@torch.no_grad()
def moments(model: torch.nn.Module, rollouts: RolloutBatch, temperature: float, budget: float = 2e8) -> _TokenMoments:
    """Log-probabilities, entropies and variances of the tokens of `rollouts` under `model` at `temperature`.

    A plain forward pass, a prompt and its completion a row, so many rows at a time that the logits take about `budget`
    bytes. What tools wrote is read, and has no moments. UserError where the logits are not finite.
    """
    out = [torch.zeros(rollouts.mask.shape, device=rollouts.mask.device) for _ in range(3)]
    vocabulary = int(getattr(getattr(model, "config", None), "vocab_size", 0) or 1)
    rows_at_once = max(1, int(budget / (16 * vocabulary * max(rollouts.mask.shape[1], 1))))
    for rows in torch.arange(len(rollouts.mask), device=rollouts.mask.device).split(rows_at_once):
        attended = rollouts.attended[rows]
        width = max(int(attended.sum(-1).max()), 1)
        ids = torch.cat([rollouts.prompt_ids[rows], rollouts.tokens[rows, :width]], 1)
        seen = torch.cat([rollouts.prompt_mask[rows], attended[:, :width]], 1).long()
        position = (seen.cumsum(-1) - 1).clamp(min=0)
        logits = model(input_ids=ids, attention_mask=seen, position_ids=position, use_cache=False).logits
        logp = (logits[:, -width - 1 : -1].float() / temperature).log_softmax(-1)
        mask = rollouts.mask[rows, :width]
        picked = logp.gather(-1, rollouts.tokens[rows, :width, None])[..., 0]
        if not bool(picked[mask].isfinite().all()):
            raise UserError("the model's log-probabilities are not finite: its weights have overflowed; use an earlier "
                            "checkpoint")  # fmt: skip
        entropy = torch.special.entr(logp.exp()).sum(-1)
        second = (logp.exp() * logp.square()).nan_to_num(0.0).sum(-1)  # π log² π is 0 where π is
        for whole, target in zip(out, (picked, entropy, (second - entropy.square()).clamp(min=0)), strict=True):
            whole[rows, :width] = target.where(mask, 0.0)
    return _TokenMoments(*out)
