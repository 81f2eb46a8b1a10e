"""Log-probabilities of given completions, differentiable, each prompt read once per group.

The `G` completions of a group share their prompt, so its keys and values are computed once and
the completions continue from them; autograd adds the group's gradients up. For a prompt as long
as the completions this halves the work of an update, exactly.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from grposcope.records import Rollouts


def token_logprobs(
    model: PreTrainedModel, rollouts: Rollouts, rows: Tensor, temperature: float = 1.0, entropy: bool = False
) -> tuple[Tensor, Tensor | None]:
    """log π(y_t | x, y_<t) at `temperature` for the given rows (b,) of a batch.

    Returns (b, T) log-probabilities in float32, 0 where masked, and with `entropy` the entropy in
    nats of each token's distribution, (b, T), 0 where masked. T is cut to the longest of the rows.
    """
    group = rollouts.groups[1]
    mask = rollouts.mask[rows]
    longest = int(mask.sum(-1).max())
    mask, tokens = mask[:, :longest], rollouts.tokens[rows, :longest]
    prompts, which = torch.unique(rows // group, return_inverse=True)
    first = prompts * group
    if model.training:  # which is on for activation checkpointing alone, and that allows no cache
        logits = _without_sharing(model, rollouts.prompt_ids[rows], rollouts.prompt_mask[rows], tokens)
    else:
        logits = _with_sharing(model, rollouts.prompt_ids[first], rollouts.prompt_mask[first], which, tokens)
    # (tokens kept,) only: the padding of short completions costs nothing at the vocabulary
    kept = (logits[mask] / (temperature or 1.0)).float()
    log_all = kept.log_softmax(-1)
    picked = log_all.gather(-1, tokens[mask][:, None])[:, 0]
    logp = torch.zeros(mask.shape, dtype=picked.dtype, device=picked.device).masked_scatter(mask, picked)
    if not entropy:
        return logp, None
    nats = -(log_all.exp() * log_all).sum(-1)
    return logp, torch.zeros_like(logp).masked_scatter(mask, nats)


def _with_sharing(model: PreTrainedModel, ids: Tensor, mask: Tensor, which: Tensor, tokens: Tensor) -> Tensor:
    """Logits (b, T, V) of completions `tokens` that continue prompt `which` of `ids` (p, S)."""
    ids, mask = _trimmed(ids, mask)
    lengths = mask.sum(-1)
    start = model(
        input_ids=ids,
        attention_mask=mask.long(),
        position_ids=(mask.long().cumsum(-1) - 1).clamp(min=0),
        past_key_values=DynamicCache(),
        use_cache=True,
        logits_to_keep=1,
    )
    opening = start.logits[which]
    if tokens.shape[1] == 1:
        return opening
    cache = start.past_key_values
    cache.batch_select_indices(which)
    steps = torch.arange(tokens.shape[1] - 1, device=tokens.device)
    rest = model(
        input_ids=tokens[:, :-1],
        attention_mask=F.pad(mask[which].long(), (0, len(steps)), value=1),
        position_ids=lengths[which][:, None] + steps,
        past_key_values=cache,
        use_cache=True,
    )
    return torch.cat((opening, rest.logits), 1)


def _without_sharing(model: PreTrainedModel, ids: Tensor, mask: Tensor, tokens: Tensor) -> Tensor:
    """The same logits from whole sequences, for activation checkpointing."""
    ids, mask = _trimmed(ids, mask)
    whole = F.pad(mask.long(), (0, tokens.shape[1]), value=1)
    out = model(
        input_ids=torch.cat((ids, tokens), 1),
        attention_mask=whole,
        position_ids=(whole.cumsum(-1) - 1).clamp(min=0),
        use_cache=False,
        logits_to_keep=tokens.shape[1] + 1,
    )
    return out.logits[:, :-1]


def _trimmed(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Drop columns that are padding in every row."""
    start = ids.shape[1] - int(mask.sum(-1).max())
    return ids[:, start:], mask[:, start:]
