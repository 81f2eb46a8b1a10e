"""The token that ends a completion has no weight in the loss.

Asked as
    Completions grow until they are all cut; is the EOS token masked?
What it is
    Padding that is found by its id where the end has the same id, or a mask that is cut before the end.
How it shows
    Completions end with their end token, and the mask is 0 on it alone.
What it does to the gradient
    The policy never learns when to stop: completions grow until they reach the limit of length, and then are cut.
What to do
    Make the mask from lengths, never from token ids.
What decides
    Tokens and mask of one rollout that ended: grposcope verify FOLDER.
Sources
    TRL #6357, end masked where pad and end have one id: https://github.com/huggingface/trl/pull/6357
    TRL #4970: https://github.com/huggingface/trl/pull/4970"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import tokens

FAULT = Fault(
    name="end of text masked",
    rank=4.8,
    remedy="make the mask from lengths and not from the id of padding, so that the end is trained on",
    beside="warning",
    rollouts=(tokens.PROOF,),
)
