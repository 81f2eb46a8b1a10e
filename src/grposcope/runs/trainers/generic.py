"""Logs whose trainer is not known: keys that have a usual meaning.

The log does not say how they are defined, and a note of the run says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from grposcope.runs.trainers.trainer import Trainer

USUAL: Mapping[str, tuple[str, ...]] = {
    "reward": ("reward/mean", "rewards/mean", "mean_reward", "reward_mean", "train/reward"),
    "entropy": ("policy/entropy", "optim/entropy", "mean_entropy", "train/entropy"),
    "lr": ("optim/lr", "learning_rate", "train/learning_rate"),
    "loss": ("train/loss", "training_loss"),
    "grad_norm": ("train/grad_norm", "gradient_norm", "optim/grad_norm"),
    "kl": ("train/kl", "kl_div", "kl_divergence"),
    "length": ("response_length", "completion_length", "mean_length", "response_length/mean"),
    "seconds_step": ("time/total", "step_time"),
    "time": ("timestamp", "_timestamp"),
}
"""Metric -> keys that usually mean it."""

GENERIC = Trainer(
    name="generic",
    title="any other log",
    recognises=lambda keys: True,
    usual_keys=USUAL,
    how_to_log={
        "dead_fraction": "for rewards of 0 and 1, it follows from the mean reward: give the settings group=N and "
        "rewards=binary",
    },
)
"""What is assumed of a log whose trainer is not known."""
