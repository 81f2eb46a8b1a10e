"""The token with which the policy ends a turn is not trained on.

What it is
    A mask that ends each turn one token early, as where the end of a message is taken for the template's.
How it shows
    The mask is 0 on the last token before a tool or environment answers, and 1 on others of the turn.
What it does to the gradient
    The decision to stop and call, or to go on, gets no gradient: in toys the expected update then has a cosine of .8
    with the true gradient, down to −.4.
What to do
    Let the mask of each turn include the end token that the policy drew.
What decides
    Ids, mask and tool_mask of one rollout side by side: grposcope verify FOLDER.
Sources
    method of this project
    TRL 1.16 trains the model's own end of a message
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import turns

FAULT = Fault(
    name="turn ends masked",
    rank=4.55,
    remedy="let the mask of each turn include the end token that the policy drew",
    effect="when to stop or call is not learned",
    beside="warning",
    rollouts=(turns.PROOF,),
)
