"""The sampler adds the adapters at another scale than the trainer trains them with.

What it is
    lora_alpha, rank or rslora that the sampler reads otherwise; adapters merged twice, or once with the wrong
    α/r.
How it shows
    With what the adapters add halved or doubled the weights of a step make its rollouts likelier than as they are.
What it does to the gradient
    Rollouts are of a policy beyond the trained one, or short of it: off-policy from the first step that moved anything,
    and more so the more is learned.
What to do
    Compare alpha, rank and rslora in adapter_config.json with what the sampler loads; merge once.
What decides
    The tokens of some hundred rollouts under the checkpoint that drew them: grposcope verify FOLDER.
Sources
    LoRA, the scale α/r: https://arxiv.org/abs/2106.09685
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import checkpoints, weights

FAULT = Fault(
    name="adapters at another scale",
    rank=8.05,
    remedy="compare alpha, rank and rslora in adapter_config.json with what the sampler loads; merge once",
    rollouts=(weights.PROOF, checkpoints.PROOF),
)
