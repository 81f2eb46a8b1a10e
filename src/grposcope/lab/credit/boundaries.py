"""Boundaries: places inside rollouts from which the reward to come is estimated, or at which trees branch.

A boundary is the number of completion tokens before it, from 1 to one less than the rollout's length: the beginning and
the end are none. Whether a place is a boundary must follow from the text before it alone, for then the value there has
the expectation Q(s_t, y_t) given an earlier token y_t (the boundary is a stopping time). The n places of a rollout at
which the policy was least decided, which is how entropy peaks are usually chosen, are known only when it is over, and
credit from them is biased; `entropy` compares with the other rollouts instead. A result of this project, checked by
enumeration.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.credit import labels
from grposcope.lab.rollout_batch import RolloutBatch

Places = list[list[int]]
"""Boundaries of every rollout, ascending."""


def steps(rollouts: RolloutBatch) -> Places:
    """After every step that closes before the rollout ends; UserError where the task labels no steps."""
    return _after(labels.of_steps(rollouts)[1], rollouts.mask)


def marked(rollouts: RolloutBatch, marks: Bool[Tensor, " V"]) -> Places:
    """After every token that is one of `marks`, those with a line break in their text, say."""
    return _after(marks.to(rollouts.tokens.device)[rollouts.tokens], rollouts.mask)


def entropy(rollouts: RolloutBatch, share: float = 0.1) -> Places:
    """Before every token at which the policy's entropy rises above what all but `share` of the others' tokens have.

    The threshold of a rollout is a quantile of the entropies of the other rollouts of the batch, so that what it does
    later cannot move it. UserError for a batch of one rollout.
    """
    if len(rollouts.mask) < 2:
        raise UserError("boundaries by entropy compare with other rollouts, got one; draw 2 or more")
    boundaries = torch.zeros_like(rollouts.mask)
    every = rollouts.entropy.double()
    for row in range(len(boundaries)):
        others = rollouts.mask.clone()
        others[row] = False
        if others.any():
            boundaries[row] = every[row] > torch.quantile(every[others], 1 - share)
    rises = boundaries[:, 1:] & ~boundaries[:, :-1]  # the boundary lies after the token before
    return _after(torch.cat((rises, torch.zeros_like(boundaries[:, :1])), 1), rollouts.mask)


def _after(ends: Bool[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Places:
    """The places after the tokens of `ends`, without the one after a rollout's last token."""
    places = []
    for row in range(len(mask)):
        length = int(mask[row].nonzero()[-1]) + 1 if mask[row].any() else 0
        places.append([t + 1 for t in (ends[row] & mask[row]).nonzero()[:, 0].tolist() if t + 1 < length])
    return places
