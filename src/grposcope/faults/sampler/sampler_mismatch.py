"""The sampler's policy is far from the trainer's, and nothing that is logged says why.

Asked as
    vLLM and the trainer disagree
What it is
    Rollouts are drawn by one policy, the gradient is taken at another, and the distance grows.
How it shows
    KL, log ratio or importance weights between sampler and trainer leave their limits, in a course that neither the lag
    nor the learning rate nor a jump explains. Or it grows in stretches, and is back where it began after each.
What it does to the gradient
    Each token's gradient is weighted by a ratio that is not 1; uncorrected, the update is that of another policy's
    rollouts.
What to do
    Sample one batch in the trainer's own precision. If the mismatch disappears, numerics cause it and training makes
    them worse.
What decides
    The log-probabilities of sampler and trainer of one batch, token by token.
Sources
    verl, rollout correction
    NeMo-RL #4018, prefixes of earlier weights: https://github.com/NVIDIA-NeMo/RL/pull/4018
    verl #3595, attention on long texts: https://github.com/verl-project/verl/pull/3595
    verl #3597: https://github.com/verl-project/verl/issues/3597
    tinker-cookbook #822, a lag that stays: https://github.com/thinking-machines-lab/tinker-cookbook/pull/822
    TRL #3867: https://github.com/huggingface/trl/pull/3867
    TRL #4159: https://github.com/huggingface/trl/issues/4159
    NeMo-RL #1801: https://github.com/NVIDIA-NeMo/RL/issues/1801"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.sampler_mismatch import TEST

FAULT = Fault(
    name="sampler mismatch",
    rank=220,
    remedy=(
        "sample one batch in the trainer's own precision: if the mismatch disappears, numerics cause it "
        "and training makes them worse; weigh by a capped ratio (truncated importance sampling), or sample so"
    ),
    beside="warning",
    log=TEST,
)
