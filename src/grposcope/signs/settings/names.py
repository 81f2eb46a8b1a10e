"""Settings that mean the same in every trainer, by our names and by each trainer's keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grposcope.core.settings import Settings
from grposcope.logs.trainers import TRAINERS

EVERY = ("trl", "verl", "nemo-rl", "grposcope")
"""Names of all trainers whose settings are read."""

GROUP_SIZE = {
    "trl": "num_generations",
    "verl": "actor_rollout_ref.rollout.n",
    "nemo-rl": "grpo.num_generations_per_prompt",
    "grposcope": "group",
}
"""The key of the group size."""

LEARNING_RATE = {
    "trl": "learning_rate",
    "verl": "actor_rollout_ref.actor.optim.lr",
    "nemo-rl": "policy.optimizer.kwargs.lr",
    "grposcope": "lr",
}
"""The key of the learning rate."""

TEMPERATURE = {
    "trl": "temperature",
    "verl": "actor_rollout_ref.rollout.temperature",
    "nemo-rl": "policy.generation.temperature",
    "grposcope": "temperature",
}
"""The key of the temperature at which rollouts are drawn."""


def by_our_names(settings: Settings) -> Mapping[str, Any]:
    """The settings that mean the same in every trainer, by our names (group, lr, kl, …); absent if not known."""
    assumed = {} if settings.partial else settings.dialect.defaults
    values = {**assumed, **{key: value for key, value in settings.given.items() if value is not None}}
    known = {key.replace(".", "/"): value for key, value in values.items() if key not in settings.opaque}
    return TRAINERS[settings.dialect.name].settings_of(known, {}, {})


def group_size(settings: Settings) -> int | None:
    """Rollouts per prompt, G; None if it is not known."""
    value = by_our_names(settings).get("group")
    return value if isinstance(value, int) and not isinstance(value, bool) else None
