"""The answer from a model: the trainer's log-probabilities, and the gradient's error under every correction.

A batch carries the log-probabilities of the sampler that drew it. Several batches are pooled: their prompts decide
together, so that a choice does not wait for a batch that would not fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.instruments.offpolicy import answer, error, estimates, probe_file
from grposcope.instruments.offpolicy.answer import OffPolicyFound
from grposcope.instruments.offpolicy.read import MismatchedRollouts
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.maths.corrections import ALL


def measure(
    model: Any,
    batches: Sequence[RolloutBatch],
    micro_batch: int,
    temperature: float = 1.0,
    check: bool = True,
    progress: Callable[[str], None] = lambda _: None,
    cut: str = "",
) -> tuple[MismatchedRollouts, OffPolicyFound]:
    """What batches of one shape (P, G), with the log-probabilities of their sampler, say of `model` as the trainer.

    Batches without a gradient are left out. micro_batch: rollouts of a pass without gradients. cut: the tokens that the
    sampler draws from, in words, where these are not all. UserError as from `estimates.measure`.
    """
    live = [batch for batch in batches if not bool((batch.rewards == batch.rewards[:, :1]).all())]
    if len(live) < len(batches):
        progress(f"{len(batches) - len(live)} of {len(batches)} batches have no gradient: their rewards are equal")
    if not live:
        raise UserError("all groups have equal rewards, so there is no gradient; use more prompts, or another task")
    parts = []
    for number, batch in enumerate(live, 1):
        own = mismatched(batch, frozen_logprobs(model, batch, temperature, micro_batch))
        first = number == 1
        told = progress if first else None
        measured = estimates.measure(model, batch, own.ratios, ALL, temperature, check and first, told)
        parts.append((own, measured))
        progress(f"batch {number} of {len(live)}: {parts[-1][1].copies} rollouts were run through the trainer's model")
    drawn = replace(probe_file.joined([own for own, _ in parts]), cut=cut)
    products = {
        correction.name: error.pooled([measured.products[correction.name] for _, measured in parts])
        for correction in ALL
    }
    norms = np.concatenate([measured.norms for _, measured in parts])
    return drawn, answer.found(drawn, answer.errors_of(drawn, products, norms))


def mismatched(batch: RolloutBatch, trainer: Tensor, behind: Tensor | None = None) -> MismatchedRollouts:
    """The log ratios of a batch from the trainer's log-probabilities (B, T); UserError for empty completions.

    behind (P,): versions by which the weights that drew each group are behind the trainer's, where that is known.
    """
    mask = batch.mask.cpu()
    difference = (trainer.double() - batch.logp.double()).cpu()
    unknown = difference.isnan() & mask
    logs = [row[mask_row].numpy() for row, mask_row in zip(difference.masked_fill(unknown, 0.0), mask, strict=True)]
    prompts, group = batch.groups
    rewards = batch.rewards.double().cpu().numpy().reshape(-1)
    sampler = [
        row[mask_row].double().nan_to_num().numpy() for row, mask_row in zip(batch.logp.cpu(), mask, strict=True)
    ]
    lags = None if behind is None else np.repeat(behind.double().cpu().numpy(), group)
    return MismatchedRollouts(
        logs, int(unknown.sum()), rewards, None, np.repeat(np.arange(prompts), group), True, sampler, behind=lags
    )
