"""Continuations: what each segment of a rollout changed about the reward to be expected, by continuations of it.

With boundaries between the segments of rollout i, V̂_k the mean reward of K fresh continuations from boundary k, and
V̂_0 the mean reward of the other rollouts of the group, which are continuations of the prompt, a token of segment k has

    A = V̂_k − V̂_{k−1},      r − V̂_{n−1} in the last segment, n

Unbiased where the continuations are drawn from the policy that wrote the rollout, from the text up to the boundary
alone, and where the boundary follows from that text alone: then V̂_k has the expectation Q(s_t, y_t) given any token y_t
of its segment, and V̂_{k−1} knows nothing of y_t. All K are used at both ends of a segment; that one V̂ is in two
neighbouring segments correlates their errors, but biases neither. (Squares, as in E δ², are another matter: they need
the two halves of `Continuations.halves`.) Each V̂_k adds the noise p(1 − p)/K to both segments for rewards of 0 and 1.

Continuations from steps are those of VinePPO (arXiv:2410.01679), segments those of SPO (arXiv:2505.23564), from
entropy peaks those of FR3E (arXiv:2507.07017). Tokens: about K n/2 rollouts for n segments, thrown away after use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from grposcope.core.capabilities import CONTINUATIONS, ENTROPY, PAIRS, STEP_ENDS, Capabilities
from grposcope.core.named_settings import Choice, Decimal, Setting, Whole
from grposcope.lab.credit.source import CreditSource
from grposcope.lab.credit.values import values
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch


def continued(
    prefix_values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], rewards: Float[Tensor, "P G"]
) -> Float[Tensor, "B T"]:
    """Credit (B, T), 0 where masked, in the units of the rewards, from V̂ on the token before each boundary, else NaN.

    UserError for a group of one, which leaves nothing to take V̂_0 from.
    """
    places = torch.arange(mask.shape[-1], device=mask.device)
    last = places == (places * mask).amax(-1, keepdim=True)
    ends = (~prefix_values.isnan() | last) & mask
    known = torch.where(last, rewards.reshape(-1, 1).double(), prefix_values.double())
    upto = torch.where(ends, places, -1).cummax(-1).values
    end_before = torch.cat((torch.full_like(upto[:, :1], -1), upto[:, :-1]), 1)
    before = known.gather(-1, end_before.clamp(min=0)).where(end_before >= 0, 0.0)  # V̂_{k−1}, 0 in the first segment
    return values((known - before).where(ends, 0.0), ends, mask, rewards.shape[-1])


def _of_rollouts(objective: Objective, rollouts: RolloutBatch, **settings: object) -> Float[Tensor, "B T"]:
    """`continued` of the values that the rollouts carry; UserError where nobody has drawn continuations of them.

    settings: how the continuations are drawn, which is done before.
    """
    values = rollouts.annotation(
        "prefix_values",
        "credit from continuations needs rollouts with continuations, which grposcope train and probe draw; these "
        "have none: use another credit",
    )
    return continued(values, rollouts.mask, rollouts.rewards)


_BOUNDARIES: dict[str, Setting] = {
    "at": Choice(("step", "newline", "entropy"), "where segments end: at steps that the task labels, at line breaks, "
                 "or before the policy becomes undecided"),
    "share": Decimal(0.1, 0.0, 1.0, "at=entropy: tokens at which the policy counts as undecided"),
}  # fmt: skip


def _at_boundaries(values: Mapping[str, Any]) -> Capabilities:
    """What segments that end there need."""
    return {"step": frozenset({STEP_ENDS}), "entropy": frozenset({ENTROPY})}.get(values["at"], frozenset())


SOURCES: dict[str, CreditSource] = {
    "continuations": CreditSource(
        _of_rollouts,
        "mean reward of continuations after a segment, minus that before it",
        needs=frozenset({PAIRS, CONTINUATIONS}),
        unbiased=True,
        settings={"k": Whole(4, 1, "continuations from each boundary"), **_BOUNDARIES},
        more_needs=_at_boundaries,
    ),
    "oracle": CreditSource(
        _of_rollouts,
        "the same from many continuations whose tokens are not counted (a control)",
        needs=frozenset({PAIRS, CONTINUATIONS}),
        charged=False,
        warning="credit oracle is a control: the tokens of its continuations are not counted in the record",
        settings={"k": Whole(16, 1, "continuations from each boundary"), **_BOUNDARIES},
        more_needs=_at_boundaries,
    ),
}
"""Name of a setting -> source of credit."""
