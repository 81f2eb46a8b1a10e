"""Texts no longer depend on the prompt, or are disorder, and are unlike the early ones.

What it is
    The policy fell apart: too large updates, an entropy bonus, a sampler whose probabilities are others, or a
    grader that pays anything.
How it shows
    Most late texts are less like the early ones than nearly all of these, and either two texts of a group have no
    more in common than texts of different prompts, or they have much more bits per character.
What it does to the gradient
    Tokens without meaning have random advantages; the update is noise.
What to do
    Look at the update first: learning rate, KL, entropy bonus, and the sampler against the trainer. Go back to
    before the onset.
What decides
    A short run from before the onset with a tenth of the learning rate.
Sources
    Search-R1 #162: https://github.com/PeterGriffinJin/Search-R1/issues/162
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import texts

FAULT = Fault(
    name="gibberish",
    rank=39.8,
    remedy="go back to before the onset, and look at the learning rate, the entropy bonus and the sampler",
    effect="the update is noise",
    beside="failing",
    rollouts=(texts.PROOF,),
)
