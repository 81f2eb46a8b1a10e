"""Gradients, Gram matrix and norms of one parameter, taken together from the S_i (B, R, C) that `score` has as factors.

One pass of `cpu` gives all three where it takes the factors; in torch they are taken from each piece of the S_i while
it is in the cache. Both agree to round-off.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grposcope.instruments.gradient import gram
from grposcope.instruments.gradient.score import Score
from grposcope.instruments.gradient.sparsity import EntryNorms
from grposcope.lab import cpu

Contracted = tuple[Tensor, Tensor | None, EntryNorms | None]


def contract(score: Score, weights: Tensor, main: int | None, *, with_gram: bool) -> Contracted:
    """Σ u_i S_i (K, R, C) for each row u of weights (K, B), the Gram matrix (B, B) if asked for, norms of the main one.

    main: which of the gradients that is.
    """
    if score.kind == "experts" and gram.ghost_is_cheaper(score):
        return _without_rollouts(score, weights, main, with_gram=with_gram)
    fast = _in_one_pass(score, weights, main, with_gram=with_gram)
    return _in_torch(score, weights, main, with_gram=with_gram) if fast is None else fast


def _in_torch(score: Score, weights: Tensor, main: int | None, *, with_gram: bool) -> Contracted:
    """`contract` from pieces of the S_i, of any score."""
    gradients = torch.empty(len(weights), *score.shape, dtype=score.dtype, device=score.device)
    weights = weights.to(gradients)
    pieces, count = score.pieces(), score.rollouts
    # Made beforehand: a small array that each piece left behind would keep the next from taking its memory.
    products = torch.empty(len(pieces) if with_gram else 0, count, count, dtype=torch.float64, device=score.device)

    def work(number: int) -> EntryNorms | None:
        block, piece = score.piece(pieces[number]), gradients[:, pieces[number]]
        torch.mm(weights, block.flatten(1), out=piece.flatten(1))
        if with_gram:
            products[number] = gram.of_block(block)
        return None if main is None else EntryNorms.of(piece[main])

    norms = [one for one in cpu.map_pieces(work, range(len(pieces)), gradients.device) if one is not None]
    return gradients, products.sum(0) if with_gram else None, EntryNorms.together(norms) if norms else None


def _without_rollouts(score: Score, weights: Tensor, main: int | None, *, with_gram: bool) -> Contracted:
    """`contract` without the S_i: an expert sees few tokens of each rollout."""
    gradients = torch.zeros(len(weights), *score.shape, dtype=score.dtype, device=score.device)
    for use in score.uses:
        rows = use.rows.flatten(0, 1).mT
        for gradient, u in zip(gradients, weights.to(gradients), strict=True):
            gradient.addmm_(rows, (u[:, None, None] * use.columns).flatten(0, 1))
    norms = None if main is None else EntryNorms.of(gradients[main])
    return gradients, gram.ghost(score) if with_gram else None, norms


def _in_one_pass(score: Score, weights: Tensor, main: int | None, *, with_gram: bool) -> Contracted | None:
    """`contract` by `cpu`; None where it does not take the score, which has one dense use and at most one look-up."""
    dense, looked = ([use for use in score.uses if use.lookup == lookup] for lookup in (False, True))
    if len(dense) != 1 or len(looked) > 1:
        return None
    lookups = next((cpu.Lookups(use.rows, use.columns, use.padding) for use in looked), None)
    done = cpu.contract(
        dense[0].rows, dense[0].columns, lookups, weights, main, with_gram=with_gram, in_pieces=score.large
    )
    if done is None:
        return None
    norms = None if done.norms is None else EntryNorms.together([EntryNorms(*row) for row in done.norms.tolist()])
    return done.gradients, done.gram, norms
