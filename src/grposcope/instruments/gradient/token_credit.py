"""Which tokens carry the gradient: weights, scores at the logits, and what cancels on shared prefixes.

The score of token t at the logits is e_y − π(·|x, y_<t), of norm ‖e_y − π‖. Two rollouts of a group that
have written the same text so far have the same context, and if they then write the same token, the
same score: their gradients add up as the sum of their weights, exactly. So over the nodes v of the
group's prefix tree (a context with the token written in it)

    gross = Σ_v Σ_{i through v} |w_{i,t}| n_v,     net = Σ_v |Σ_{i through v} w_{i,t}| n_v,     n_v = ‖e_y − π‖

and 1 − net/gross is the share that successes and failures undo in each other. With advantages that sum
to zero, tokens on which the whole group agrees cancel completely. Method of this project; no publication.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from grposcope.lab.credit import prefix


@dataclass(frozen=True)
class TokenCredit:
    """The credit of each token, and shares over the batch.

    mass (B, T): |w| · ‖e_y − π‖. sharers (B, T): rollouts of the group, itself included, that wrote the
    same text up to and including this token. net (B, T): |Σ w over the sharers| · ‖e_y − π‖ / sharers.
    cancelled: 1 − Σ net / Σ mass. shared: share of the mass on tokens that at least two rollouts share;
    common: on tokens that the whole group shares, which is cancelled when advantages sum to zero.
    """

    mass: Tensor
    sharers: Tensor
    net: Tensor
    cancelled: float
    shared: float
    common: float


def measure(tokens: Tensor, mask: Tensor, weights: Tensor, norms: Tensor, group: int) -> TokenCredit:
    """Credit of the tokens of completions (B, T), prompt-major in groups of `group`.

    weights: w = ∂L/∂log π (B, T). norms: ‖e_y − π‖ (B, T).
    """
    weights, norms = weights.double().where(mask, 0.0), norms.double().where(mask, 0.0)
    node = prefix.nodes(tokens, group)
    count = torch.zeros(int(node.max()) + 1, dtype=torch.float64, device=tokens.device)
    total = torch.zeros_like(count)
    inside = node[mask]
    count.index_add_(0, inside, torch.ones_like(inside, dtype=torch.float64))
    total.index_add_(0, inside, weights[mask])
    sharers = torch.zeros_like(norms).masked_scatter(mask, count[inside])
    mass = weights.abs() * norms
    net = torch.zeros_like(norms).masked_scatter(mask, total[inside].abs() / count[inside]) * norms
    gross = float(mass.sum())

    def share(fraction: float) -> float:
        return fraction / gross if gross else math.nan

    return TokenCredit(
        mass=mass,
        sharers=sharers.long(),
        net=net,
        cancelled=1 - share(float(net.sum())),
        shared=share(float(mass[sharers > 1].sum())),
        common=share(float(mass[sharers == group].sum())),
    )
