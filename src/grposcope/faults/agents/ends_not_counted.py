"""Rollouts end without an end token and are counted as cut at the token limit.

Asked as
    completions/clipped_ratio is 1 with an environment
What it is
    A trainer counts a completion as cut if its last token is not an end token. An environment that ends a rollout
    leaves none; an end token that the trainer does not know does the same.
How it shows
    The share of cut completions is high, although their lengths are not those of one limit: the longest of a batch
    differs from batch to batch, or the shortest is far shorter.
What it does to the gradient
    Nothing by itself. With mask_truncated_completions these rollouts leave the loss, and with an overlong penalty
    they pay it.
What to do
    Do not mask or penalise truncated completions here, and judge by stop reasons. If rollouts have no environment,
    set the end token to that of the chat template.
What decides
    The last tokens and the stop reasons of ten rollouts that are counted as cut.
Sources
    TRL #4976: https://github.com/huggingface/trl/issues/4976
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.agents import CUT

FAULT = Fault(
    name="ends not counted",
    rank=50,
    remedy="do not mask or penalise truncated completions, and write the stop reason of every rollout; without an "
    "environment, set the end token to that of the chat template",
    source="TRL #4976",
    effect="a mask of truncated completions would leave them out",
    beside="note",
    log=CUT,
)
