"""The sampler computes other probabilities from the same weights.

What it is
    FP8 or bfloat16 kernels, other attention or routing (mixtures of experts) in the engine that samples.
How it shows
    Mismatch at the same level from the first step on; mean ρ is near 1. Or rows of a large one among small ones, where
    single tokens differ wholly: fused kernels that keep intermediate results in bfloat16. Or another level from one
    step on: the computation changed there, with a version or a kernel.
What it does to the gradient
    Token gradients are weighted by noisy ratios: their variance grows with the length, their mean hardly moves.
What to do
    Compare one batch at a temperature of 1; raise the sampler's precision, or correct with a capped ratio.
What decides
    The same batch scored by the trainer in the sampler's precision.
Sources
    miles #1678, FP8 rollouts at a constant level: https://github.com/radixark/miles/pull/1678
    prime-rl #3112, coarser scales of FP8 from one version on: https://github.com/PrimeIntellect-ai/prime-rl/pull/3112
    NeMo-RL #906, spikes: https://github.com/NVIDIA-NeMo/RL/issues/906
    verl, rollout correction; NeMo-RL, error of generation against training
    vime #64, log-probabilities before the temperature: https://github.com/vllm-project/vime/issues/64
    open-instruct #1678: https://github.com/allenai/open-instruct/pull/1678
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
        "draw one batch at a temperature of 1 without top-k and top-p: what is left are numerics (precision, FP8, "
        "kernels, routing); what is gone are log-probabilities that the sampler returns before its temperature (vLLM: "
        "logprobs_mode processed_logprobs), or after truncation. Numerics that stay need a capped ratio (truncated "
        "importance sampling), or a sampler in the trainer's precision"
    ),
    beside="warning",
    log=TEST,
)
