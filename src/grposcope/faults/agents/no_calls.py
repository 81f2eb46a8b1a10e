"""The policy has tools and never calls one.

Asked as
    GRPO with tools: the model never calls them
What it is
    The prompt does not show the tools (a chat template without them, a system prompt of one's own), the calls are
    written in a form that the parser does not know, or the model was never taught to call.
How it shows
    Tool calls are logged and are exactly 0 in every row, while the reward stands still.
What it does to the gradient
    No rollout has a call, so that none can be preferred: training cannot find what it never sees.
What to do
    Read one prompt as the model gets it, and one completion: are the tools in the first, and is a call in the second
    that the parser did not take? Then mend the template or the parser, or fine-tune on traces with calls first.
What decides
    The prompt's text, with its tools, and ten completions.
Sources
    TRL #5366: https://github.com/huggingface/trl/issues/5366
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.agents import COLLAPSE

FAULT = Fault(
    name="no calls",
    rank=46,
    remedy="read one prompt as the model gets it and one completion: whether the tools stand in the prompt, and a call "
    "in the completion that the parser did not take; else fine-tune on traces with calls first",
    effect="what a call would have paid is never seen",
    beside="note",
    log=COLLAPSE,
)
