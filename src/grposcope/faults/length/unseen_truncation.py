"""Completions are cut at a limit that the log does not count.

Asked as
    clip_ratio is 0, but answers stop in the middle
What it is
    A second limit below the one that is counted: the context of the engine less the prompt, a limit of the server or of
    a turn; or a trainer that does not log cut completions at all.
How it shows
    All completions have one length; or the longest of each batch stands in a narrow band whatever the mean does. The
    longest of many answers that end by themselves varies from batch to batch.
What it does to the gradient
    Cut answers are paid 0 for their length, so that the policy is taught to be short, or nothing.
What to do
    Raise the limit that is in force: max_completion_length, or max_model_len to prompt and completion together.
What decides
    Ten of the longest completions, read to their end, and their finish_reason.
Sources
    verl #7823: https://github.com/verl-project/verl/issues/7823
    open-r1 #363: https://github.com/huggingface/open-r1/issues/363
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.unseen_limit import TEST

FAULT = Fault(
    name="unseen truncation",
    rank=55,
    remedy="raise the limit that is in force: max_completion_length, or max_model_len to prompt and completion "
    "together",
    effect="answers are cut unseen",
    beside="warning",
    log=TEST,
)
