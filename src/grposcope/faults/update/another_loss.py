"""The gradient is that of no loss that is known.

What it is
    Dropout, frozen or unscaled parts, a clip or ratio that the settings do not state, or a loss of one's own.
How it shows
    The derivatives of the loss fit none that was tried, or the logged norm is not the one taken again at the
    checkpoint.
What it does to the gradient
    The optimiser follows another objective than the stated one.
What to do
    Compare each term of the loss with the settings; look for dropout and frozen parts.
What decides
    The derivatives of the loss of one batch: train with verify_every.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import gradient

FAULT = Fault(
    name="another loss",
    rank=7.6,
    remedy="compare the sign and factor of each loss term with the settings, and look for dropout and frozen parts",
    beside="warning",
    rollouts=(gradient.PROOF,),
)
