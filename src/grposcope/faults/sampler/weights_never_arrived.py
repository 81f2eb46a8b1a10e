"""The trainer's weights never reach the sampler, which draws every batch with those it began with.

What it is
    The update of the sampler's weights is skipped, goes to another copy, or carries a part of the tensors: adapters
    that are not merged, heads or embeddings that are left out, a random model that is never overwritten.
How it shows
    Mismatch grows from the first step on as a power of the learning rate times steps, while the staleness that is
    logged stays where it is; the reward moves no more than chance. In rollouts: the first checkpoint scores their
    tokens as they were recorded, the current one does not.
What it does to the gradient
    Rewards are those of a policy that no longer exists. The update follows them away from where they were earned, until
    ratios are clipped and nothing is learned.
What to do
    Send the trainer's weights after every step and compare: a checksum per tensor on both sides, or the greedy
    completions of one prompt.
What decides
    The weights on both sides after an update: grposcope verify FOLDER --model TRAINER --sampler-weights SAMPLER.
Sources
    verl, adapters: https://verl.readthedocs.io/en/latest/advance/ppo_lora.html
    TRL #5231: https://github.com/huggingface/trl/issues/5231
    method of this project for the course in a log"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.signs.rollouts.claims import arrived, checkpoints, weights
from grposcope.signs.sampler_mismatch import TEST

LORA_RANK = "actor_rollout_ref.model.lora_rank"
LOAD_FORMAT = "actor_rollout_ref.rollout.load_format"


def settings(config: Any, known: Any) -> Iterator[Finding]:
    """verl sends adapters alone, so that a sampler which starts from dummy weights keeps a random base model."""
    rank = config.number(LORA_RANK)
    if rank and config.get(LOAD_FORMAT) in ("dummy", "dummy_dtensor", "dummy_megatron"):
        because = (
            f"lora_rank is {rank:g}, so only adapters are sent, and load_format: {config.get(LOAD_FORMAT)} leaves "
            "the sampler's base model random"
        )
        yield fact(
            True,
            because,
            config.signs(LORA_RANK, LOAD_FORMAT),
            grade="failing",
            remedy="set actor_rollout_ref.rollout.load_format=safetensors",
        )


FAULT = Fault(
    name="weights never arrived",
    rank=215,
    remedy="check that new weights reach the sampler: compare checksums of the weights, or compare greedy samples",
    source="method of this project; verl docs, advance/ppo_lora: https://verl.readthedocs.io/en/latest/advance/ppo_lora.html",
    beside="warning",
    log=TEST,
    rollouts=(arrived.PROOF, checkpoints.PROOF, weights.PROOF),
    settings=SettingsCheck(
        "weights never arrived",
        settings,
        trainers=("verl",),
        finds="a sampler that starts from random weights and gets adapters alone",
        grades=("failing",),
    ),
)
