"""The sampler draws from a part of the trainer's distribution only.

What it is
    top-k, top-p or min-p at sampling, or log-probabilities that are returned after truncation.
How it shows
    The log ratio has the same sign from the first step on: mean ρ is the kept mass m, below 1, and mean log ρ is log m.
What it does to the gradient
    Every ratio is too small by the kept mass, and tokens outside of it are never explored.
What to do
    Sample without truncation at the trainer's temperature, or return log-probabilities from before it.
What decides
    Mean ρ beside k1 and k3: 1 + k3 − k1 is 1 without truncation.
Sources
    TRL #6789: https://github.com/huggingface/trl/issues/6789
    vLLM, logprobs_mode"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.sampler_mismatch import TEST

FAULT = Fault(
    name="truncated sampler",
    rank=219,
    remedy=(
        "sample without top-k and top-p at the trainer's temperature, or have the sampler return "
        "log-probabilities computed before truncation"
    ),
    source="method of this project; limits of verl, slime and NeMo-RL",
    beside="warning",
    log=TEST,
)
