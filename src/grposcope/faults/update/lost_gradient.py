"""The gradient is 0, or next to none, although rewards differ within groups.

Asked as
    grad_norm is 0 while reward_std is not
What it is
    There are advantages, and nothing of the loss arrives at the weights: parameters that do not require a gradient, a
    graph that is cut (gradient checkpointing on adapters, a detached ratio), an engine that loses it, or an empty mask.
How it shows
    The gradient norm is 0 in every row, or below 1e-5, while the spread within groups is not. Where the KL grows or the
    reward rises all the same, only the norm is logged wrongly.
What it does to the gradient
    It is 0, whatever the rewards are.
What to do
    List the trainable parameters without a gradient after one backward pass; count the tokens of the mask; try another
    version or ZeRO stage of the engine. Easier prompts do not help.
What decides
    One step: for p in model.parameters(): p.requires_grad, p.grad; and a checksum of the weights before and after it.
Sources
    TRL #5312, a norm of 5e-6: https://github.com/huggingface/trl/issues/5312
    ms-swift #5571: https://github.com/modelscope/ms-swift/issues/5571
    ms-swift #5890: https://github.com/modelscope/ms-swift/issues/5890
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.lost_gradient import BACKWARD, TEST

FAULT = Fault(
    name="lost gradient",
    rank=11,
    remedy=BACKWARD,
    effect="nothing is learned",
    beside="warning",
    log=TEST,
)
