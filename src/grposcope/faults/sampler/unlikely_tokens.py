"""Rollouts are far less likely under the policy than its own tokens would be.

What it is
    Prompts that are rendered by another chat template than the trainer's, another tokenizer, or weights of another
    model behind the sampler.
How it shows
    No temperature near the stated one fits the tokens; the best one is far higher.
What it does to the gradient
    Rollouts are those of another policy: their gradient raises what this policy never says, until ratios are
    clipped.
What to do
    Compare the token ids of one prompt in sampler and trainer first, then the weights.
What decides
    Print the token ids of one prompt as the sampler and as the trainer has them; then grposcope verify FOLDER
    --model CHECKPOINT.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import sampling

FAULT = Fault(
    name="unlikely tokens",
    rank=1.2,
    remedy="check that prompts are rendered with the same chat template, then that these weights drew these rollouts",
    rollouts=(sampling.PROOF,),
)
