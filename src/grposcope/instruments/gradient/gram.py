"""Inner products of the rollouts' scores, K_ij = ⟨S_i, S_j⟩, for one parameter, from its factors.

Two exact contractions exist, of which the cheaper is used:

    explicit   build S_i = Σ_t b_{i,t} a_{i,t}ᵀ in pieces of rows, and multiply:  N R C + B² R C
    ghost      Σ_{t,u} (a_{i,t}·a_{j,u}) (b_{i,t}·b_{j,u}), never building S:     N² (R + C) / 2 + N²

with B rollouts, N = B·L tokens and a parameter of R × C (Goodfellow 2015 for the norms; Li et al.
2022, arXiv:2110.05679, for the choice). Sums are kept in float64 between pieces, in the factors'
precision within one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grposcope.instruments.gradient.score import Score, Use

FEW = 32
"""Rollouts up to which long rows are multiplied in pieces of PIECE entries."""

PIECE = 1024


def gram(score: Score) -> Tensor:
    """K (B, B) in float64, by the contraction that costs less."""
    return ghost(score) if ghost_is_cheaper(score) else _explicit(score)


def _explicit(score: Score) -> Tensor:
    """K (B, B) from the per-rollout matrices, built a piece at a time."""
    return torch.stack([of_block(score.piece(piece)) for piece in score.pieces()]).sum(0)


def of_block(block: Tensor) -> Tensor:
    """Inner products (B, B), float64, of the matrices of a block (B, rows, C).

    A product of few long rows is slow on a CPU, so they are cut into pieces, whose products are summed in float64.
    """
    flat = block.reshape(len(block), -1)
    if len(flat) > FEW:
        return (flat @ flat.mT).double()
    whole = flat.shape[1] // PIECE * PIECE
    pieces, rest = flat[:, :whole].unflatten(1, (-1, PIECE)).transpose(0, 1), flat[:, whole:]
    return torch.bmm(pieces, pieces.mT).sum(0, dtype=torch.float64) + (rest @ rest.mT).double()


def ghost(score: Score) -> Tensor:
    """K (B, B) from inner products of inputs and of gradients between all pairs of tokens."""
    if not score.uses:
        return _explicit(score)
    count = score.rollouts
    total = torch.zeros(count, count, dtype=torch.float64, device=score.uses[0].columns.device)
    for at, use in enumerate(score.uses):
        for other in score.uses[at:]:
            products = _between(use, other, score.shape[0])
            total += products if other is use else products + products.mT
    return total


def _between(use: Use, other: Use, rows: int) -> Tensor:
    """Σ_{t,u} ⟨rows_it, rows_ju⟩ ⟨columns_it, columns_ju⟩ for all i, j, (B, B); one rollout of `use` at a time."""
    count, length = other.columns.shape[:2]
    columns = other.columns.reshape(count * length, -1)
    out = []
    for i in range(count):
        inner = use.columns[i] @ columns.mT  # (L, B·L')
        out.append((inner * _row_products(use, i, other)).reshape(-1, count, length).sum((0, 2)).double())
    return torch.stack(out)


def _row_products(use: Use, i: int, other: Use) -> Tensor:
    """⟨rows_it, rows_ju⟩ for all t of rollout i and all u of all j, (L, B·L'); ids stand for unit vectors."""
    theirs = other.rows.reshape(-1, *other.rows.shape[2:])
    mine = use.rows[i]
    if not use.lookup and not other.lookup:
        return mine @ theirs.mT
    if use.lookup and other.lookup:
        same = mine[:, None] == theirs[None]
        return (same & (mine != use.padding)[:, None] & (theirs != other.padding)[None]).to(use.columns)
    if use.lookup:
        return theirs[:, mine].mT * (mine != use.padding)[:, None]
    return mine[:, theirs] * (theirs != other.padding)[None]


def ghost_is_cheaper(score: Score) -> bool:
    """Whether `ghost` needs fewer multiplications than `explicit`; look-ups cost their columns only."""
    if not score.uses:
        return False
    rows, columns = score.shape
    count = score.rollouts
    tokens = sum(use.columns.shape[0] * use.columns.shape[1] for use in score.uses)
    dense = any(not use.lookup for use in score.uses)
    direct = (tokens * rows * columns if dense else tokens * columns) + count**2 * rows * columns
    return tokens**2 * (columns + (rows if dense else 1)) / 2 < direct
