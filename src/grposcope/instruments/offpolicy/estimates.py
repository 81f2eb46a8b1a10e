"""Products of the prompts' estimates under every correction, from one forward and backward pass of a model.

A prompt's estimate is Σ_i u_i Σ_t c_it s_it. A correction with one coefficient per rollout follows from the rollouts'
scores; coefficients that vary along a rollout take a copy of it in the pass (`gradient.copies`). What has to be copied
is little, since c − w, by which a correction differs from full weights, splits into

    (α − w) · 1      α the coefficient of the last token: no copy
    ρ_t − 1          one copy for all corrections that let most ratios through unchanged, then with α = 1
    the rest         a copy where it is not 0: of a capped ratio, rollouts with a ratio above the cap

Rollouts without a credit take no part. All products are of the differences c − w, so that a small bias is not what is
left of two large numbers. Method of this project.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from grposcope.core.errors import UserError
from grposcope.instruments import has, needed
from grposcope.instruments.offpolicy import error
from grposcope.instruments.offpolicy.error import GradientProducts
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.maths.corrections import Correction
from grposcope.maths.importance import Floats, Ratios, exp

if TYPE_CHECKING and has("gradient"):
    from grposcope.instruments.gradient.copies import PromptSums


def _split(correction: Correction, ratios: Ratios) -> tuple[Floats, bool, Floats]:
    """A correction's c − w as `constant` (B,) · 1 + `of_ratio` · (ρ − 1) + `rest` (N,), over the tokens of all rollouts
    end to end; with ρ − 1 where that leaves the rest 0 in more rollouts."""
    coefficients, weights = correction.coefficients(ratios), exp(ratios.sequence)
    last = coefficients[ratios.starts + ratios.lengths - 1]
    beside_last, beside_ratio = coefficients - ratios.spread(last), coefficients - exp(ratios.log)
    copied = [np.count_nonzero(ratios.sums(np.abs(rest))) for rest in (beside_last, beside_ratio)]
    if copied[1] < copied[0]:
        return 1 - weights, True, beside_ratio
    return last - weights, False, beside_last


@dataclass(frozen=True)
class CorrectedProducts:
    """products: of the prompts' estimates, by correction. norms (B,): ‖s_i‖, NaN for rollouts without a credit.

    copies: rollouts that went through the model again. left_out: share of the parameters that is not measured.
    """

    products: dict[str, GradientProducts]
    norms: Floats
    copies: int
    left_out: float


def measure(
    model: Any,
    rollouts: RolloutBatch,
    ratios: Ratios,
    corrections: Sequence[Correction],
    temperature: float = 1.0,
    check: bool = True,
    foretold: Callable[[str], None] | None = None,
) -> CorrectedProducts:
    """Products under each correction, with leave-one-out advantages of the rollouts' rewards.

    ratios: of the tokens in the mask, rollout after rollout. check: compare with autograd on a few tokens first.
    foretold: is given a line on memory and time before the pass. UserError as from `probe`, and where every group has
    equal rewards.
    """
    advantages = error.leave_one_out(rollouts.rewards.double().cpu().numpy())
    prompts, group = advantages.shape
    live = np.flatnonzero(advantages.any(1))
    if not len(live):
        raise UserError(f"all {prompts} groups have equal rewards, so there is no gradient; use more prompts")
    few, shares = rollouts.take(torch.from_numpy(live).to(rollouts.mask.device)), advantages[live].reshape(-1) / group
    own = ratios.rows((live[:, None] * group + np.arange(group)).reshape(-1))
    splits = [_split(correction, own) for correction in corrections]
    crossed, sums, copied, left_out = _passed(model, few, _parts(splits, own, shares), temperature, check, foretold)
    norms = np.full((prompts, group), np.nan)
    norms[live] = np.sqrt(np.maximum(np.diag(crossed)[: len(shares)], 0.0)).reshape(-1, group)
    full = _combination(shares * exp(own.sequence), group, sums, ())

    def product(vector: Floats, right: Floats) -> Floats:
        """Of all prompts (P, P), 0 for those whose rewards are equal."""
        every = np.zeros((prompts, prompts))
        every[np.ix_(live, live)] = vector @ crossed @ right.T
        return every

    products = {}
    for number, (correction, (constant, of_ratio, _)) in enumerate(zip(corrections, splits, strict=True), 1):
        taken = (number, RATIO) if of_ratio else (number,)
        difference = _combination(shares * constant, group, sums, taken)
        products[correction.name] = _from_differences(
            product(difference, difference), product(difference, full), product(full, full)
        )
    return CorrectedProducts(products, norms.reshape(-1), copied, left_out)


def _from_differences(difference: Floats, along: Floats, full: Floats) -> GradientProducts:
    """Products from ⟨d(x), d(y)⟩, ⟨d(x), ĝ_full(y)⟩ and ⟨ĝ_full(x), ĝ_full(y)⟩, (P, P) each."""
    return GradientProducts(difference + along + along.T + full, along + full, full)


RATIO = 0
"""Number of the part with the weights ρ − 1; that of a correction's rest is its own, from 1."""


def _parts(splits: Sequence[tuple[Floats, bool, Floats]], ratios: Ratios, shares: Floats) -> list[Floats]:
    """Weights of tokens (N,) by the number of the part; shares (B,): u_i, by which they are multiplied."""
    first = exp(ratios.log) - 1 if any(of_ratio for _, of_ratio, _ in splits) else np.zeros(len(ratios.log))
    return [ratios.spread(shares) * values for values in (first, *(rest for *_, rest in splits))]


def _passed(
    model: Any,
    rollouts: RolloutBatch,
    parts: Sequence[Floats],
    temperature: float,
    check: bool,
    foretold: Callable[[str], None] | None,
) -> tuple[Floats, tuple[PromptSums, ...], int, float]:
    """The pass over the rollouts and a copy of each for every part whose weights are not 0 along it."""
    if has("gradient"):
        from grposcope.instruments.gradient import copies
    else:
        raise UserError(needed(["gradient"]))
    mask, rows, weights = rollouts.mask.cpu(), [], []
    for values in parts:
        placed = torch.zeros(mask.shape, dtype=torch.float64)
        placed[mask] = torch.from_numpy(values)
        rows.append(placed.any(-1).nonzero()[:, 0])
        weights.append(placed[rows[-1]])
    numbers = [torch.full((len(some),), number) for number, some in enumerate(rows)]
    made = copies.Copies(*(torch.cat(each).to(rollouts.mask.device) for each in (rows, weights, numbers)))
    return copies.measure(model, rollouts, made, temperature, check, foretold)


def _combination(values: Floats, group: int, sums: Sequence[PromptSums], taken: Sequence[int]) -> Floats:
    """Estimates of prompts as combinations of rollouts, with values (B,), and of the sums that are taken; (P, n)."""
    prompts = len(values) // group
    blocks = [np.kron(np.eye(prompts), np.ones(group)) * values]
    for total in sums:
        chosen = np.zeros((prompts, len(total.prompts)))
        if total.part in taken:
            chosen[total.prompts.cpu().numpy(), np.arange(len(total.prompts))] = 1.0
        blocks.append(chosen)
    return np.hstack(blocks)
