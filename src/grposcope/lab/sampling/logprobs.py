"""Log-probabilities of given completions, differentiable, with several completions of a prompt in one row.

A row of the forward pass is a prompt followed by as many of its completions as fit:

    prompt | completion 1 | completion 2 | …

Each completion sees the prompt and itself, by an attention mask and by position ids that go on
from the prompt. The prompt is read once and little is padding, so an update costs less, exactly.
Models whose layers look at a window, or keep a state, get one completion per row.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from grposcope.lab.rollout_batch import RolloutBatch

ROW = 1024
"""Tokens a row may hold. Attention grows with the square of a row, so longer rows cost more than they save."""


def token_logprobs(
    model: PreTrainedModel, rollouts: RolloutBatch, rows: Tensor, temperature: float = 1.0, entropy: bool = False
) -> tuple[Tensor, Tensor | None]:
    """log π(y_t | x, y_<t) at `temperature` for the given rows (b,) of a batch.

    Returns (b, T) log-probabilities in float32, 0 where masked, and with `entropy` the entropy in
    nats of each token's distribution, (b, T), 0 where masked. T is cut to the longest of the rows.
    """
    mask, tokens, log_all = _distributions(model, rollouts, rows, temperature)
    picked = log_all.gather(-1, tokens[mask][:, None])[:, 0]
    logp = torch.zeros(mask.shape, dtype=picked.dtype, device=picked.device).masked_scatter(mask, picked)
    if not entropy:
        return logp, None
    nats = -(log_all.exp() * log_all).sum(-1)
    return logp, torch.zeros_like(logp).masked_scatter(mask, nats)


def token_collisions(model: PreTrainedModel, rollouts: RolloutBatch, rows: Tensor, temperature: float = 1.0) -> Tensor:
    """Σ_v π_v² of the distribution of each token of the given rows (b,), (b, T), 0 where masked, T as above."""
    mask, _, log_all = _distributions(model, rollouts, rows, temperature)
    collision = (2 * log_all).exp().sum(-1)
    return torch.zeros(mask.shape, dtype=collision.dtype, device=collision.device).masked_scatter(mask, collision)


def _distributions(
    model: PreTrainedModel, rollouts: RolloutBatch, rows: Tensor, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Mask and tokens of the rows, cut to the longest (b, T), and log π of all tokens where not masked, (n, V)."""
    mask, tokens, packed, shares = _packed(model, rollouts, rows)
    logits = model(
        **_inputs(model, packed, shares),
        logits_to_keep=packed.ids.shape[1] - packed.prompt + 1,
    ).logits
    # logits of the completions' tokens alone, so that padding costs nothing at the size of the vocabulary
    scaled = (logits[packed.line, packed.column] / (temperature or 1.0)).float()
    return mask, tokens, scaled.log_softmax(-1)


def hidden_states(model: PreTrainedModel, body: nn.Module, rollouts: RolloutBatch, rows: Tensor) -> Tensor:
    """Last hidden states (n, C) of `body`, the layers of `model` or a copy of them, where each token is predicted.

    n: the tokens of the rows (b,) that are not masked, in the order of `tokens[mask]`.
    """
    _, _, packed, shares = _packed(model, rollouts, rows)
    states = body(**_inputs(model, packed, shares)).last_hidden_state
    return states[packed.line, packed.prompt - 1 + packed.column]


def _packed(model: PreTrainedModel, rollouts: RolloutBatch, rows: Tensor) -> tuple[Tensor, Tensor, _Packed, bool]:
    """Mask and tokens of the rows, cut to the longest (b, T), the rows packed, and whether several share a row.

    What tools wrote is read, and nothing is predicted there.
    """
    read = rollouts.attended[rows]
    longest = int(read.sum(-1).max())
    read, mask, tokens = read[:, :longest], rollouts.mask[rows, :longest], rollouts.tokens[rows, :longest]
    shares = _shares_rows(model)
    packed = _pack(rollouts.prompt_ids[rows], rollouts.prompt_mask[rows], tokens, read,
                  rows // rollouts.groups[1], ROW if shares else 0)  # fmt: skip
    predicted = mask[read]
    return mask, tokens, replace(packed, line=packed.line[predicted], column=packed.column[predicted]), shares


def _inputs(model: PreTrainedModel, packed: _Packed, shares: bool) -> dict[str, Any]:
    """What a forward pass over packed rows takes."""
    return {
        "input_ids": packed.ids,
        "attention_mask": packed.attention(model.dtype) if shares else (packed.segment >= 0).long(),
        "position_ids": packed.position,
        "use_cache": False,
    }


def _shares_rows(model: PreTrainedModel) -> bool:
    """Whether every layer attends to all a mask allows, so that completions can share a row."""
    config = model.config
    windowed = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    kinds = set(getattr(config, "layer_types", None) or ()) | set(getattr(config, "attention_layers", None) or ())
    return (
        not windowed
        and kinds <= {"full_attention", "global"}
        and config._attn_implementation in ("sdpa", "eager")
        and not getattr(model, "_is_stateful", False)
        and "position_ids" in inspect.signature(model.forward).parameters
    )


@dataclass(frozen=True)
class _Packed:
    """Completions placed in rows of width W; the prompts end at column `prompt`.

    ids, position (R, W); segment (R, W): 0 on the prompt, 1, 2, … on its completions, -1 on
    padding. line, column: for every completion token, in the order of `tokens[mask]`, where the
    logits that predict it are, with columns counted from the prompt's last.
    """

    ids: Tensor
    position: Tensor
    segment: Tensor
    prompt: int
    line: Tensor
    column: Tensor

    def attention(self, dtype: torch.dtype) -> Tensor:
        """Mask added to the attention scores, (R, 1, W, W): 0 where a token may attend, else a very negative number."""
        query, key = self.segment[:, :, None], self.segment[:, None, :]
        past = torch.ones(self.ids.shape[1], self.ids.shape[1], dtype=torch.bool, device=self.ids.device).tril()
        seen = past & ((key == 0) | (key == query))
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)[
            :, None
        ]


def _pack(ids: Tensor, prompt_mask: Tensor, tokens: Tensor, mask: Tensor, group: Tensor, room: int) -> _Packed:
    """Place b completions (b, T) of the prompts (b, S), rows of at most `room` tokens, one completion at least.

    mask (b, T): the tokens of each completion, without holes.

    Only neighbours of the same `group` (b,) share a row. A completion's last token is never an
    input, so it takes no place.
    """
    device = ids.device
    lengths, prompts = (mask.sum(-1) - 1).clamp(min=0).tolist(), prompt_mask.sum(-1).tolist()
    line: list[int] = []
    segment: list[int] = []
    start: list[int] = []
    filled, owner = 0, -1
    for prompt, length, this in zip(prompts, lengths, group.tolist(), strict=True):
        if this != owner or prompt + filled + length > room:
            line.append(line[-1] + 1 if line else 0)
            filled, owner = 0, this
            segment.append(1)
        else:
            line.append(line[-1])
            segment.append(segment[-1] + 1)
        start.append(filled)
        filled += length
    at, first = torch.tensor(line, device=device), torch.tensor(start, device=device)
    widest = max(prompts)
    width = widest + max(s + n for s, n in zip(start, lengths, strict=True))
    which = torch.tensor([i for i, s in enumerate(segment) if s == 1], device=device)
    shape = (len(which), width)
    packed_ids, position = (
        torch.zeros(shape, dtype=torch.long, device=device),
        torch.zeros(shape, dtype=torch.long, device=device),
    )
    segments = torch.full(shape, -1, device=device)
    own = prompt_mask[which][:, prompt_mask.shape[1] - widest :]
    packed_ids[:, :widest] = ids[which][:, ids.shape[1] - widest :] * own
    position[:, :widest] = (own.cumsum(-1) - 1).clamp(min=0)
    segments[:, :widest] = own.long() - 1
    row, step = mask[:, 1:].nonzero(as_tuple=True)  # tokens that have a successor are inputs
    places = (at[row], widest + first[row] + step)
    packed_ids[places] = tokens[row, step]
    position[places] = torch.tensor(prompts, device=device)[row] + step
    segments[places] = torch.tensor(segment, device=device)[row]
    row, step = mask.nonzero(as_tuple=True)
    column = torch.where(step == 0, 0, first[row] + step)
    return _Packed(packed_ids, position, segments, widest, at[row], column)
