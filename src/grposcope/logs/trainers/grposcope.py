"""Single files of our own record, and logs whose metrics a reader made itself: the keys are our names.

The folder of a run is read by `runs/native/`.
"""

from __future__ import annotations

from grposcope.logs.trainers.trainer import Setting, Trainer

GRPOSCOPE = Trainer(
    name="grposcope",
    title="grposcope train",
    recognises=lambda keys: {"dead_fraction", "rollouts_trained"} <= keys,
    configured=lambda keys: {"group", "prompts", "interval", "recipe"} <= set(keys),
    settings=(
        Setting("group", "group"),
        Setting("interval", "interval"),
        Setting("lr", "lr"),
        Setting("kl", "kl"),
        Setting("temperature", "temperature"),
        Setting("max_tokens", "max_tokens"),
        Setting("prompts", "prompts"),
        Setting("momentum", "momentum"),
        Setting("optimizer", "optimizer"),
        Setting("mask_truncated", "masks_truncated"),
    ),
    how_to_log={"evaluation": "evaluate every few steps (eval_every)"},
)
"""Everything that is known of logs in our own names."""
