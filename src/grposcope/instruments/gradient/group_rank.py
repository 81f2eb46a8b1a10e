"""Rank of the credit-weighted scores of one group in one layer, as arXiv:2606.29238 ([PG]) defines it.

The matrix has a row A_i ψ_i per rollout of a group, ψ_i the layer's part of the score ∇ log π(y_i|x) and A_i = r_i − r̄
(any group-relative advantage differs by a factor), R × d. With its singular values σ₁ ≥ σ₂ ≥ …

    r_eff = (Σσ)² / Σσ²        top-1 = σ₁² / Σσ²

σ² are the eigenvalues of A_i ⟨ψ_i, ψ_j⟩ A_j, so they follow from the R × R Gram matrix of the layer. Two things stand
beside them (both a method of this project, no publication):

    null       (Σ|A|)² / ΣA², that of orthogonal rows of equal score norm: 4K(R−K)/R for K of R rollouts right, which
               is 2 at R = 2 by algebra. With the lengths that the scores have, (Σ|A|‖ψ‖)²/ΣA²‖ψ‖², it is larger where
               what is rarer has shorter scores. r_eff is never above that (the diagonal of a Gram matrix is majorised
               by its eigenvalues), and below it by what scores have in common
    cut at two the same after all but the two largest σ are dropped: 1 + 2√(f(1−f)), f = σ₁²/(σ₁² + σ₂²), at most 2
               whatever the gradient. [PG] takes a "truncated" SVD and does not say of which length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import NOT_MEASURED, Estimate

Array = NDArray[np.float64]

ROUNDING = 1e-8
"""Share of σ₁² below which a σ² is rounding: copies of one completion give rows that differ by a factor."""


@dataclass(frozen=True)
class GroupRank:
    """Rank of the rows A_i ψ_i: the median over weight matrices, mean over live groups, with its error over groups.

    rank: r_eff. top: top-1 share. rank_of_two, top_of_two: both cut at two singular values. null: (Σ|A|)²/ΣA².
    deviation: standard deviation of the rewards of a live group (ddof 0). null_of_lengths: r_eff of orthogonal rows of
    the lengths that these have.
    """

    rank: Estimate = NOT_MEASURED
    top: Estimate = NOT_MEASURED
    rank_of_two: Estimate = NOT_MEASURED
    top_of_two: Estimate = NOT_MEASURED
    null: Estimate = NOT_MEASURED
    deviation: Estimate = NOT_MEASURED
    null_of_lengths: Estimate = NOT_MEASURED


@dataclass(frozen=True)
class LayerRanks:
    """Ranks of every live group in every layer, each (L, live groups), and of the groups alone (live groups,).

    rank, top, rank_of_two, top_of_two, lengths: see `GroupRank`, lengths being its null_of_lengths; NaN where a layer
    has no gradient. null, deviation: per group.
    """

    rank: Array
    top: Array
    rank_of_two: Array
    top_of_two: Array
    null: Array
    deviation: Array
    lengths: Array

    def summary(self) -> GroupRank:
        """Median over layers of each group, mean over groups; NaN with the reason without a live group."""
        if not self.rank.size:
            nothing = Estimate(math.nan, math.nan, 0, "no group has unequal rewards")
            return GroupRank(*(nothing,) * 7)
        rank, top, rank_of_two, top_of_two = (_over_groups(np.nanmedian(values, 0)) for values in self.of_layers)
        return GroupRank(
            rank, top, rank_of_two, top_of_two, null=_over_groups(self.null), deviation=_over_groups(self.deviation),
            null_of_lengths=_over_groups(np.nanmedian(self.lengths, 0)),
        )  # fmt: skip

    def of_layer(self, number: int) -> dict[str, float]:
        """The measures of one layer by name, mean over live groups."""
        names = ("rank", "top", "rank_of_two", "top_of_two")
        return (
            {}
            if not self.rank.size
            else {name: float(np.mean(values[number])) for name, values in zip(names, self.of_layers, strict=True)}
        )

    @property
    def of_layers(self) -> tuple[Array, Array, Array, Array]:
        """What there is of every layer, each (L, live groups)."""
        return self.rank, self.top, self.rank_of_two, self.top_of_two


def measure(rewards: Array, layers: Sequence[Array]) -> LayerRanks:
    """Ranks of every live group in every layer, from rewards (P, G) and Gram matrices (B, B), prompt-major."""
    group = rewards.shape[1]
    live = [prompt for prompt, of_group in enumerate(rewards) if np.ptp(of_group) > 0]
    centred = rewards[live] - rewards[live].mean(1, keepdims=True)
    places = [slice(prompt * group, (prompt + 1) * group) for prompt in live]
    values, lengths = np.empty((2, len(layers), len(live), group))
    for number, gram in enumerate(layers):
        blocks = np.array([gram[rows, rows] for rows in places]).reshape(-1, group, group)
        values[number] = _singular_values(centred, blocks)
        lengths[number] = np.abs(centred) * np.sqrt(np.maximum(blocks.diagonal(0, -2, -1), 0.0))
    two = values[..., :2]
    return LayerRanks(
        _effective_rank(values),
        _top_share(values),
        _effective_rank(two),
        _top_share(two),
        _null(centred),
        rewards[live].std(1),
        _effective_rank(lengths),
    )


def _singular_values(advantages: Array, grams: Array) -> Array:
    """Singular values (..., G), decreasing, of the rows A_i ψ_i from advantages (..., G) and ⟨ψ_i, ψ_j⟩ (..., G, G)."""
    if not len(grams):
        return np.empty(advantages.shape)
    energies = np.linalg.eigvalsh(advantages[..., :, None] * grams * advantages[..., None, :])[..., ::-1]
    return np.sqrt(np.where(energies > ROUNDING * energies[..., :1], energies, 0.0))


def _effective_rank(values: Array) -> Array:
    """(Σσ)²/Σσ² over the last axis; NaN where all are 0."""
    return _quotient(values.sum(-1) ** 2, (values**2).sum(-1))


def _top_share(values: Array) -> Array:
    """σ₁²/Σσ² over the last axis, the largest first; NaN where all are 0."""
    return _quotient(values[..., 0] ** 2, (values**2).sum(-1))


def _null(advantages: Array) -> Array:
    """(Σ|A|)²/ΣA² over the last axis: r_eff of orthogonal rows of equal score norm; 4K(R−K)/R for K of R right."""
    return _quotient(np.abs(advantages).sum(-1) ** 2, (advantages**2).sum(-1))


def _quotient(over: Array, under: Array) -> Array:
    return np.divide(over, under, out=np.full(np.shape(under), np.nan), where=under > 0)


def _over_groups(values: Array) -> Estimate:
    return Estimate.mean([float(value) for value in values])
