"""The sampler draws at another temperature than the trainer takes gradients at.

What it is
    The temperature of the sampler is not the one by which the trainer divides its logits, or its log-probabilities
    are recorded before the temperature.
How it shows
    log π + H of drawn tokens drifts from 0: above where the sampler is colder, below where it is hotter; recorded
    log-probabilities fit those of the weights raised to a power. In a log: a mismatch at one level from the first step
    on, at a temperature other than 1.
What it does to the gradient
    Ratios are off at every token in proportion to log π: likely tokens are over- or underweighted, and clipping
    removes the rest.
What to do
    Give sampler and trainer one temperature; record log-probabilities after it (vLLM: logprobs_mode
    processed_logprobs).
What decides
    Tokens of one batch under the checkpoint that drew them: grposcope verify FOLDER --model CHECKPOINT.
Sources
    vime #64: https://github.com/vllm-project/vime/issues/64
    NeMo-RL #902: https://github.com/NVIDIA-NeMo/RL/issues/902
    vLLM, logprobs_mode
    method of this project: the mixture of powers as an e-value"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import sampling, weights
from grposcope.signs.sampler_mismatch import TEST

FAULT = Fault(
    name="sampler temperature differs",
    rank=1.0,
    remedy="set the same temperature in the sampler and the trainer",
    beside="warning",
    log=TEST,
    rollouts=(weights.PROOF, sampling.PROOF),
)
