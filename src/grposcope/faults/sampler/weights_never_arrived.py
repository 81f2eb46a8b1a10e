"""The trainer's weights never reach the sampler, which draws every batch with those it began with.

What it is
    The update of the sampler's weights is skipped, goes to another copy, or carries a part of the tensors: adapters
    that are not merged or not sent, heads or embeddings that are left out.
How it shows
    Mismatch grows from the first step on as a power of the learning rate times steps, while the staleness that is
    logged stays where it is; the reward moves no more than chance. Or there is none before the first update, and then
    it goes with the KL to the start. Where no mismatch is logged, the KL of an update to
    the policy that sampled grows so, and more tokens are clipped, while the reward stands still. In rollouts: the first
    checkpoint scores their tokens as they were recorded, the current one does not.
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
    verl 0.9.1, utils.fsdp_utils.collect_lora_params and workers.engine_workers.update_weights
    verl #3907: https://github.com/verl-project/verl/pull/3907
    TRL #5231: https://github.com/huggingface/trl/issues/5231
    verl #7495: https://github.com/verl-project/verl/issues/7495
    verl-omni #552: https://github.com/verl-project/verl-omni/issues/552
    TRL #5312: https://github.com/huggingface/trl/issues/5312
    method of this project for the course in a log"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import checkpoints, weights, weights_at_the_sampler
from grposcope.signs.sampler_mismatch import TEST
from grposcope.signs.settings.recipe import verl_lora_rank
from grposcope.signs.settings.verl import ROLLOUT, on_megatron

LORA_RANK = "actor_rollout_ref.model.lora_rank"
MERGED = "actor_rollout_ref.model.lora.merge"
LOAD_FORMAT, LAYERED = ROLLOUT + "load_format", ROLLOUT + "layered_summon"
TRANSFER = ROLLOUT + "checkpoint_engine.backend"


def _settings(config: Settings, known: Known) -> Iterator[Finding]:
    """Adapters of verl with FSDP, which are sent without the base model, and by one of its ways of transfer only.

    With the default `load_format`, dummy, the sampler begins with random weights, and verl sends the base model before
    the first adapters, which layer by layer it cannot. Another transfer than naive asks the trainer for the base model
    alone, each time.
    """
    rank = verl_lora_rank(config)
    if not rank or config.on(MERGED) or on_megatron(config):
        return
    transfer, random = config.get(TRANSFER), str(config.get(LOAD_FORMAT)).startswith("dummy")
    remedy = f"set {LOAD_FORMAT}=safetensors"
    if transfer not in (None, "naive", "delta_sharded"):
        yield fact(
            True,
            f"lora_rank is {rank:g}, and {transfer} sends the base model without its adapters",
            config.signs(LORA_RANK, TRANSFER, MERGED),
            grade="warning",
            explains=("no learning", "sampler mismatch", "growing lag", "wrong weights at the sampler"),
            brief="adapters do not reach the sampler",
            remedy=f"set {MERGED}=True, and compare the weights of both sides after an update",
        )
    elif random and config.on(LAYERED):
        yield fact(
            True,
            f"the sampler begins with random weights (load_format {config.get(LOAD_FORMAT)}), and with layered_summon "
            "verl cannot send it the base model: the first transfer fails",
            config.signs(LORA_RANK, LOAD_FORMAT, LAYERED),
            grade="failing",
            brief="the base model does not reach the sampler",
            remedy=remedy,
        )
    elif random:
        yield fact(
            True,
            f"the sampler begins with random weights (load_format {config.get(LOAD_FORMAT)}) until the base model is "
            "sent with the first adapters, which failed before verl #3907 (October 2025); verl's documentation "
            "requires safetensors for adapters",
            config.signs(LORA_RANK, LOAD_FORMAT),
            grade="note",
            brief="the sampler waits for its base model",
            remedy=remedy,
        )


FAULT = Fault(
    name="weights never arrived",
    rank=215,
    remedy="check that new weights reach the sampler: compare checksums of the weights, or compare greedy samples",
    beside="warning",
    log=TEST,
    rollouts=(weights_at_the_sampler.PROOF, checkpoints.PROOF, weights.PROOF),
    settings=SettingsCheck(
        "weights never arrived",
        _settings,
        ("verl",),
        "adapters or a base model that verl does not send to the sampler",
        ("failing", "warning", "note"),
        "verl docs, advance/ppo_lora: https://verl.readthedocs.io/en/latest/advance/ppo_lora.html; verl 0.9.1, "
        "verl.utils.fsdp_utils, verl.workers.engine_workers; verl #3907",
    ),
)
