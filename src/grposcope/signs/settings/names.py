"""Settings that mean the same in every trainer, by our names and by each trainer's keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grposcope.core.settings import Settings
from grposcope.logs.trainers import TRAINERS

EVERY = ("trl", "ms-swift", "verl", "nemo-rl", "skyrl", "slime", "prime-rl", "openrlhf", "open-instruct", "roll",
         "grposcope")  # fmt: skip
"""Names of all trainers whose settings are read."""

Keys = Mapping[str, str | tuple[str, ...]]
"""Trainer -> its key of a setting, or all that it has had, the newest first."""

GROUP_SIZE: Keys = {
    "trl": "num_generations",
    "ms-swift": "num_generations",
    "verl": ("actor_rollout_ref.rollout.n", "actor_rollout_ref.rollout.n_agent"),
    "nemo-rl": "grpo.num_generations_per_prompt",
    "skyrl": "generator.n_samples_per_prompt",
    "slime": "n_samples_per_prompt",
    "openrlhf": ("rollout.n_samples_per_prompt", "n_samples_per_prompt"),
    "prime-rl": ("orchestrator.group_size", "orchestrator.rollouts_per_example", "rollouts_per_example"),
    "open-instruct": "num_samples_per_prompt_rollout",
    "roll": ("num_return_sequences_in_group", "train_env_manager.group_size"),
    "grposcope": "group",
}
"""The key of the group size."""

LEARNING_RATE: Keys = {
    "trl": "learning_rate",
    "ms-swift": "learning_rate",
    "verl": "actor_rollout_ref.actor.optim.lr",
    "nemo-rl": "policy.optimizer.kwargs.lr",
    "skyrl": "trainer.policy.optimizer_config.lr",
    "slime": "lr",
    "openrlhf": ("actor.adam.lr", "actor_learning_rate"),
    "prime-rl": ("trainer.optim.lr", "optim.lr"),
    "open-instruct": "learning_rate",
    "roll": "actor_train.training_args.learning_rate",
    "grposcope": "lr",
}
"""The key of the learning rate."""

TEMPERATURE: Keys = {
    "trl": "temperature",
    "ms-swift": "temperature",
    "verl": "actor_rollout_ref.rollout.temperature",
    "nemo-rl": "policy.generation.temperature",
    "skyrl": "generator.sampling_params.temperature",
    "slime": "rollout_temperature",
    "openrlhf": ("rollout.temperature", "temperature"),
    "prime-rl": (
        "orchestrator.train.sampling.temperature",
        "orchestrator.sampling.temperature",
        "sampling.temperature",
    ),
    "open-instruct": "temperature",
    "roll": "actor_infer.generating_args.temperature",
    "grposcope": "temperature",
}
"""The key of the temperature at which rollouts are drawn."""


def key_of(settings: Settings, keys: Keys) -> str:
    """The trainer's key of a setting: of several the one that is given, else the newest."""
    own = keys[settings.dialect.name]
    several = (own,) if isinstance(own, str) else own
    return next((name for name in several if settings.says(name)), several[0])


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
