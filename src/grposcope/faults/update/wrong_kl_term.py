"""The KL term of the loss is not the stated one.

What it is
    A coefficient that is not passed on, a sign that is lost, a term that is switched off with the reference.
How it shows
    The derivatives of the loss are those of the surrogate plus another multiple of the KL term's.
What it does to the gradient
    With the opposite sign it drives the policy away from the reference, ever faster; without the term nothing holds
    it.
What to do
    Compare the sign and coefficient of the KL term with the settings.
What decides
    The derivatives of the loss of one batch after the policy has moved: train with verify_every.
Sources
    KL estimators: http://joschu.net/blog/kl-approx.html
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import gradient

FAULT = Fault(
    name="wrong kl term",
    rank=7.0,
    remedy="compare the sign and coefficient of the KL term with the settings",
    beside="warning",
    rollouts=(gradient.PROOF,),
)
