"""Cosmos-RL: its keys in W&B, and what its rollouts report below train/ and rollout/.

`train/reward_std` is over all rollouts of the step, not within groups, with ddof 0. `train/kl_loss_avg` is the KL term
of the loss, logged where its coefficient is not 0. `rollout/filter_reward_…` is what dynamic sampling looks at and
`train/effective_entropy` that of tokens with an advantage: both keep their names.
"""

from __future__ import annotations

from grposcope.logs.trainers.trainer import Trainer, with_prefix

COSMOS_RL = Trainer(
    name="cosmos-rl",
    title="Cosmos-RL",
    recognises=lambda keys: bool(keys & {"rollout/completion_length_mean", "rollout/filter_reward_mean"}),
    keys={
        "reward": with_prefix("reward_mean"),
        "reward_std_batch": with_prefix("reward_std"),
        "reward_max": with_prefix("reward_max"),
        "reward_min": with_prefix("reward_min"),
        "entropy": with_prefix("entropy"),
        "kl_loss": with_prefix("kl_loss_avg"),
        "length": ("rollout/completion_length_mean",),
        "length_max": ("rollout/completion_length_max",),
        "length_min": ("rollout/completion_length_min",),
        "loss": with_prefix("loss_avg"),
        "grad_norm": with_prefix("grad_norm"),
        "lr": with_prefix("learning_rate"),
        "seconds_step": with_prefix("iteration_time"),
        "advantage_mean": ("rollout/advantage_mean",),
        "advantage_max": ("rollout/advantage_max",),
        "advantage_min": ("rollout/advantage_min",),
        "staleness/max": ("rollout/weight_staleness_max",),
    },
    how_to_log={
        "reward": "train/reward_mean, always logged",
        "evaluation": "validation.enable",
        "entropy": "train/entropy, always logged",
        "kl": "train/kl_loss_avg, where train.train_policy.kl_beta is not 0",
        "length": "rollout/completion_length_mean, always logged",
        "grad_norm": "train/grad_norm, always logged",
        "lr": "train/learning_rate, always logged",
        "loss": "train/loss_avg, always logged",
    },
)
"""Everything that is known of Cosmos-RL."""
