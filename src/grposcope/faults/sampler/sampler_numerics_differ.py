"""The sampler computes other probabilities from the same weights.

What it is
    FP8 or bfloat16 kernels, other attention or routing (mixtures of experts) in the engine that samples.
How it shows
    Mismatch at the same level from the first step on; mean ρ is near 1.
What it does to the gradient
    Token gradients are weighted by noisy ratios: their variance grows with the length, their mean hardly moves.
What to do
    Compare one batch; raise the sampler's precision, or correct with a capped ratio.
What decides
    The same batch scored by the trainer in the sampler's precision.
Sources
    verl, rollout correction; NeMo-RL, error of generation against training
    TRL #3867: https://github.com/huggingface/trl/pull/3867
    OpenClaw-RL #69: https://github.com/Gen-Verse/OpenClaw-RL/issues/69
    tinker-feedback #22: https://github.com/thinking-machines-lab/tinker-feedback/issues/22"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.sampler_mismatch import TEST

FAULT = Fault(
    name="sampler numerics differ",
    rank=221,
    remedy=(
        "compare the log-probabilities of one batch: precision (FP8), kernels, routing, temperature; sample without "
        "top-k and top-p at the trainer's temperature, or have the sampler return log-probabilities computed before "
        "truncation"
    ),
    beside="warning",
    log=TEST,
)
