"""NeMo-RL: its keys in W&B, TensorBoard or JSON lines, `train/…`, `validation/…` and `timing/…`.

`approx_entropy` is estimated from the tokens that were sampled, and `kl_penalty` is the KL to the reference before its
coefficient, 0 where that is 0. `gen_kl_error` (k3) and `token_mult_prob_error` compare the sampling engine with the
trainer over all tokens, before anything is masked; `sampling_importance_ratio` is per sequence where
sequence_level_importance_ratios is set. `natural_termination_rate` counts truncated rollouts too, so it keeps its name,
as `policy_kl_error` and `js_divergence_error` do.
"""

from __future__ import annotations

from grposcope.logs.trainers.trainer import Setting, Trainer, with_prefix

_OWN = frozenset(
    form for key in ("token_mult_prob_error", "gen_kl_error", "mean_gen_tokens_per_sample") for form in with_prefix(key)
)

NEMO_RL = Trainer(
    name="nemo-rl",
    title="NeMo-RL",
    recognises=lambda keys: bool(keys & _OWN),
    keys={
        "reward": with_prefix("reward"),
        "entropy_loss": with_prefix("approx_entropy"),
        "kl_estimate": with_prefix("kl_penalty"),
        "length": with_prefix("mean_gen_tokens_per_sample"),
        "loss": with_prefix("loss"),
        "policy_loss": with_prefix("policy_loss"),
        "grad_norm": with_prefix("grad_norm"),
        "lr": with_prefix("lr"),
        "prompt_length": with_prefix("mean_prompt_length"),
        "seconds_step": ("timing/train/total_step_time",),
        "mismatch/k3": with_prefix("gen_kl_error"),
        "mismatch/mult_error": with_prefix("token_mult_prob_error"),
        "importance/ratio": with_prefix("sampling_importance_ratio"),
        "importance/out_of_bounds": with_prefix("is_oob_ratio"),
        "truncated": with_prefix("truncation_rate"),
        "agent/turns": (*with_prefix("avg_turns_per_sample"), *with_prefix("turns_per_sample/mean")),
        "agent/turns_max": (*with_prefix("max_turns_per_sample"), *with_prefix("turns_per_sample/max")),
        "agent/stop_turns": with_prefix("max_turns_reached_rate"),
        "agent/environment_tokens": (
            *with_prefix("mean_env_tokens_per_sample"),
            *with_prefix("env_tokens_per_sample/mean"),
        ),
    },
    version="of August 2026",
    configured=lambda keys: any(key.startswith("grpo.") for key in keys) and any(k.startswith("policy.") for k in keys),
    settings=(
        Setting("grpo.num_generations_per_prompt", "group"),
        Setting("policy.optimizer.kwargs.lr", "lr"),
        Setting("policy.megatron_cfg.optimizer.lr", "lr"),
        Setting("loss_fn.reference_policy_kl_penalty", "kl"),
        Setting("loss_fn.ratio_clip_min", "clip_low"),
        Setting("policy.generation.temperature", "temperature"),
        Setting("policy.generation.top_p", "top_p"),
        Setting("policy.generation.top_k", "top_k"),
        Setting("policy.generation.max_new_tokens", "max_tokens"),
        Setting("policy.max_total_sequence_length", "room"),
        Setting("grpo.max_num_steps", "steps"),
        Setting("grpo.num_prompts_per_step", "prompts"),
        Setting("loss_fn.reference_policy_kl_type", "divergence"),
    ),
    how_to_log={
        "reward": "train/reward, always logged",
        "evaluation": "grpo.val_period",
        "entropy": "train/approx_entropy, always logged",
        "length": "train/mean_gen_tokens_per_sample, always logged",
        "grad_norm": "train/grad_norm, always logged",
        "lr": "train/lr, always logged",
        "loss": "train/loss, always logged",
        "mismatch": "train/gen_kl_error, always logged",
        "truncated": "train/truncation_rate, of rollouts with an environment",
        "agent/turns": "train/avg_turns_per_sample, of rollouts with an environment",
    },
)
"""Everything that is known of NeMo-RL."""
