"""Trees: rollouts that share their beginnings, each branch credited with its mean reward less that of its siblings.

All branches of level 0 leave the prompt; a branch that reaches the next branching place is continued by b_d branches of
level d, each drawn by itself, up to the leaves. With V̂(c) the mean reward of the leaves below the branch c, every token
of c has the credit

    A = V̂(c) − mean of V̂ over the siblings of c

The group of a prompt is the G = ∏ b_d leaves, in order: leaf i belongs to the branch i // ∏_{e>d} b_e of level d. Every
leaf has the weight 1/G, as rollouts of a group do, so that a token that m leaves share counts m/G: once for its branch
among those of its level. A branch that ends early stands for all leaves that it would have had; they are equal rows.

Unbiased: V̂(c) is drawn from the policy after every token of c, the siblings from the text before c alone, and the
branches of each level are draws of the policy; the place of a branching must follow from the text before it, such as a
number of tokens or the end of a step. Checked by enumeration, early ends included. The credit must not be centred on
the group afterwards, which would remove or bias it, and recipes that divide by the length of a rollout give a shared
token the mean of its leaves' factors.

Sibling differences in a tree of segments: SPO (arXiv:2505.23564), TreeRPO; leave-one-out among siblings, and leaves as
rows of equal weight: this project. Tokens: beginnings are generated once, so fewer than for G rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from grposcope.core.capabilities import PAIRS, STEP_MARK, TREES
from grposcope.core.errors import UserError
from grposcope.core.named_settings import Choice, Whole, Widths
from grposcope.lab.credit.source import CreditSource
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch


def _tree(
    levels: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"], rewards: Float[Tensor, "P G"], widths: tuple[int, ...]
) -> Float[Tensor, "B T"]:
    """Credit (B, T), 0 where masked, in the units of the rewards: not standardized.

    levels: level of the branch that each token is in. widths: b_d by level; where G is a multiple of their product, as
    many trees grow from a prompt, whose branches of level 0 are siblings. UserError for other G.
    """
    widths = filling(widths, rewards.shape[-1])
    credit = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
    own = (rewards - rewards[:, :1]).double()  # so that equal rewards are exactly 0, whatever their mean rounds to
    for level, width in enumerate(widths):
        span = prod(widths[level + 1 :])
        value = own.unflatten(-1, (-1, width, span)).mean(-1)  # (P, parents, siblings)
        others = (value.sum(-1, keepdim=True) - value) / (width - 1)
        leaves = (value - others).repeat_interleave(span, -1).reshape(-1, 1)
        credit = torch.where(levels == level, leaves, credit)
    return credit * mask


def filling(widths: tuple[int, ...], group: int) -> tuple[int, ...]:
    """The widths, the first times the number of trees that make up a group; UserError where none do."""
    leaves = prod(widths)
    if group % leaves:
        raise UserError(
            f"a tree of {'x'.join(map(str, widths))} has {leaves} leaves, and the group of {group} is not a "
            f"multiple of that; use a group of {leaves}, a multiple of it, or other widths"
        )
    return (widths[0] * (group // leaves), *widths[1:])


def _check_group(values: Mapping[str, Any], group: int) -> None:
    """UserError where a group cannot be made of trees of the `widths` among these values of the settings."""
    widths = values["widths"]
    try:
        filling(widths, group)
    except UserError as error:
        wider = "the tree is wider than the group: " if prod(widths) > group else ""
        raise UserError(f"{wider}{error}") from None


def origins(
    levels: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"], group: int, widths: tuple[int, ...]
) -> tuple[Int[Tensor, " B"], Int[Tensor, " B"]]:
    """The row of its group that each leaf branched from, −1 for none, and how many of its tokens are that row's, (B,).

    Tokens that are another row's were generated, and count, with that one. A leaf that stands for a branch which ended
    early has all of its tokens from the first leaf of that branch.
    """
    widths = filling(widths, group)
    leaf = torch.arange(len(mask), device=mask.device) % group
    lengths = mask.sum(-1)
    reached = torch.where(mask, levels, 0).amax(-1)
    parent, shared = torch.full_like(leaf, -1), torch.zeros_like(leaf)
    for level in range(len(widths)):
        span, above = prod(widths[level + 1 :]), prod(widths[level:])
        branched = (reached >= level) & (leaf % above >= span)  # another than the first branch of its parent
        start = (mask & (levels < level)).sum(-1)
        parent = torch.where(branched & (level > 0), leaf - leaf % above, parent)
        shared = torch.where(branched & (level > 0), start, shared)
        stands = (reached == level) & (leaf % span > 0)
        parent = torch.where(stands, leaf - leaf % span, parent)
        shared = torch.where(stands, lengths, shared)
    return parent, shared


def generated(levels: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"], group: int, widths: tuple[int, ...]) -> int:
    """Tokens that were generated for the trees, shared ones counted once."""
    return int((mask.sum(-1) - origins(levels, mask, group, widths)[1]).sum())


def _of_rollouts(
    objective: Objective, rollouts: RolloutBatch, widths: tuple[int, ...] = (2, 2, 2), **settings: object
) -> Float[Tensor, "B T"]:
    """`tree` of rollouts that were generated as trees; UserError for others. settings: how they were generated."""
    levels = rollouts.annotation(
        "levels",
        "credit tree needs rollouts that branch, which grposcope train draws for it; these are independent: use "
        "another credit",
    )
    return _tree(levels, rollouts.mask, rollouts.rewards, widths)


SOURCES: dict[str, CreditSource] = {
    "tree": CreditSource(
        _of_rollouts,
        "mean reward of the leaves below a branch of a tree, minus that below its siblings",
        needs=frozenset({PAIRS, TREES}),
        unbiased=True,
        more_needs=lambda values: frozenset({STEP_MARK} if values["at"] == "step" else ()),
        fits=_check_group,
        settings={
            "widths": Widths((2, 2, 2), "branches at each branching; their product is the number of leaves of a tree"),
            "at": Choice(("tokens", "step", "newline"), "what is counted from one branching to the next"),
            "every": Whole(0, 0, "how many of these from one branching to the next; 0: 8 tokens, or each step or line"),
        },
    ),
}
"""Name of a setting -> source of credit."""
