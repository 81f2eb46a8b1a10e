"""Sampler and trainer disagree by more than numerics can make, from the first step on: they read different things.

What it is
    Another prompt, chat template, image or system message on one side; tokens that were decoded and encoded again;
    positions that count the padding before a prompt; the beginning of text twice, by the template and by what encodes
    its text; or other weights altogether.
How it shows
    In rollouts, a KL of more than a tenth of a nat per token between sampler and trainer at the first update; in a log,
    mismatch of a fifth of a nat per token or more from the first step, or probabilities that correlate by less than
    0.9. Numerics, FP8 among them, stay below a tenth. Or every prompt begins with one special token twice, or holds a
    chat template in a chat template.
What it does to the gradient
    Log-probabilities are of completions under prompts that did not draw them: ratios are wrong, and what is reinforced
    belongs to another prompt.
What to do
    Compare, for one rollout, the prompt ids on both sides, then the template and the image inputs, then the weights.
    Greater precision does not help.
What decides
    The ids of one prompt, printed by the sampler and by the trainer, side by side.
Sources
    agent-lightning #326, ids that a streaming parser drops: https://github.com/microsoft/agent-lightning/issues/326
    TRL #3853, two beginnings of text: https://github.com/huggingface/trl/issues/3853
    unsloth-zoo #840, positions of padded prompts: https://github.com/unslothai/unsloth-zoo/pull/840
    NeMo-RL #2260: https://github.com/NVIDIA-NeMo/RL/issues/2260
    NeMo-RL #1330: https://github.com/NVIDIA-NeMo/RL/issues/1330
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import first_update, tokens
from grposcope.signs.sampler_mismatch import TEST

FAULT = Fault(
    name="inputs differ",
    rank=214,
    remedy="compare for one rollout what sampler and trainer read: prompt ids, completion ids (as they were drawn, "
    "not those of the decoded text), chat template, image inputs, "
    "positions (of a prompt padded on the left they count from its first token, not from the padding); if they are "
    "equal, the weights",
    beside="warning",
    log=TEST,
    rollouts=(first_update.PROOF, tokens.PROOF),
)
