"""Advantages or the loss have the opposite sign.

What it is
    A reward that is minimised, a loss that is maximised, or advantages that are subtracted the wrong way round.
How it shows
    Advantages are those of the settings times −1, or the derivatives of the loss are.
What it does to the gradient
    Bad rollouts become likelier and good ones less likely: every step undoes what the last earned.
What to do
    Reverse the sign where advantages or loss are computed; a test with one good and one bad rollout holds it.
What decides
    Advantages of one batch beside its rewards: grposcope verify FOLDER.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import advantages, gradient

FAULT = Fault(
    name="reversed sign",
    rank=2.4,
    remedy="reverse the sign of the advantages, or of the loss, where they are computed",
    beside="failing",
    rollouts=(advantages.PROOF, gradient.PROOF),
)
