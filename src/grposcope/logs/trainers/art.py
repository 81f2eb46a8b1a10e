"""ART: history.jsonl in the folder of a model, and the same keys in W&B.

A row for the rollouts of a step, one for its update, one for costs, one for an evaluation. Older versions put `train/`
before every key, newer ones have sections, `reward/mean`, `loss/train`. `reward/std_dev` is the mean over groups of a
spread with ddof 0, so it keeps its name; so does what a trajectory reports beside its reward.
"""

from __future__ import annotations

from grposcope.logs.trainers.trainer import Trainer, with_prefix

ART = Trainer(
    name="art",
    title="ART",
    recognises=lambda keys: (
        bool(keys & {"reward/exception_rate", *with_prefix("exception_rate")}) or {"reward/mean", "loss/train"} <= keys
    ),
    keys={
        "reward": ("reward/mean", *with_prefix("reward")),
        "entropy": ("loss/entropy", *with_prefix("entropy")),
        "kl_estimate": ("loss/kl_div", *with_prefix("kl_div")),
        "loss": ("loss/train", *with_prefix("loss")),
        "policy_loss": ("loss/policy_loss", *with_prefix("policy_loss")),
        "grad_norm": ("loss/grad_norm", *with_prefix("grad_norm")),
        "lr": ("loss/learning_rate", *with_prefix("learning_rate")),
    },
    how_to_log={
        "reward": 'model.log(groups, split="train")',
        "evaluation": 'model.log(groups, split="val")',
        "grad_norm": "log the metrics that backend.train returns",
        "loss": "log the metrics that backend.train returns",
        "lr": "log the metrics that backend.train returns",
        "entropy": "log the metrics that backend.train returns",
        "length": "put it into trajectory.metrics",
    },
)
"""Everything that is known of ART."""
