"""The terms of tokens are added up otherwise than the settings state.

What it is
    A mean over tokens in place of one over rollouts, a mean of means of micro-batches, or a sum over a constant
    length.
How it shows
    The derivatives of the loss fit another reduction.
What it does to the gradient
    Rollouts are weighted by their length otherwise: means over rollouts make each token of a long answer count
    less.
What to do
    Check loss_type (loss_agg_mode in verl), and what the loss is divided by in gradient accumulation.
What decides
    The derivatives of the loss of one batch with rollouts of different lengths: train with verify_every.
Sources
    TRL #3938, DAPO over all micro-batches: https://github.com/huggingface/trl/pull/3938
    Dr. GRPO: https://arxiv.org/abs/2503.20783"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import gradient

FAULT = Fault(
    name="wrong aggregation",
    rank=7.2,
    remedy="check what the loss is divided by, and over what its means are",
    instead="warning",
    rollouts=(gradient.PROOF,),
)
