"""Sampling completions: each prompt is read once, then its whole group is decoded together.

A row leaves the batch soon after it has ended, so long stragglers do not hold up the rest.
The log-probabilities kept are those of the policy at the given temperature, before top-k and
top-p cut its tail: the quantity that the objectives differentiate; or, for corrections, those after.

Sampling trees: rollouts that share their beginnings, which are generated once and branch at places fixed in advance.

A branch writes into the row of its first leaf; where it branches, its row in the decoder is repeated with all that it
has read and with the logits that follow, so that no token is read twice. From one branching to the next, tokens are
drawn as the plain sampler draws them. What a leaf shares with others is filled in at the end.

Token-by-token decoding with a key-value cache: the sampler's inner loop.

All decoders share the small interface `lab.cpu.Decoder` (`logits` after the prompt, then `step` and `keep`).
`_engine_of` asks `cpu` for one that is fast for this model on this machine; `_CachedDecoder` runs any Hugging Face
causal LM through its own forward. Tests hold all to a plain forward.

A decoder is made anew for every batch of rollouts, so it always has the current parameters.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from grposcope.core.errors import UserError
from grposcope.lab import cpu
from grposcope.lab.credit import trees
from grposcope.lab.no_gradient import Arguments, Result


def _inference(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function under `torch.inference_mode`, whose tensors never take part in a backward pass."""

    @wraps(function)
    def without(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        with torch.inference_mode():
            return function(*arguments, **named)

    return without


PART = 4096
"""Tokens of the vocabulary that a draw looks at together."""

TOGETHER = 32
"""Most tokens of a row that are drawn before Python, and with it Ctrl-C, has a turn."""

TURN = 0.5
"""Seconds after which Python has a turn at the latest, where one token does not take longer."""

OVERFLOWED = (
    "the model's logits are not finite, so no token can be drawn: its weights have overflowed; lower the learning "
    "rate, or go back to an earlier checkpoint"
)

_LOG_0 = -128.0
"""A logarithm whose exponential is 0 in float32."""


@dataclass(frozen=True)
class Sampling:
    """Settings of the draw of a completion.

    max_tokens: the longest completion. temperature: 0 takes the likeliest token.
    top_k: keep the k likeliest tokens, 0 for all. top_p: keep the smallest set of tokens
    whose probability reaches p, 1 for all. precision: number format of the weights, of `lab.cpu.PRECISIONS`; the
    log-probabilities are those that the rounded weights drew with. processed: whether they are those after top-k and
    top-p, by which the tokens were drawn. The entropy is always that before.
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    precision: str = "float32"
    processed: bool = False


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


class _Turns:
    """How many tokens of each row are drawn before Python has a turn; what is drawn does not depend on it."""

    def __init__(self) -> None:
        self.most, self._began = 1, time.perf_counter()

    def drew(self, tokens: int) -> None:
        """So many tokens of each row were drawn since this was made or last called; `most` is how many may follow."""
        now = time.perf_counter()
        each, self._began = (now - self._began) / tokens, now
        self.most = max(1, min(TOGETHER, int(TURN / max(each, 1e-9))))


@_inference
@cpu.with_products
def sample(
    model: PreTrainedModel,
    prompts: tuple[Tensor, Tensor],
    group: int,
    sampling: Sampling,
    eos: Tensor,
    pad: int,
    generator: torch.Generator | Tensor,
    limits: Tensor | None = None,
) -> Completions:
    """Draw `group` completions for each of the prompts, whose ids and mask (P, S) are padded on the left, prompt-major.

    eos: token ids that end a completion, (E,). generator: the source of random numbers, or the numbers themselves,
    uniform in [0, 1), (B, max_tokens) on the model's device: then a row does not depend on the others, but for rounding
    in its logits. limits (P,): the longest completion of each prompt, where that is not `sampling.max_tokens` for all.
    The result is a function of the weights, the prompts and these numbers alone.
    """
    prompt_ids, prompt_mask = prompts
    rows, steps = len(prompt_ids) * group, sampling.max_tokens
    device = prompt_ids.device
    tokens = torch.full((rows, steps), pad, device=device)
    logp = torch.zeros(rows, steps, device=device)
    entropy = torch.zeros(rows, steps, device=device)
    decode = _engine_of(model, prompt_ids, prompt_mask, group, steps, sampling.precision)
    logits, live, t = decode.logits, torch.arange(rows, device=device), 0
    going = torch.ones(rows, dtype=torch.bool, device=device)  # of the live rows, those that have not ended
    longest = torch.full((rows,), steps, device=device) if limits is None else limits.repeat_interleave(group)
    turns = _Turns()
    while True:
        few = int(0.75 * len(live))  # then the others leave
        together = min(int(longest[live][going].min()) - t, turns.most)
        numbers = generator[live, t : t + together] if isinstance(generator, Tensor) else generator
        drawn = _drawn_tokens(decode, logits, sampling, eos, going, together, few, numbers)
        turns.drew(len(drawn.tokens))
        here = slice(t, t + len(drawn.tokens))
        tokens[live, here], logp[live, here], entropy[live, here] = (column.T for column in drawn)
        chosen, t = drawn.tokens[-1], here.stop
        going &= longest[live] > t
        count = int(going.sum())
        if count == 0 or t == steps:
            break
        if count <= few:
            decode.keep(going.nonzero()[:, 0])
            live, chosen, going = live[going], chosen[going], going[going]
        logits = decode.step(chosen)
    return _finished(tokens, logp, entropy, eos, pad, longest)


def _finished(tokens: Tensor, logp: Tensor, entropy: Tensor, eos: Tensor, pad: int, longest: Tensor) -> Completions:
    """Completions up to the end token of each row, or up to its longest length (B,)."""
    ends = torch.isin(tokens, eos) & (torch.arange(tokens.shape[1], device=tokens.device) < longest[:, None])
    ended = ends.any(-1)
    lengths = torch.where(ended, ends.int().argmax(-1) + 1, longest)
    width = int(lengths.max())
    mask = torch.arange(width, device=tokens.device) < lengths[:, None]
    return Completions(
        tokens=tokens[:, :width].masked_fill(~mask, pad).clone(),
        mask=mask.clone(),
        logp=logp[:, :width] * mask,
        entropy=entropy[:, :width] * mask,
        truncated=~ended,
    )


def _drawn_tokens(
    decode: cpu.Decoder,
    logits: Tensor,
    sampling: Sampling,
    eos: Tensor,
    going: Tensor,
    steps: int,
    few: int,
    generator: torch.Generator | Tensor,
) -> cpu.Draws:
    """One token for each row, or several in a row where the decoder can; `going` (B,) learns which have ended.

    generator: the source of random numbers, or the numbers themselves, uniform in [0, 1), (B, steps).
    """
    whole = sampling.top_p == 1 and not 0 < sampling.top_k < logits.shape[-1]
    if not (whole and isinstance(decode, cpu.DrawsAhead)):
        numbers = generator[:, :1] if isinstance(generator, Tensor) else generator
        chosen, logp, entropy = _draw(logits, sampling, numbers)
        going &= torch.isin(chosen, eos, invert=True)
        return cpu.Draws(chosen[None], logp[None], entropy[None])
    before = torch.empty(0) if isinstance(generator, Tensor) else generator.get_state()
    if isinstance(generator, Tensor):
        numbers = generator.T.contiguous()
    else:
        numbers = torch.rand(steps, len(logits), generator=generator)
    # in (0, 1], so that the first token whose cumulative weight reaches the draw has itself a weight
    drawn = decode.generate(logits, steps, sampling.temperature, 1 - numbers, eos, going, few)
    if drawn is None:
        raise UserError(OVERFLOWED)
    if isinstance(generator, Tensor):
        return drawn
    if len(drawn.tokens) < steps or sampling.temperature == 0:  # numbers that were not used are for others
        generator.set_state(before)
        torch.rand(len(drawn.tokens) * (sampling.temperature > 0), len(logits), generator=generator)
    return drawn


def _draw(logits: Tensor, sampling: Sampling, generator: torch.Generator | Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One token per row of logits (B, V), its log-probability and the entropy of the distribution.

    generator: the source of random numbers, or the numbers themselves, uniform in [0, 1), (B, 1).

    The vocabulary is gone through once, in parts that fit the processor's cache. With z = logit - the row's largest and
    Z = Σ exp z, log p = z - log Z, and the entropy is log Z - Σ z exp z / Z.
    """
    scaled = logits.float()
    if sampling.temperature not in (0, 1):
        scaled = scaled / sampling.temperature
    largest, sums, products = _part_sums(scaled)
    peak = largest.amax(-1, keepdim=True)
    if not bool(peak.isfinite().all()):
        raise UserError(OVERFLOWED)
    lower = (largest - peak).clamp(min=_LOG_0)
    shares = lower.exp()
    total = (sums * shares).sum(-1)
    expected = ((products + sums * lower) * shares).sum(-1)
    kept = None
    if sampling.temperature == 0:
        chosen = logits.argmax(-1)
    else:
        numbers = generator
        if not isinstance(numbers, Tensor):
            numbers = torch.rand(len(logits), 1, generator=numbers, device=logits.device)
        # in (0, 1], so that the first token whose cumulative weight reaches the draw has itself a weight
        uniform = 1 - numbers
        if 0 < sampling.top_k < logits.shape[-1] or sampling.top_p < 1:
            kept = _cut_tail((scaled - peak).exp(), sampling)
            chosen = _reached(kept, uniform)
        else:
            chosen = _reached_in_parts(scaled, peak, sums * shares, uniform)
    log_total = total.log()
    mass = log_total if kept is None or not sampling.processed else kept.sum(-1).log()
    logp = (scaled.gather(-1, chosen[:, None]) - peak)[:, 0] - mass
    return chosen, logp, log_total - expected / total


def _part_sums(logits: Tensor) -> Tensor:
    """Of each part of the logits (B, V): the largest, and Σ exp z and Σ z exp z with z = logit - the largest.

    Returns (3, B, V / PART). On a CPU a part is in its cache; on a GPU a kernel is as soon done with all of them.
    """
    return _sums_in_turn(logits) if logits.device.type == "cpu" else _sums_together(logits)


def _sums_in_turn(logits: Tensor) -> Tensor:
    """`_part_sums` (3, B, V / PART), one part after the other."""
    return torch.stack([_sums(piece) for piece in logits.split(PART, -1)], -1)


def _sums_together(logits: Tensor) -> Tensor:
    """`_part_sums` (3, B, V / PART), of all parts at once."""
    return _sums(F.pad(logits, (0, -logits.shape[-1] % PART), value=-math.inf).unflatten(-1, (-1, PART)))


def _sums(logits: Tensor) -> Tensor:
    """Of logits (..., v): the largest, Σ exp z and Σ z exp z, (3, ...)."""
    largest = logits.amax(-1)
    below = logits - largest.clamp(min=torch.finfo(logits.dtype).min)[..., None]  # all may be -∞
    weights = below.exp()
    sums = weights.sum(-1)
    products = below.clamp_(min=_LOG_0).mul_(weights).sum(-1)  # 0 · -∞ is no number
    return torch.stack((largest, sums, products))


def _reached(weights: Tensor, uniform: Tensor) -> Tensor:
    """The index in each row of the weights (B, v) that a draw from (0, 1], (B, 1), falls on, by weight."""
    cumulative = weights.cumsum(-1)
    return torch.searchsorted(cumulative, uniform * cumulative[:, -1:])[:, 0]


def _reached_in_parts(logits: Tensor, peak: Tensor, sums: Tensor, uniform: Tensor) -> Tensor:
    """The token of each row (B,) that a draw falls on: first its part by the `sums` (B, V / PART), then within it."""
    cumulative = sums.cumsum(-1)
    sought = uniform * cumulative[:, -1:]
    index = torch.searchsorted(cumulative, sought)
    weight = sums.gather(-1, index)
    share = (sought - (cumulative.gather(-1, index) - weight)) / weight
    members = index * PART + torch.arange(min(PART, logits.shape[-1]), device=logits.device)
    inside = (logits.gather(-1, members.clamp(max=logits.shape[-1] - 1)) - peak).exp_()
    inside *= members < logits.shape[-1]  # the last part may be shorter
    return index[:, 0] * PART + _reached(inside, share.clamp(torch.finfo(share.dtype).tiny, 1))


def _cut_tail(probabilities: Tensor, sampling: Sampling) -> Tensor:
    """The probabilities (B, V), up to a factor, with those that top-k and top-p leave out set to 0."""
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


@dataclass(frozen=True)
class Tree:
    """Where rollouts branch, and into how many.

    widths: branches at each branching, the first at the prompt. every: from one branching to the next, tokens, or
    tokens among `marks` (V,) where these are given, those that end a step, say.
    """

    widths: tuple[int, ...]
    every: int
    marks: Tensor | None = None


@_inference
@cpu.with_products
def sample_trees(
    model: PreTrainedModel,
    prompts: tuple[Tensor, Tensor],
    group: int,
    tree: Tree,
    sampling: Sampling,
    eos: Tensor,
    pad: int,
    generator: torch.Generator,
) -> tuple[Completions, Tensor]:
    """As `sampler.sample`, but a group is the leaves of a tree, or of several; and the level of each token, (B, T).

    A leaf of a branch that ended early has the same completion as the first leaf of that branch. UserError where the
    leaves do not make up a group.
    """
    widths, (prompt_ids, prompt_mask) = trees.filling(tree.widths, group), prompts
    rows, steps, device = len(prompt_ids) * group, sampling.max_tokens, prompt_ids.device
    spans = torch.tensor([prod(widths[level + 1 :]) for level in range(len(widths))], device=device)
    every_width = torch.tensor([*widths[1:], 1], device=device)  # of the next branching, by level
    tokens, levels = (
        torch.full((rows, steps), pad, device=device),
        torch.zeros(rows, steps, dtype=torch.long, device=device),
    )
    numbers = torch.zeros(2, rows, steps, device=device)  # log-probabilities and entropies
    used = torch.zeros(rows, dtype=torch.bool, device=device)
    live = torch.arange(0, rows, int(spans[0]), device=device)  # rows of the output that are written
    used[live] = True
    decode = _engine_of(model, prompt_ids, prompt_mask, group, steps)
    logits = decode.logits[live]
    if len(live) < rows:
        decode.keep(live)
    level, since, t = torch.zeros_like(live), torch.zeros_like(live), 0
    going = torch.ones_like(live, dtype=torch.bool)
    turns = _Turns()
    while True:
        few = int((0.95 if decode.light else 0.75) * len(live))  # then the others leave
        unfinished = going & (level + 1 < len(widths))
        together = min(steps - t, turns.most)
        if bool(unfinished.any()):
            together = min(together, int((tree.every - since)[unfinished].min()) if tree.marks is None else 1)
        drawn = _drawn_tokens(decode, logits, sampling, eos, going, together, few, generator)
        turns.drew(len(drawn.tokens))
        here, chosen = slice(t, t + len(drawn.tokens)), drawn.tokens[-1]
        tokens[live, here], levels[live, here] = drawn.tokens.T, level[:, None]
        numbers[0, live, here], numbers[1, live, here] = drawn.logp.T, drawn.entropy.T
        t = here.stop
        count = int(going.sum())
        if count == 0 or t == steps:
            break
        since += len(drawn.tokens) if tree.marks is None else tree.marks[drawn.tokens].sum(0)
        if count <= few:
            live, chosen, level, since = live[going], chosen[going], level[going], since[going]
            decode.keep(going.nonzero()[:, 0])
            going = going[going]
        logits = decode.step(chosen)
        forks = going & (since >= tree.every) & (level + 1 < len(widths))
        if bool(forks.any()):
            repeats = torch.where(forks, every_width[level], 1) * going
            again = torch.arange(len(live), device=device).repeat_interleave(repeats)
            number = torch.arange(len(again), device=device) - (repeats.cumsum(0) - repeats)[again]  # of the branch
            level, since = (level + forks)[again], torch.where(forks, 0, since)[again]
            before, live, going = live[again], live[again] + number * spans[level], going[again]
            new = number > 0
            for array in (tokens, levels, *numbers):
                array[live[new], :t] = array[before[new], :t]
            used[live] = True
            decode.keep(again)
            logits = logits[again]
    owner = torch.where(used, torch.arange(rows, device=device), 0).cummax(0).values
    logp, entropy = numbers[:, owner]
    limits = torch.full((rows,), steps, device=device)
    completions = _finished(tokens[owner], logp, entropy, eos, pad, limits)
    return completions, levels[owner, : completions.mask.shape[1]] * completions.mask


logger = logging.getLogger("grposcope")


def _engine_of(
    model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int, precision: str = "float32"
) -> cpu.Decoder:
    """A decoder that has read the prompts (P, S), padded on the left, for `group` completions of ≤ `steps` tokens.

    precision: number format of its products, one of `lab.cpu.PRECISIONS`, where the decoder in C runs; others say once
    that they do not take it.
    """
    decode = cpu.decoder(model, ids, mask, group, steps, precision)
    if decode is None:
        if model.device.type == "cpu":
            why = "the fast decoder takes plain float32 Llama and Qwen2" if cpu.enabled() else "the CPU engine is off"
            _say_slow(f"{type(model).__name__} in {str(model.dtype).removeprefix('torch.')}", why)
        decode = _CachedDecoder(model, ids, mask, group, steps)
    if precision != "float32" and not isinstance(decode, cpu.DrawsAhead):
        _say_precision(precision, str(model.dtype).removeprefix("torch."))
    return decode


@cache
def _say_precision(asked: str, dtype: str) -> None:
    logger.warning("sampling in %s, not in %s, which only the decoder in C takes", dtype, asked)


@cache
def _say_slow(name: str, why: str) -> None:
    logger.warning("%s is sampled through its own forward, the slower way: %s", name, why)


class _CachedDecoder:
    """Any Hugging Face causal LM, through its own forward and cache."""

    light = False

    def __init__(self, model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int):
        start = model(
            input_ids=ids,
            attention_mask=mask.long(),
            position_ids=(mask.long().cumsum(-1) - 1).clamp(min=0),
            past_key_values=DynamicCache(),
            use_cache=True,
            logits_to_keep=1,
        )
        self.model, self.cache = model, start.past_key_values
        self.cache.batch_repeat_interleave(group)
        self.logits = start.logits[:, -1].repeat_interleave(group, 0)
        self.positions = mask.sum(-1).repeat_interleave(group)
        self.mask = F.pad(mask.repeat_interleave(group, 0).long(), (0, steps), value=1)
        self.width = ids.shape[1]

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token of each rollout (rows,); the logits after it, (rows, V)."""
        self.width += 1
        out = self.model(
            input_ids=tokens[:, None],
            attention_mask=self.mask[:, : self.width],
            position_ids=self.positions[:, None],
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.positions = self.positions + 1
        return out.logits[:, -1]

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order."""
        self.cache.batch_select_indices(rows)
        self.positions, self.mask = self.positions[rows], self.mask[rows]
