"""Log-probabilities of completions under a model of the Llama shape, and the gradient of a weighted sum of them.

A prompt is computed once for its group, and so are completions that are the same token by token, whose weights add up.
The head works on a few completions at a time: logits, log-probabilities, the weights that follow from them, and at once
the gradient, so that never all logits exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from transformers import PreTrainedModel

from grposcope.lab.cpu import llama_pass
from grposcope.lab.cpu.llama_pass import ModelParameters, Pass, Prefix, Stretch
from grposcope.lab.no_gradient import no_gradient
from grposcope.lab.rollout_batch import RolloutBatch

HEAD = 8_000_000
"""Logits that exist at once, unless a single completion has more."""

Weigh = Callable[[Tensor, Tensor], Tensor]
"""The weights ∂L/∂log π (b, T) of some rows (b,) of a batch, from these and their log-probabilities (b, T)."""


class Passes:
    """Passes of a model that `llama_pass.fits` says yes to."""

    def __init__(self, model: PreTrainedModel):
        self.model = model

    @property
    def bytes_per_token(self) -> int:
        """Memory that a pass keeps for its backward pass, per token."""
        return llama_pass.kept_bytes(self.model)

    @no_gradient
    def logprobs(self, rollouts: RolloutBatch, temperature: float, micro_batch: int) -> tuple[Tensor, Tensor]:
        """log π and Σ_v π_v² of every token of the batch, (B, T), 0 where masked; `micro_batch` rollouts at a time."""
        rows = torch.arange(len(rollouts.mask), device=rollouts.mask.device)
        return self._through(rollouts, rows, temperature, micro_batch, None, None)

    @no_gradient
    def accumulate(
        self,
        rollouts: RolloutBatch,
        rows: Tensor,
        temperature: float,
        micro_batch: int,
        weigh: Weigh,
        bonus: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Add the gradient of Σ w log π − Σ bonus · H over the rows (r,), in ascending order, to `.grad`.

        weigh: gives the weights w. bonus (B, T): coefficients of the entropies, or None. Returns log π (r, T) and the
        entropies in nats (r, T), 0 where masked, the latter 0 everywhere without a bonus.
        """
        return self._through(rollouts, rows, temperature, micro_batch, weigh, bonus)

    def _through(
        self,
        rollouts: RolloutBatch,
        rows: Tensor,
        temperature: float,
        micro_batch: int,
        weigh: Weigh | None,
        bonus: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """`accumulate`, or `logprobs` of some rows without weights."""
        same = _same(rollouts, rows)
        first, inverse = same[rows].unique(return_inverse=True)
        work = _Work(ModelParameters(self.model), rollouts, temperature, weigh, bonus, same)
        counts = (first // rollouts.groups[1]).unique_consecutive(return_counts=True)[1].tolist()
        bundles = first.split([sum(counts[run]) for run in _runs(counts, micro_batch)])
        parts = [batch for bundle in bundles for batch in work.bundle(bundle, micro_batch)]
        return torch.cat([logp for logp, _ in parts])[inverse], torch.cat([entropy for _, entropy in parts])[inverse]


def _same(rollouts: RolloutBatch, rows: Tensor) -> Tensor:
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
    """One batch on its way through the passes of a model, with gradients if there are weights.

    same (B,): the row that stands for each, the first of its group with the same completion; only these are passed on.
    """

    weights: ModelParameters
    rollouts: RolloutBatch
    temperature: float
    weigh: Weigh | None
    bonus: Tensor | None
    same: Tensor

    def bundle(self, rows: Tensor, micro_batch: int) -> list[tuple[Tensor, Tensor]]:
        """log π and entropies of the rows (b,), whose prompts are computed once, `micro_batch` rows at a time."""
        group = self.rollouts.groups[1]
        prompts, owner = (rows // group).unique_consecutive(return_inverse=True)
        before = Pass(self.weights, _prompts(self.rollouts, prompts * group), keep=self.weigh is not None)
        returned = torch.zeros_like(before.hidden)
        out = []
        for batch, own in zip(rows.split(micro_batch), owner.split(micro_batch), strict=True):
            after = Pass(
                self.weights, _completions(self.rollouts, batch), Prefix(before, own), keep=self.weigh is not None
            )
            hidden = torch.cat((before.hidden, after.hidden))
            positions = self._places(batch, before.stretch.mask.sum(-1).cumsum(0)[own] - 1, len(returned))
            gradient = torch.zeros_like(hidden)
            lengths = self.rollouts.mask[batch].sum(-1).tolist()
            out += [
                self._head(batch[some], positions[some], hidden, gradient)
                for some in _runs(lengths, HEAD // len(self.weights.head))
            ]
            if self.weigh is not None:
                after.backward(gradient[len(returned) :])
                returned += gradient[: len(returned)]
        if self.weigh is not None:
            before.backward(returned)
        return out

    def _places(self, rows: Tensor, ends: Tensor, start: int) -> Tensor:
        """Where the predecessor of each token lies, (b, T): at the end (b,) of the prompt, or from `start` on."""
        mask = self.rollouts.mask[rows]
        slots = torch.zeros(mask.shape, dtype=torch.long)
        slots[:, 0] = ends
        inputs = mask[:, 1:]
        slots[:, 1:][inputs] = torch.arange(start, start + int(inputs.sum()))
        return slots

    def _head(self, rows: Tensor, slots: Tensor, hidden: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """log π and entropies (b, T) of some rows; with weights their gradient is added to `gradient` of `hidden`.

        Without weights the second is Σ_v π_v².
        """
        mask, weight = self.rollouts.mask[rows], self.weights.head
        tokens, slots = self.rollouts.tokens[rows][mask][:, None], slots[mask]
        read = hidden[slots]
        logits = read @ weight.T
        if self.temperature != 1:
            logits /= self.temperature
        logits -= logits.amax(-1, keepdim=True)
        picked = logits.gather(-1, tokens)
        shifted = None if self.bonus is None else logits.clone()
        total = logits.exp_().sum(-1, keepdim=True)
        level = total.log()
        logp, entropy = (torch.zeros(mask.shape, dtype=hidden.dtype) for _ in range(2))
        logp[mask] = (picked - level)[:, 0]
        if shifted is not None:
            shifted -= level
            logits /= total
            entropy[mask] = -torch.linalg.vecdot(logits, shifted)
        if self.weigh is None:
            entropy[mask] = torch.linalg.vecdot(logits, logits) / total[:, 0].square()
            return logp, entropy
        every, standing = (self.same[:, None] == rows).nonzero(as_tuple=True)  # rows, and which of `rows` is theirs
        factor = _summed(self.weigh(every, logp[standing]), standing, mask).to(hidden.dtype) / self.temperature
        if shifted is not None and self.bonus is not None:
            rise = _summed(self.bonus[every], standing, mask).to(hidden.dtype) / self.temperature
            logits *= shifted.add_(entropy[mask][:, None]).mul_(rise).sub_(factor)
        else:
            logits *= -factor / total
        logits.scatter_add_(-1, tokens, factor)  # now the gradient of the products `read` times `weight`
        gradient.index_add_(0, slots, logits @ weight)
        llama_pass.add(weight, logits, read)
        return logp, entropy


def _summed(weights: Tensor, standing: Tensor, mask: Tensor) -> Tensor:
    """Sums of weights (m, T) over the rows for which each row of the mask (b, T) stands, where that is set, (n, 1)."""
    return weights.new_zeros(mask.shape).index_add_(0, standing, weights)[mask][:, None]


def _prompts(rollouts: RolloutBatch, rows: Tensor) -> Stretch:
    """The prompts of the rows (b,)."""
    mask_of_prompts = rollouts.prompt_mask[rows]
    lengths = mask_of_prompts.sum(-1)
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    return Stretch(rollouts.prompt_ids[rows][mask_of_prompts], mask.nonzero()[:, 1], mask)


def _completions(rollouts: RolloutBatch, rows: Tensor) -> Stretch:
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
