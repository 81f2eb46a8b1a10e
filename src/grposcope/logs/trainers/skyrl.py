"""SkyRL: its keys in W&B, TensorBoard or JSON lines.

`reward/avg_raw_reward` is the reward of the rollouts, `loss/avg_final_rewards` what is left after a KL penalty.
`policy/policy_kl` follows the estimator that was configured. `policy/response_length` is the width of the padded batch,
so it keeps its name. `async/keep_rate` is the share of groups that were not dropped for equal rewards
(sample_full_batch), `generate/trajectory_time_env_mean` the time of a trajectory in its environment.
"""

from __future__ import annotations

import numpy as np

from grposcope.logs.trainers.trainer import Columns, Made, Setting, Trainer


def _made(columns: Columns) -> dict[str, Made]:
    """Turns of the policy, and the share of dead groups, which the asynchronous trainer drops."""
    keep = columns.get("async/keep_rate")
    return _turns(columns) | ({} if keep is None else {"dead_fraction": Made(1 - keep, "1 − async/keep_rate")})


def _turns(columns: Columns) -> dict[str, Made]:
    """Turns of the policy: its tokens in a rollout over those of a turn."""
    whole, each = (columns.get(f"generate/{key}") for key in ("avg_assistant_tokens", "tokens_per_turn_mean"))
    if whole is None or each is None:
        return {}
    formula = "generate/avg_assistant_tokens ÷ generate/tokens_per_turn_mean"
    return {"agent/turns": Made(whole / np.where(each > 0, each, np.nan), formula)}


SKYRL = Trainer(
    name="skyrl",
    title="SkyRL",
    recognises=lambda keys: bool(keys & {"reward/avg_raw_reward", "policy/policy_entropy", "policy/raw_grad_norm"}),
    keys={
        "reward": ("reward/avg_raw_reward",),
        "reward_after_kl": ("loss/avg_final_rewards",),
        "entropy_loss": ("policy/policy_entropy",),
        "kl_estimate": ("policy/policy_kl",),
        "length": ("generate/avg_num_tokens",),
        "length_min": ("generate/min_num_tokens",),
        "length_max": ("generate/max_num_tokens",),
        "loss": ("policy/final_loss",),
        "policy_loss": ("policy/policy_loss",),
        "grad_norm": ("policy/raw_grad_norm", "policy/grad_norm"),
        "clip_fraction": ("policy/ppo_clip_ratio", "policy/loss_metrics/clip_ratio"),
        "lr": ("policy/policy_lr",),
        "seconds_step": ("timing/step",),
        "mismatch/abs": (
            "policy/rollout_train_logprobs_abs_diff_mean",
            "policy/minibatch_rollout_logprobs_abs_diff_mean",
        ),
        "mismatch/abs_max": (
            "policy/rollout_train_logprobs_abs_diff_max",
            "policy/minibatch_rollout_logprobs_abs_diff_max",
        ),
        "importance/masked": ("policy/loss_metrics/token_mask_ratio",),
        "importance/masked_sequences": (
            "policy/loss_metrics/geo_sequence_mask_masked_ratio",
            "policy/loss_metrics/product_sequence_mask_masked_ratio",
            "policy/loss_metrics/outlier_seq_masked_ratio",
        ),
        "importance/out_of_bounds": (
            "policy/loss_metrics/tis_token_clip_high_ratio",
            "policy/loss_metrics/tis_seq_clip_high_ratio",
        ),
        "staleness/mean": ("async/staleness_mean",),
        "staleness/max": ("async/staleness_max",),
        "agent/turns": ("environment/num_turns",),
        "agent/seconds_tools": ("generate/trajectory_time_env_mean",),
    },
    made=_made,
    version="0.3.0",
    configured=lambda keys: any(key.startswith(("trainer.policy.", "trainer.algorithm.")) for key in keys),
    settings=(
        Setting("generator.n_samples_per_prompt", "group", 5),
        Setting("trainer.train_batch_size", "prompts", 1024),
        Setting("trainer.policy.optimizer_config.lr", "lr", 1e-06),
        Setting("generator.sampling_params.temperature", "temperature", 1.0),
        Setting("generator.sampling_params.max_generate_length", "max_tokens", 1024),
        Setting("trainer.algorithm.advantage_estimator", "advantage", "grpo"),
        Setting("trainer.algorithm.eps_clip_low", "clip_low", 0.2),
        Setting("trainer.algorithm.kl_loss_coef", "kl", 0.001),
        Setting("trainer.algorithm.kl_estimator_type", "divergence", "k3"),
        Setting("trainer.algorithm.use_kl_loss", default=True),
        Setting("trainer.algorithm.use_kl_in_reward", default=False),
        Setting("trainer.policy_mini_batch_size", default=256),
        Setting("trainer.update_epochs_per_batch", default=1),
        Setting("trainer.policy.model.lora.rank", default=0),
        Setting("generator.sampling_params.top_p", "top_p", 1.0),
        Setting("generator.sampling_params.top_k", "top_k", -1),
        Setting("generator.sampling_params.min_p", "min_p", 0.0),
        Setting("trainer.max_prompt_length", "max_prompt", 512),
        Setting("generator.inference_engine.engine_init_kwargs.max_model_len", "room"),
        Setting("generator.engine_init_kwargs.max_model_len", "room"),
        Setting("trainer.algorithm.entropy_loss_coef", "entropy_bonus", 0.01),
        Setting("trainer.algorithm.use_entropy_loss", default=False),
        Setting("trainer.max_training_steps", "steps"),
        Setting("trainer.policy.optimizer_config.num_warmup_steps", "warmup", 0),
        Setting("trainer.policy.optimizer_config.scheduler", "schedule", "constant_with_warmup"),
        Setting("trainer.algorithm.grpo_norm_by_std", "scale_rewards", True),
        Setting("trainer.algorithm.loss_reduction", "loss_type", "token_mean"),
    ),
    how_to_log={
        "reward": "reward/avg_raw_reward, always logged",
        "evaluation": "trainer.eval_interval",
        "entropy": "policy/policy_entropy, always logged",
        "kl": "policy/policy_kl, with use_kl_loss",
        "length": "generate/avg_num_tokens, always logged",
        "grad_norm": "policy/raw_grad_norm, logged where the optimiser step runs",
        "lr": "policy/policy_lr, always logged",
        "loss": "policy/policy_loss, always logged",
        "agent/turns": "generate/tokens_per_turn_mean, logged of several turns",
        "mismatch": "policy/rollout_train_logprobs_abs_diff_mean, where the sampler returns log-probabilities",
    },
)
"""Everything that is known of SkyRL."""
