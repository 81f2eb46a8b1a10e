"""Old log-probabilities are not those of the weights that the update begins from.

What it is
    Old and current log-probabilities of different weights, number formats or modes, such as dropout.
How it shows
    With one update for each batch, old and current log-probabilities differ: the ratio is not 1.
What it does to the gradient
    Ratios that should be 1 are not, so that noise clips and weights tokens.
What to do
    Compute both with the same weights, in float32 and with dropout off.
What decides
    Both log-probabilities of one batch at its first update: grposcope verify FOLDER.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import first_update, weights

FAULT = Fault(
    name="wrong old log-probabilities",
    rank=8.2,
    remedy="compute old and current log-probabilities with the same weights, in float32 and with dropout off",
    beside="warning",
    rollouts=(first_update.PROOF, weights.PROOF),
)
