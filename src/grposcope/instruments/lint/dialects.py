"""How trainers write their settings, with their defaults: TRL 1.16, verl 0.9.1, NeMo-RL, and our own loop.

Defaults are those of the versions named; a key without a default here is unknown where it is not given.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from grposcope.core.settings import Dialect

TRL_KEYS = frozenset({
    "num_generations", "max_completion_length", "num_iterations", "epsilon_high", "steps_per_generation",
    "generation_batch_size", "mask_truncated_completions", "scale_rewards", "loss_type", "reward_weights",
    "max_prompt_length", "vllm_mode", "log_completions", "rloo_k",
})  # fmt: skip
"""Keys that only TRL's trainers of this family have."""

TRL = Dialect(
    name="trl",
    title="TRL",
    version="1.16",
    defaults={
        "num_generations": 8,
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 8,
        "gradient_accumulation_steps": 1,
        "num_iterations": 1,
        "learning_rate": 1e-6,
        "max_completion_length": 512,
        "mask_truncated_completions": False,
        "beta": 0.0,
        "sync_ref_model": False,
        "epsilon": 0.2,
        "loss_type": "dapo",
        "scale_rewards": "group",
        "multi_objective_aggregation": "sum_then_normalize",
        "importance_sampling_level": "token",
        "temperature": 1.0,
        "top_p": 1.0,
        "eval_strategy": "no",
        "use_vllm": False,
        "vllm_importance_sampling_correction": True,
        "auto_find_batch_size": False,
        "adam_beta1": 0.9,
        "optim": "adamw_torch_fused",
    },
    recognises=lambda keys: bool(TRL_KEYS & set(keys)),
    keys=TRL_KEYS,
)

RLOO = replace(
    TRL,
    title="TRL (RLOO)",
    defaults={key: value for key, value in TRL.defaults.items() if key not in (
        "scale_rewards", "multi_objective_aggregation", "loss_type", "importance_sampling_level",
        "vllm_importance_sampling_correction",
    )} | {"num_generations": 2, "beta": 0.05},
)  # fmt: skip
"""RLOOConfig: no deviation divides its advantages."""

VERL = Dialect(
    name="verl",
    title="verl",
    version="0.9.1",
    defaults={
        "algorithm.adv_estimator": "gae",
        "algorithm.norm_adv_by_std_in_grpo": True,
        "algorithm.use_kl_in_reward": False,
        "algorithm.kl_ctrl.kl_coef": 0.001,
        "algorithm.gamma": 1.0,
        "algorithm.lam": 1.0,
        "algorithm.filter_groups.enable": False,
        "data.train_batch_size": 1024,
        "data.max_prompt_length": 512,
        "data.max_response_length": 512,
        "actor_rollout_ref.actor.strategy": "fsdp",
        "actor_rollout_ref.actor.optim.lr": 1e-6,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 256,
        "actor_rollout_ref.actor.use_dynamic_bsz": False,
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 16384,
        "actor_rollout_ref.actor.ppo_epochs": 1,
        "actor_rollout_ref.actor.clip_ratio": 0.2,
        "actor_rollout_ref.actor.clip_ratio_low": 0.2,
        "actor_rollout_ref.actor.clip_ratio_high": 0.2,
        "actor_rollout_ref.actor.policy_loss.loss_mode": "vanilla",
        "actor_rollout_ref.actor.use_kl_loss": False,
        "actor_rollout_ref.actor.kl_loss_coef": 0.001,
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size": 1,
        "actor_rollout_ref.actor.fsdp_config.model_dtype": "fp32",
        "actor_rollout_ref.model.lora_rank": 0,
        "actor_rollout_ref.model.lora.merge": False,
        "actor_rollout_ref.rollout.load_format": "dummy",
        "actor_rollout_ref.rollout.layered_summon": False,
        "actor_rollout_ref.rollout.checkpoint_engine.backend": "naive",
        "actor_rollout_ref.rollout.n": 1,
        "actor_rollout_ref.rollout.temperature": 1.0,
        "actor_rollout_ref.rollout.do_sample": True,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 2,
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": 8,
    },
    recognises=lambda keys: any(key.startswith(("actor_rollout_ref.", "algorithm.adv_estimator")) for key in keys),
)

NEMO_RL = Dialect(
    name="nemo-rl",
    title="NeMo-RL",
    version="of August 2026",
    defaults={},
    recognises=lambda keys: any(key.startswith("grpo.") for key in keys) and any(k.startswith("policy.") for k in keys),
    names={
        "group": ("grpo/num_generations_per_prompt",),
        "lr": ("policy/optimizer/kwargs/lr",),
        "kl": ("loss_fn/reference_policy_kl_penalty",),
        "clip_low": ("loss_fn/ratio_clip_min",),
        "temperature": ("policy/generation/temperature",),
    },
)

OWN = Dialect(
    name="grposcope",
    title="GRPOscope",
    version="",
    defaults={},
    recognises=lambda keys: {"group", "prompts", "interval", "recipe"} <= set(keys),
    names={name: (name,) for name in ("group", "interval", "lr", "kl", "temperature", "max_tokens", "prompts",
                                      "momentum", "optimizer")},
)  # fmt: skip

DIALECTS = (VERL, NEMO_RL, OWN, TRL)
"""Every trainer whose settings can be read, in the order in which they are tried."""


def recognise(keys: Collection[str]) -> Dialect | None:
    """The trainer whose keys these are; None if none knows them."""
    return next((dialect for dialect in DIALECTS if dialect.recognises(keys)), None)
