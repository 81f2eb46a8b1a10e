"""Sampling completions: each prompt is read once, then its whole group is decoded together.

A row leaves the batch soon after it has ended, so long stragglers do not hold up the rest.
The log-probabilities kept are those of the policy at the given temperature, before top-k and
top-p cut its tail: the quantity that the objectives differentiate.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from grposcope.errors import UserError
from grposcope.training.decoding import decoder


@dataclass(frozen=True)
class Sampling:
    """Settings of the draw of a completion.

    max_tokens: the longest completion. temperature: 0 takes the likeliest token.
    top_k: keep the k likeliest tokens, 0 for all. top_p: keep the smallest set of tokens
    whose probability reaches p, 1 for all.
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True)
class Completions:
    """Sampled tokens (B, T), padded on the right, with their log-probabilities when they were drawn.

    mask (B, T) is True up to and including the end token; logp and entropy (B, T) are 0 outside
    it; truncated (B,) marks rows that reached `max_tokens` without an end token.
    """

    tokens: Tensor
    mask: Tensor
    logp: Tensor
    entropy: Tensor
    truncated: Tensor


@torch.inference_mode()
def sample(
    model: PreTrainedModel,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    group: int,
    sampling: Sampling,
    eos: Tensor,
    pad: int,
    generator: torch.Generator,
) -> Completions:
    """Draw `group` completions for each prompt (P, S) padded on the left; rows are prompt-major.

    eos: token ids that end a completion, (E,). The result is a function of the weights, the
    prompts and the generator's state alone.
    """
    rows, steps = len(prompt_ids) * group, sampling.max_tokens
    device = prompt_ids.device
    tokens = torch.full((rows, steps), pad, device=device)
    logp = torch.zeros(rows, steps, device=device)
    entropy = torch.zeros(rows, steps, device=device)
    decode = decoder(model, prompt_ids, prompt_mask, group, steps)
    logits, live = decode.logits, torch.arange(rows, device=device)
    going = torch.ones(rows, dtype=torch.bool, device=device)  # of the live rows, those that have not ended
    for t in range(steps):
        chosen, logp[live, t], entropy[live, t] = _draw(logits, sampling, generator)
        tokens[live, t] = chosen
        going &= torch.isin(chosen, eos, invert=True)
        count = int(going.sum())
        if count == 0 or t + 1 == steps:
            break
        if count <= 0.75 * len(live):
            decode.keep(going.nonzero()[:, 0])
            live, chosen, going = live[going], chosen[going], going[going]
        logits = decode.step(chosen)
    ends = torch.isin(tokens, eos)
    ended = ends.any(-1)
    lengths = torch.where(ended, ends.int().argmax(-1) + 1, steps)
    longest = int(lengths.max())
    mask = torch.arange(longest, device=device) < lengths[:, None]
    return Completions(
        tokens=tokens[:, :longest].masked_fill(~mask, pad).clone(),
        mask=mask.clone(),
        logp=logp[:, :longest] * mask,
        entropy=entropy[:, :longest] * mask,
        truncated=~ended,
    )


def _draw(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """One token per row of logits (B, V), its log-probability and the entropy of the distribution."""
    logp = (logits.float() / (sampling.temperature or 1.0)).log_softmax(-1)
    probabilities = logp.exp()
    entropy = torch.special.entr(probabilities).sum(-1)
    if sampling.temperature == 0:
        chosen = logits.argmax(-1)
    else:
        kept = _cut_tail(probabilities, sampling)
        cumulative = kept.cumsum(-1)
        # in (0, 1]: the first token whose cumulative probability reaches the draw has itself a probability
        uniform = 1 - torch.rand(len(logits), 1, generator=generator, device=logits.device)
        chosen = torch.searchsorted(cumulative, uniform * cumulative[:, -1:])[:, 0]
        if (chosen == logits.shape[-1]).any():  # only NaN is beyond all of them
            raise UserError(
                "the model's logits are not finite, so no token can be drawn: its weights have overflowed; lower the "
                "learning rate, or go back to an earlier checkpoint"
            )
    return chosen, logp.gather(-1, chosen[:, None])[:, 0], entropy


def _cut_tail(probabilities: Tensor, sampling: Sampling) -> Tensor:
    """The probabilities with those that top-k and top-p leave out set to 0; the rest is not renormalised."""
    vocabulary = probabilities.shape[-1]
    if 0 < sampling.top_k < vocabulary:
        least = probabilities.topk(sampling.top_k, -1).values[:, -1:]
        probabilities = probabilities.masked_fill(probabilities < least, 0)
    if sampling.top_p < 1:
        ordered, order = probabilities.sort(-1, descending=True)
        before = ordered.cumsum(-1) - ordered
        dropped = before >= sampling.top_p * ordered.sum(-1, keepdim=True)
        dropped[:, 0] = False
        probabilities = probabilities.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), 0)
    return probabilities
