"""What follows from several settings together, for more than one check."""

from __future__ import annotations

from grposcope.instruments.lint.config import TrainerConfig

OUTCOME_ONLY = ("grpo", "grpo_vectorized", "grpo_passk", "gdpo", "rloo", "rloo_vectorized", "opo", "gpg",
                "reinforce_plus_plus_baseline")  # fmt: skip
"""Estimators of verl 0.9.1 that sum token-level rewards over the completion."""

GROUP_RELATIVE = (*OUTCOME_ONLY, "optimal_token_baseline", "tir_optimal_token_baseline")
"""Estimators of verl 0.9.1 that compare the rollouts of a prompt."""

ACTOR = "actor_rollout_ref.actor."
ROLLOUT = "actor_rollout_ref.rollout."


def group_relative(config: TrainerConfig) -> bool:
    """Whether the rollouts of a prompt are compared with each other, as far as is known."""
    if config.dialect.name == "verl":
        return config.get("algorithm.adv_estimator") in (*GROUP_RELATIVE, None)
    return config.get("grpo.adv_estimator.name") != "reinforce_plus_plus"


def is_off(config: TrainerConfig, key: str) -> bool:
    """Whether a switch is known to be off."""
    return config.get(key) is False


def gpus(config: TrainerConfig) -> int | None:
    """Processes that train with verl; None if it is not known."""
    nodes, each = config.whole("trainer.nnodes"), config.whole("trainer.n_gpus_per_node")
    return nodes * each if nodes and each else None


def ranks(config: TrainerConfig) -> int | None:
    """Data-parallel ranks of verl's actor; 0 where the GPUs are no multiple of a replica, None if it is not known."""
    devices = gpus(config)
    if devices is None:
        return None
    replica = 1
    for key in REPLICA[on_megatron(config)]:
        replica *= config.whole(ACTOR + key) or 1
    return devices // replica if devices % replica == 0 else 0


REPLICA = {
    True: ("megatron.tensor_model_parallel_size", "megatron.pipeline_model_parallel_size",
           "megatron.context_parallel_size"),
    False: ("ulysses_sequence_parallel_size",),
}  # fmt: skip
"""Keys below the actor whose product is the GPUs of one replica of the model, by whether Megatron trains it."""


def on_megatron(config: TrainerConfig) -> bool:
    """Whether verl trains with Megatron, be it by the name of its configuration or by its settings."""
    given = any(key.startswith(ACTOR + "megatron.") for key in (*config.given, *config.opaque))
    return config.get(ACTOR + "strategy") == "megatron" or (given and not config.says(ACTOR + "strategy"))


def generation_steps(config: TrainerConfig) -> int | None:
    """Forward passes of a process of TRL on one batch of rollouts, where that does not depend on the processes."""
    if config.says("generation_batch_size") and not config.resolved:
        return None
    key = "steps_per_generation" if config.says("steps_per_generation") else "gradient_accumulation_steps"
    return config.whole(key)


def interval(config: TrainerConfig, world: int | None) -> int | None:
    """Optimiser steps taken on one batch of rollouts, N; None if it is not known."""
    if config.dialect.name == "trl":
        steps, accumulated = generation_steps(config), config.whole("gradient_accumulation_steps")
        again, each = config.whole("num_iterations"), config.whole("per_device_train_batch_size")
        batch = config.whole("generation_batch_size")
        if batch and each and world:
            steps = batch // (each * world)
        return max(steps * again // accumulated, 1) if steps and again and accumulated else None
    if config.dialect.name == "verl":
        whole, part = config.whole("data.train_batch_size"), config.whole(ACTOR + "ppo_mini_batch_size")
        epochs = config.whole(ACTOR + "ppo_epochs")
        return max(whole // part, 1) * epochs if whole and part and epochs else None
    if config.dialect.name == "nemo-rl":
        prompts, group = config.whole("grpo.num_prompts_per_step"), config.group
        part = config.whole("policy.train_global_batch_size")
        return max(prompts * group // part, 1) if prompts and group and part else None
    value = config.settings.get("interval")
    return value if isinstance(value, int) else None
