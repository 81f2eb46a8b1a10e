"""Inner products of the scores of rollouts, and of sums of copies of them with weights that vary along the rollout.

The gradient at a hidden layer carries the sum over all later tokens, so that weights of tokens are weights of the loss:
a copy of a rollout with weights c has the score Σ_t c_t s_t, from a row of its own in the same forward and backward
pass. Copies are summed over the rollouts of a prompt before their products are taken, so what they cost is their pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.core.run import Floats
from grposcope.instruments.gradient import backward, gram
from grposcope.instruments.gradient.probe import memory_needed, seconds_needed
from grposcope.instruments.gradient.score import Score, Use
from grposcope.lab import batch_memory, cpu, policies
from grposcope.lab.rollout_batch import RolloutBatch


@dataclass(frozen=True)
class Copies:
    """Rollouts that go through the model again, with weights of their own.

    rows (R,): the rollout of each copy. weights (R, T). part (R,): the sum that it belongs to, beside its prompt. Both
    ascend, `part` first.
    """

    rows: Tensor
    weights: Tensor
    part: Tensor


@dataclass(frozen=True)
class PromptSums:
    """The copies of one part, summed over each prompt that has any.

    part: its number. prompts (X,). which (X, W): places of the copies in the pass, W at most of a prompt; there (X, W):
    whether there is one.
    """

    part: int
    prompts: Tensor
    which: Tensor
    there: Tensor

    def of(self, score: Score) -> Score:
        """The sums as the score of X long rollouts."""
        if score.direct is not None:
            return replace(score, direct=(score.direct[self.which] * self.there[..., None]).sum(1))
        uses = tuple(
            Use(use.rows[self.which].flatten(1, 2), self._columns(use).flatten(1, 2), use.padding) for use in score.uses
        )
        return replace(score, uses=uses)

    def _columns(self, use: Use) -> Tensor:
        return use.columns[self.which].masked_fill_(~self.there[..., None, None], 0.0)


def _sums(copies: Copies, before: int, group: int) -> list[PromptSums]:
    """The sums that the copies make, which come after `before` rollouts in the pass."""
    found = []
    for number in copies.part.unique().tolist():
        places = (copies.part == number).nonzero()[:, 0]
        prompts, counts = (copies.rows[places] // group).unique_consecutive(return_counts=True)
        there = torch.arange(int(counts.max()), device=counts.device) < counts[:, None]
        which = torch.zeros(there.shape, dtype=torch.long, device=counts.device)
        which[there] = before + places
        found.append(PromptSums(number, prompts, which, there))
    return found


def measure(
    model: Any,
    rollouts: RolloutBatch,
    copies: Copies,
    temperature: float = 1.0,
    check: bool = True,
    foretold: Callable[[str], None] | None = None,
) -> tuple[Floats, tuple[PromptSums, ...], int, float]:
    """Inner products (B + ΣX, B + ΣX) of the scores of the rollouts and, after them, of the sums, over all parameters.

    Then the sums, how many copies there were, and the share of the parameters that is not measured.

    check: compare with autograd on a few tokens first; foretold: as in `probe`. UserError as from `probe`.
    """
    count, group = len(rollouts.mask), rollouts.groups[1]
    every = torch.cat((torch.arange(count, device=copies.rows.device), copies.rows))
    whole = replace(rollouts, weights=None, token_annotations={}).rows(every)
    attached = backward.attach(model, rollouts if check else None, temperature)
    needed, free = memory_needed(attached, whole), policies.available_memory(rollouts.mask.device)
    remedy = "use fewer prompts at a time, smaller groups or shorter completions"
    batch_memory.refuse_if_full("the pass", needed, free, remedy, backward.Refusal)
    if foretold is not None:
        told = f"the pass over {count:,} rollouts and {len(copies.rows):,} copies"
        foretold(batch_memory.foretold(told, needed, seconds_needed(attached, whole)))
    summed = _sums(copies, count, group)
    layers = _Layers(count, summed)
    weights = torch.cat((rollouts.mask.double(), copies.weights))
    attached.stream(whole, layers.measure, weights, keep=layers.keep)
    return layers.total.cpu().numpy(), tuple(summed), len(copies.rows), attached.share_left_out


class _Layers:
    """Sums the products over layers."""

    def __init__(self, rollouts: int, summed: Sequence[PromptSums]):
        self.rollouts, self.summed = rollouts, summed
        self.total = torch.zeros(())

    def measure(self, score: Score) -> Tensor:
        """The products of a layer, in float64."""
        scores = [_first(score, self.rollouts), *(use.of(score) for use in self.summed)]

        def work(piece: slice) -> Tensor:
            return gram.of_block(torch.cat([use.piece(piece) for use in scores]))

        total = torch.stack(cpu.map_pieces(work, score.pieces(), score.device)).sum(0)
        if not bool(torch.isfinite(total).all()):
            score.check_finite()
            raise UserError(f"layer {score.name}: inner products of its gradients overflow; scale the loss down")
        return total

    def keep(self, gradient: Tensor) -> None:
        """Add the products of a layer."""
        self.total = self.total.to(gradient) + gradient


def _first(score: Score, count: int) -> Score:
    """The score of the first rollouts alone."""
    if score.direct is not None:
        return replace(score, direct=score.direct[:count])
    return replace(score, uses=tuple(Use(use.rows[:count], use.columns[:count], use.padding) for use in score.uses))
