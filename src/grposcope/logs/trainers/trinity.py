"""Trinity-RFT: its trainer logs verl's keys, its explorer those of rollouts below rollout/ and eval/.

Both write to loggers of their own, joined by step. What a workflow reports is `rollout/NAME/mean`, so that
`rollout/reward/mean` is over the tasks that the explorer finished, and `critic/score/mean` over the batch of an update.
`experience_pipeline/…` counts what was filtered on the way; it keeps its names.
"""

from __future__ import annotations

from dataclasses import replace

from grposcope.logs.trainers.verl import VERL

_OWN = (
    "rollout/model_version",
    "rollout/finished_task_count",
    "experience_pipeline/",
    "time/train_step",
    "actor/final_loss",
)
"""Keys, or beginnings of keys, that Trinity alone logs."""

_SETTINGS = ("algorithm.algorithm_type", "explorer.", "buffer.explorer")
"""Beginnings of the names of its settings."""

TRINITY = replace(
    VERL,
    name="trinity",
    title="Trinity-RFT",
    recognises=lambda keys: any(key.startswith(_OWN) for key in keys),
    keys={
        **{name: VERL.keys[name] for name in (
            "reward_after_kl", "reward_max", "reward_min", "entropy", "entropy_loss", "kl_loss", "kl_old_k1", "length",
            "length_min", "length_max", "at_limit", "policy_loss", "grad_norm", "clip_fraction", "clip_dual", "lr",
            "advantage_mean", "advantage_max", "advantage_min",
        )},
        "reward": ("critic/score/mean", "rollout/reward/mean"),
        "loss": ("actor/final_loss",),
        "weight_version": ("rollout/model_version",),
        "seconds_step": ("perf/time_per_step",),
    },
    made=None,
    component=None,
    configured=lambda keys: any(key.startswith(_SETTINGS) for key in keys),
    settings=(),
    derive=None,
    defects=(),
    logs=(),
    version="",
    conventions={"ddof": 1, "eps": 1e-6},
    how_to_log={
        "reward": "critic/score/mean, always logged by the trainer",
        "evaluation": "explorer.eval_interval",
        "entropy": "actor/entropy_loss, with an entropy loss",
        "kl": "actor/kl_loss, with algorithm.kl_loss_fn",
        "length": "response_length/mean, always logged by the trainer",
        "grad_norm": "actor/grad_norm, logged where the optimiser step runs",
        "lr": "actor/lr, always logged by the trainer",
        "loss": "actor/final_loss, always logged by the trainer",
    },
)  # fmt: skip
"""Everything that is known of Trinity-RFT."""
