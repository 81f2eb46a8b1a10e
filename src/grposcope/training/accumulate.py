"""The gradient of Σ w log π of given completions, added to `.grad`; and log π alone, without gradients.

Models of the Llama shape go through `llama_pass`: a prompt is computed once for its group, and so are completions that
are the same token by token, whose weights add up. The head works on a few completions at a time: logits,
log-probabilities, the weights that follow from them, and at once the gradient, so that never all logits exist. Any
other model goes through its own forward and autograd, with the same result, which is said once, with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from grposcope.policies import recomputes_activations
from grposcope.records import Rollouts
from grposcope.training import llama_pass
from grposcope.training.llama_pass import ModelParameters, Pass, Prefix, Stretch
from grposcope.training.logprobs import token_collisions, token_logprobs

logger = logging.getLogger("grposcope")

HEAD = 8_000_000
"""Logits that exist at once, unless a single completion has more."""

Weigh = Callable[[Tensor, Tensor], Tensor]
"""The weights ∂L/∂log π (b, T) of some rows (b,) of a batch, from these and their log-probabilities (b, T)."""


@dataclass(frozen=True)
class Term:
    """What is differentiated: Σ w log π − Σ bonus · H. bonus (B, T): coefficients of the entropies, or None."""

    weigh: Weigh
    bonus: Tensor | None = None


def accumulate(
    model: PreTrainedModel, rollouts: Rollouts, rows: Tensor, temperature: float, micro_batch: int, term: Term
) -> tuple[Tensor, Tensor]:
    """Add the gradient of `term` over the rows (r,), in ascending order, to `.grad` of the parameters.

    Returns log π (r, T) and the entropies in nats (r, T), 0 where masked, the latter 0 everywhere without a bonus.
    Completions go through the model `micro_batch` at a time.
    """
    if not len(rows):
        return torch.zeros(rollouts.mask[rows].shape), torch.zeros(rollouts.mask[rows].shape)
    reason = _why_not_by_hand(model)
    if not reason:
        return _by_hand(model, rollouts, rows, temperature, micro_batch, term)
    if model.device.type == "cpu":
        _say_slow(reason)
    model.train(recomputes_activations(model))
    parts = [_by_autograd(model, rollouts, part, temperature, term) for part in rows.split(micro_batch)]
    model.eval()
    return torch.cat([logp for logp, _ in parts]), torch.cat([entropy for _, entropy in parts])


def _why_not_by_hand(model: PreTrainedModel) -> str:
    """Why the gradient of this model is left to autograd, as a clause; empty where `Pass` takes it."""
    if not all(p.requires_grad for p in model.parameters()):
        return "some of its weights are not trained"
    if recomputes_activations(model):
        return "it recomputes activations (gradient checkpointing)"
    if not llama_pass.fits(model):
        return f"{type(model).__name__} in {str(model.dtype).removeprefix('torch.')} is no plain Llama or Qwen2"
    return ""


@cache
def _say_slow(reason: str) -> None:
    logger.warning("updates go through the model's own forward and autograd, the slower way: %s", reason)


@torch.no_grad()
def frozen_logprobs(model: PreTrainedModel, rollouts: Rollouts, temperature: float, micro_batch: int) -> Tensor:
    """log π of the whole batch without gradients, (B, T), `micro_batch` rollouts at a time."""
    rows = torch.arange(len(rollouts.mask), device=rollouts.mask.device)
    if llama_pass.fits(model):
        return _by_hand(model, rollouts, rows, temperature, micro_batch, None)[0]
    width = rollouts.mask.shape[1]
    parts = [token_logprobs(model, rollouts, part, temperature)[0] for part in rows.split(micro_batch)]
    return torch.cat([F.pad(part, (0, width - part.shape[1])) for part in parts])


@torch.no_grad()
def collisions(model: PreTrainedModel, rollouts: Rollouts, temperature: float, micro_batch: int) -> Tensor:
    """Σ_v π_v² of every token's distribution, (B, T), 0 where masked: the chance that two draws are the same token."""
    rows = torch.arange(len(rollouts.mask), device=rollouts.mask.device)
    if llama_pass.fits(model):
        return _by_hand(model, rollouts, rows, temperature, micro_batch, None)[1]
    width = rollouts.mask.shape[1]
    parts = [token_collisions(model, rollouts, part, temperature) for part in rows.split(micro_batch)]
    return torch.cat([F.pad(part, (0, width - part.shape[1])) for part in parts])


def _by_autograd(
    model: PreTrainedModel, rollouts: Rollouts, rows: Tensor, temperature: float, term: Term
) -> tuple[Tensor, Tensor]:
    logp, entropy = token_logprobs(model, rollouts, rows, temperature, entropy=term.bonus is not None)
    narrow = (0, rollouts.mask.shape[1] - logp.shape[1])
    logp = F.pad(logp, narrow)
    total = (term.weigh(rows, logp.detach()) * logp).sum()
    nats = torch.zeros_like(logp) if entropy is None else F.pad(entropy, narrow)
    if term.bonus is not None:
        total = total - (term.bonus[rows] * nats).sum()
    total.backward()
    return logp.detach(), nats.detach()


@torch.no_grad()
def _by_hand(
    model: PreTrainedModel, rollouts: Rollouts, rows: Tensor, temperature: float, micro_batch: int, term: Term | None
) -> tuple[Tensor, Tensor]:
    """`accumulate` through `Pass`; without a term log π and, in place of entropies, Σ_v π_v²."""
    same = _same(rollouts, rows)
    first, place = same[rows].unique(return_inverse=True)
    work = _Work(ModelParameters(model), rollouts, temperature, term, same)
    counts = (first // rollouts.groups[1]).unique_consecutive(return_counts=True)[1].tolist()
    bundles = first.split([sum(counts[run]) for run in _runs(counts, micro_batch)])
    parts = [part for bundle in bundles for part in work.bundle(bundle, micro_batch)]
    return torch.cat([logp for logp, _ in parts])[place], torch.cat([entropy for _, entropy in parts])[place]


def _same(rollouts: Rollouts, rows: Tensor) -> Tensor:
    """For each of the rows (r,), the first of them in its group with the same completion; (B,), -1 for all others."""
    seen: dict[tuple[int, ...], int] = {}
    group, mask = rollouts.groups[1], rollouts.mask[rows]
    completions = rollouts.tokens[rows].masked_fill(~mask, -1).tolist()
    first = [seen.setdefault((row // group, *ids), row) for row, ids in zip(rows.tolist(), completions, strict=True)]
    same = torch.full((len(rollouts.mask),), -1, device=rows.device)
    same[rows] = torch.tensor(first, device=rows.device)
    return same


@dataclass(frozen=True)
class _Work:
    """One batch on its way through the passes of a model, with gradients if there is a term.

    same (B,): the row that stands for each, the first of its group with the same completion; only these are passed on.
    """

    weights: ModelParameters
    rollouts: Rollouts
    temperature: float
    term: Term | None
    same: Tensor

    def bundle(self, rows: Tensor, micro_batch: int) -> list[tuple[Tensor, Tensor]]:
        """log π and entropies of the rows (b,), whose prompts are computed once, `micro_batch` rows at a time."""
        group = self.rollouts.groups[1]
        prompts, owner = (rows // group).unique_consecutive(return_inverse=True)
        before = Pass(self.weights, _prompts(self.rollouts, prompts * group), keep=self.term is not None)
        returned = torch.zeros_like(before.hidden)
        out = []
        for part, own in zip(rows.split(micro_batch), owner.split(micro_batch), strict=True):
            after = Pass(
                self.weights, _completions(self.rollouts, part), Prefix(before, own), keep=self.term is not None
            )
            hidden = torch.cat((before.hidden, after.hidden))
            place = self._places(part, before.stretch.mask.sum(-1).cumsum(0)[own] - 1, len(returned))
            gradient = torch.zeros_like(hidden)
            lengths = self.rollouts.mask[part].sum(-1).tolist()
            out += [
                self._head(part[some], place[some], hidden, gradient)
                for some in _runs(lengths, HEAD // len(self.weights.head))
            ]
            if self.term is not None:
                after.backward(gradient[len(returned) :])
                returned += gradient[: len(returned)]
        if self.term is not None:
            before.backward(returned)
        return out

    def _places(self, rows: Tensor, ends: Tensor, start: int) -> Tensor:
        """Where the predecessor of each token lies, (b, T): at the end (b,) of the prompt, or from `start` on."""
        mask = self.rollouts.mask[rows]
        place = torch.zeros(mask.shape, dtype=torch.long)
        place[:, 0] = ends
        inputs = mask[:, 1:]
        place[:, 1:][inputs] = torch.arange(start, start + int(inputs.sum()))
        return place

    def _head(self, rows: Tensor, place: Tensor, hidden: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """log π and entropies (b, T) of some rows; with a term their gradient is added to `gradient` of `hidden`.

        Without a term the second is Σ_v π_v².
        """
        mask, weight = self.rollouts.mask[rows], self.weights.head
        tokens, place = self.rollouts.tokens[rows][mask][:, None], place[mask]
        read = hidden[place]
        logits = read @ weight.T
        if self.temperature != 1:
            logits /= self.temperature
        logits -= logits.amax(-1, keepdim=True)
        picked = logits.gather(-1, tokens)
        bonus = None if self.term is None else self.term.bonus
        shifted = None if bonus is None else logits.clone()
        total = logits.exp_().sum(-1, keepdim=True)
        level = total.log()
        logp, entropy = (torch.zeros(mask.shape, dtype=hidden.dtype) for _ in range(2))
        logp[mask] = (picked - level)[:, 0]
        if shifted is not None:
            shifted -= level
            logits /= total
            entropy[mask] = -torch.linalg.vecdot(logits, shifted)
        if self.term is None:
            entropy[mask] = torch.linalg.vecdot(logits, logits) / total[:, 0].square()
            return logp, entropy
        every, standing = (self.same[:, None] == rows).nonzero(as_tuple=True)  # rows, and which of `rows` is theirs
        factor = _summed(self.term.weigh(every, logp[standing]), standing, mask).to(hidden.dtype) / self.temperature
        if shifted is not None and bonus is not None:
            rise = _summed(bonus[every], standing, mask).to(hidden.dtype) / self.temperature
            logits *= shifted.add_(entropy[mask][:, None]).mul_(rise).sub_(factor)
        else:
            logits *= -factor / total
        logits.scatter_add_(-1, tokens, factor)  # now the gradient of the products `read` times `weight`
        gradient.index_add_(0, place, logits @ weight)
        llama_pass.add(weight, logits, read)
        return logp, entropy


def _summed(weights: Tensor, standing: Tensor, mask: Tensor) -> Tensor:
    """Sums of weights (m, T) over the rows for which each row of the mask (b, T) stands, where that is set, (n, 1)."""
    return weights.new_zeros(mask.shape).index_add_(0, standing, weights)[mask][:, None]


def _prompts(rollouts: Rollouts, rows: Tensor) -> Stretch:
    """The prompts of the rows (b,)."""
    given = rollouts.prompt_mask[rows]
    lengths = given.sum(-1)
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    return Stretch(rollouts.prompt_ids[rows][given], mask.nonzero()[:, 1], mask)


def _completions(rollouts: Rollouts, rows: Tensor) -> Stretch:
    """The tokens of the rows' completions that predict a further one, which the last of each does not."""
    inputs = rollouts.mask[rows].sum(-1) - 1
    mask = torch.arange(max(1, int(inputs.max()))) < inputs[:, None]
    row, step = mask.nonzero(as_tuple=True)
    return Stretch(rollouts.tokens[rows][row, step], rollouts.prompt_mask[rows].sum(-1)[row] + step, mask)


def _runs(sizes: Sequence[int], room: int) -> list[slice]:
    """Slices of neighbours whose sizes sum to at most `room`, as long as possible, of one item at least."""
    starts, filled = [0], 0
    for index, size in enumerate(sizes):
        if filled and filled + size > room:
            starts.append(index)
            filled = 0
        filled += size
    return [slice(*ends) for ends in pairwise([*starts, len(sizes)])]
