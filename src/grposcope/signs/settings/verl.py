"""What several settings of verl say together: how its GPUs are divided, and what its estimators compare."""

from __future__ import annotations

from grposcope.core.settings import Settings

ACTOR = "actor_rollout_ref.actor."
ROLLOUT = "actor_rollout_ref.rollout."
ESTIMATOR = "algorithm.adv_estimator"

OUTCOME_ONLY = ("grpo", "grpo_vectorized", "grpo_passk", "gdpo", "rloo", "rloo_vectorized", "opo", "gpg",
                "reinforce_plus_plus_baseline")  # fmt: skip
"""Estimators of verl 0.9.1 that sum token-level rewards over the completion."""

GROUP_RELATIVE = (*OUTCOME_ONLY, "optimal_token_baseline", "tir_optimal_token_baseline")
"""Estimators of verl 0.9.1 that compare the rollouts of a prompt."""

REPLICA = {
    True: ("megatron.tensor_model_parallel_size", "megatron.pipeline_model_parallel_size",
           "megatron.context_parallel_size"),
    False: ("ulysses_sequence_parallel_size",),
}  # fmt: skip
"""Keys below the actor whose product is the GPUs of one replica of the model, by whether Megatron trains it."""

VALIDATE = "verl 0.9.1, verl.utils.config.validate_config: https://github.com/verl-project/verl"
CORE = "verl 0.9.1, verl.trainer.ppo.core_algos: https://github.com/verl-project/verl"


def gpus(settings: Settings) -> int | None:
    """Processes that train with verl; None if it is not known."""
    nodes, each = settings.whole("trainer.nnodes"), settings.whole("trainer.n_gpus_per_node")
    return nodes * each if nodes and each else None


def ranks(settings: Settings) -> int | None:
    """Data-parallel ranks of verl's actor; 0 where the GPUs are no multiple of a replica, None if it is not known."""
    devices = gpus(settings)
    if devices is None:
        return None
    replica = 1
    for key in REPLICA[on_megatron(settings)]:
        replica *= settings.whole(ACTOR + key) or 1
    return devices // replica if devices % replica == 0 else 0


def on_megatron(settings: Settings) -> bool:
    """Whether verl trains with Megatron, be it by the name of its configuration or by its settings."""
    megatron = any(key.startswith(ACTOR + "megatron.") for key in (*settings.given, *settings.opaque))
    return settings.get(ACTOR + "strategy") == "megatron" or (megatron and not settings.says(ACTOR + "strategy"))
