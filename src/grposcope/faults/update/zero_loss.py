"""The loss is 0, and so are the gradients.

Asked as
    Why is my loss 0?
What it is
    There is no signal. A loss near 0 with a gradient is normal in GRPO: advantages of a group sum to 0, and with
    one update per batch every ratio is 1.
How it shows
    The loss is near 0 and late gradient norms are exactly 0.
What it does to the gradient
    It is 0. Where the norm is not, the run trains: judge it by its reward.
What to do
    See dead groups (starved, saturated) and settings that stop the gradient.
What decides
    The gradient norm.
Sources
    TRL #2703: https://github.com/huggingface/trl/issues/2703
    TRL #3452: https://github.com/huggingface/trl/issues/3452
    open-r1 #239: https://github.com/huggingface/open-r1/issues/239
    unsloth #2291: https://github.com/unslothai/unsloth/issues/2291
"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, measured
from grposcope.maths.timeseries import level as levels
from grposcope.maths.timeseries.change import LATE
from grposcope.signs.lost_gradient import is_lost
from grposcope.signs.quantities import SHORT, Quantities

NEAR_ZERO = 1e-3
"""A loss whose median magnitude is smaller than this is called zero."""

NO_GRADIENT = 0.9
"""Share of late gradients that are exactly 0 above which there is no signal."""


def _check(quantities: Quantities) -> Finding:
    """A loss near 0 together with late gradients that are exactly 0."""
    loss, norm = quantities.require("loss", SHORT), quantities.get("grad_norm", SHORT)
    middle = float(np.median(np.abs(loss.values)))
    size = Sign("median |loss|", middle, limit=f"zero below {NEAR_ZERO:g}", column=loss.name)
    if middle >= NEAR_ZERO:
        because = f"the loss is not 0 (median {middle:.2g}); judge learning by reward and gradient instead"
        return measured(1.0, because, (size,))
    if norm is None:
        return cannot_tell("the loss is near 0; only gradient norms would show why", "grad_norm")
    if is_lost(quantities):
        return measured(1.0, "the loss is near 0, and the gradient is 0 although groups differ", (size,))
    zeros = levels.level((norm.values == 0).astype(np.float64), LATE, NO_GRADIENT)
    typical = float(np.median(norm.values))
    evidence = (size, Sign("median gradient norm", typical, column=norm.name))
    if zeros.p_up < 0.5:
        share = zeros.value + NO_GRADIENT
        because = f"the loss is 0 because there is no signal: {share:.0%} of late gradients are exactly 0"
        return measured(zeros.p_up, because, evidence)
    because = (
        "the loss is near 0 by construction (the advantages of a group sum to 0, and on policy the ratio "
        f"is 1), but the gradient is not (median norm {typical:.2g}): the run does train"
    )
    return measured(1.0, because, evidence)


FAULT = Fault(
    name="zero loss",
    rank=240,
    remedy="look for dead groups and wrong settings: see starved, saturated and group of one",
    effect="further steps change nothing",
    minor=True,
    log=LogTest(
        "zero loss",
        _check,
        needs=("loss", "grad_norm"),
        statistic="late share of gradients that are exactly 0, where the loss is near 0",
        threshold=f"> {NO_GRADIENT:g}",
    ),
)
