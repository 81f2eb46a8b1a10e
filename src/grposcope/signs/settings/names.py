"""Settings that mean the same in every trainer, by our names and by each trainer's keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grposcope.core.settings import Settings
from grposcope.logs.trainers import TRAINERS

EVERY = ("trl", "ms-swift", "verl", "nemo-rl", "skyrl", "slime", "prime-rl", "openrlhf", "open-instruct", "roll",
         "areal", "mlx-lm-lora", "grposcope")  # fmt: skip
"""Names of all trainers whose settings are read."""

_SWITCHED: Mapping[tuple[str, str], tuple[str, str]] = {
    ("nemo-rl", "lr"): ("policy.megatron_cfg.enabled", "policy.megatron_cfg.optimizer.lr"),
}
"""Trainer and our name of a setting -> a switch, and the key that is read instead where it is on."""


def key_of(settings: Settings, name: str) -> str:
    """The trainer's key of a setting by our name (lr, group, …): of several the one that is given, else the one with a
    default, else the first; empty where the trainer has none."""
    switch, other = _SWITCHED.get((settings.dialect.name, name), ("", ""))
    if switch and settings.on(switch):
        return other
    own = [setting for setting in TRAINERS[settings.dialect.name].settings if setting.name == name]
    usual = next(
        (setting.key for setting in own if setting.key in settings.dialect.defaults), own[0].key if own else ""
    )
    return next((setting.key for setting in own if settings.says(setting.key)), usual)


def by_our_names(settings: Settings) -> Mapping[str, Any]:
    """The settings that mean the same in every trainer, by our names (group, lr, kl, …); absent if not known."""
    assumed = {} if settings.partial else settings.dialect.defaults
    values = {**assumed, **{key: value for key, value in settings.given.items() if value is not None}}
    renamed = {key.replace(".", "/"): value for key, value in values.items() if key not in settings.opaque}
    return TRAINERS[settings.dialect.name].settings_of(renamed, {}, {})


def group_size(settings: Settings) -> int | None:
    """Rollouts per prompt, G; None if it is not known."""
    value = by_our_names(settings).get("group")
    return value if isinstance(value, int) and not isinstance(value, bool) else None
