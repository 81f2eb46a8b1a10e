"""w = ∂L/∂log π of every token of a batch, from what the settings state: closed forms, without autograd.

Rows are the rollouts of one optimiser step. With c the coefficients of the reduction, ρ the ratio to the old
log-probabilities and q = log π_ref − log π, the surrogate "clip" has w = −c A ρ where the clip does not hold the token,
and k3 adds β c (1 − e^q). The gradient of the loss is Σ w ∇log π, whatever the loss is (`lab.objectives.objective`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.rollouts import Rollout
from grposcope.core.run import Floats
from grposcope.signs.rollouts.stated_loss import StatedLoss


@dataclass(frozen=True)
class StatedWeights:
    """Of each row (T,): w of the surrogate, w of the KL term for β = 1, and the coefficients c of the reduction."""

    policy: list[Floats]
    kl: list[Floats]
    coefficients: list[Floats]

    def total(self, kl: float) -> list[Floats]:
        """w of the loss with the KL coefficient `kl`."""
        return [weights_of_row + kl * other for weights_of_row, other in zip(self.policy, self.kl, strict=True)]


def of_update(rows: Sequence[Rollout]) -> list[int]:
    """Places of the rows of a batch that its first optimiser step took: those of which something of the loss is known.

    Where nothing of the loss was recorded, all that were not dropped.
    """
    present = [index for index, row in enumerate(rows) if not row.dropped]
    for column in ("loss_weights", "current"):
        some = [index for index in present if getattr(rows[index], column) is not None]
        if some:
            return some
    return present


def of(
    loss: StatedLoss,
    rows: Sequence[Rollout],
    every: Sequence[Rollout] | None = None,
    current: Sequence[Floats | None] | None = None,
) -> StatedWeights:
    """The weights of the rows of an optimiser step, 0 on tokens that no mean counts.

    every: all rows of the batch of rollouts, where the step took a part of them. current: log-probabilities (T,) in
    place of the recorded ones; a row with neither has a log-probability of 0. A row without old log-probabilities has a
    ratio of 1; one without those of the reference has NaN for the KL term.
    """
    logp = [row.current for row in rows] if current is None else list(current)
    derivatives = [np.zeros(length(row)) if derivative is None else np.asarray(derivative, np.float64)
             for row, derivative in zip(rows, logp, strict=True)]  # fmt: skip
    masks = [counted(row, loss, len(derivative)) for row, derivative in zip(rows, derivatives, strict=True)]
    coefficients = _coefficients(loss, rows, masks, rows if every is None else every)
    policy, kl = [], []
    for row, derivative, mask, c in zip(rows, derivatives, masks, coefficients, strict=True):
        derivative = np.where(mask > 0, derivative, 0.0)
        ratio = ratio_of(loss, row, derivative, mask)
        credit = (
            np.zeros(len(derivative)) if row.advantages is None else np.broadcast_to(row.advantages, len(derivative))
        )
        policy.append(-c * np.where(mask > 0, _slope(loss, ratio, np.nan_to_num(credit)), 0.0))
        kl.append(np.where(mask > 0, c * _pull(loss, row, derivative, ratio), 0.0))
    return StatedWeights(policy, kl, coefficients)


def counted(row: Rollout, loss: StatedLoss, width: int) -> Floats:
    """1 on the tokens (T,) that the means of the loss count, else 0."""
    if loss.counted == "all" or row.mask is None or len(row.mask) != width:
        return np.ones(width) if row.written is None or len(row.written) != width else row.written.astype(np.float64)
    return row.mask.astype(np.float64)


def _coefficients(
    loss: StatedLoss, rows: Sequence[Rollout], masks: Sequence[Floats], every: Sequence[Rollout]
) -> list[Floats]:
    """c (T,) of each row."""
    count = max(len(rows), 1)
    if loss.reduction == "token mean":
        tokens = sum(float(mask.sum()) for mask in masks)
        if loss.over == "batch" and len(every) > len(rows):
            tokens = sum(float(counted(row, loss, length(row)).sum()) for row in every) * len(rows) / len(every)
        return [mask / max(tokens, 1.0) for mask in masks]
    if loss.reduction == "part token mean":
        sums: dict[int, float] = {}
        for row, mask in zip(rows, masks, strict=True):
            sums[row.micro_batch] = sums.get(row.micro_batch, 0.0) + float(mask.sum())
        return [mask / max(sums[row.micro_batch], 1.0) / len(sums) for row, mask in zip(rows, masks, strict=True)]
    if loss.reduction == "constant length":
        return [mask / (max(loss.length, 1) * count) for mask in masks]
    if loss.reduction == "sequence sum":
        return [mask / count for mask in masks]
    return [mask / max(float(mask.sum()), 1.0) / count for mask in masks]


def length(row: Rollout) -> int:
    """Tokens of the completion, 0 where nothing says it."""
    lists = (row.completion_ids, row.mask, row.current, row.old)
    return next((len(sequence) for sequence in lists if sequence is not None), 0)


def ratio_of(loss: StatedLoss, row: Rollout, logp: Floats, mask: Floats) -> Floats:
    """ρ (T,); 1 where there are no old log-probabilities."""
    old = row.sampler if loss.old == "sampler" else row.old
    if loss.ratio == "none" or old is None or len(old) != len(logp):
        return np.ones(len(logp))
    shift = np.where((mask > 0) & np.isfinite(old), logp - np.nan_to_num(old), 0.0)
    if loss.ratio == "sequence":
        shift = np.full(len(logp), float(shift.sum()) / max(float(mask.sum()), 1.0))
    return np.exp(np.clip(shift, -80, 80))


def _slope(loss: StatedLoss, ratio: Floats, credit: Floats) -> Floats:
    """∂ surrogate / ∂ log π (T,)."""
    if loss.surrogate == "plain":
        return ratio * credit
    if loss.surrogate == "weighted":
        return np.clip(ratio, 1 - loss.low, 1 + loss.high) * credit
    clipped = ((ratio < 1 - loss.low) & (credit < 0)) | ((ratio > 1 + loss.high) & (credit > 0))
    if loss.bound:
        clipped |= (ratio > loss.bound) & (credit < 0)
    return np.where(clipped, 0.0, credit if loss.surrogate == "one-sided" else ratio * credit)


def _pull(loss: StatedLoss, row: Rollout, logp: Floats, ratio: Floats) -> Floats:
    """∂ divergence / ∂ log π (T,), NaN without a reference."""
    if row.reference is None or len(row.reference) != len(logp):
        return np.full(len(logp), np.nan)
    q = np.clip(row.reference - logp, -80, 80)
    value = {"k1": -q, "k2": q * q / 2}.get(loss.divergence, np.exp(q) - 1 - q)
    slope = {"k1": np.ones(len(q)), "k2": -q}.get(loss.divergence, 1 - np.exp(q))
    return ratio * (slope + value) if loss.kl_weighted else slope


REDUCTIONS: Mapping[str, str] = {
    "sequence mean": "a mean over each rollout, then over rollouts",
    "token mean": "a mean over all tokens",
    "part token mean": "a mean of the means of the micro-batches",
    "constant length": "sums over a constant length",
    "sequence sum": "sums over each rollout",
}
"""Reduction -> in words."""
