"""What settings say of the recipe: what is compared, what is trained, and how often a batch of rollouts is used."""

from __future__ import annotations

from grposcope.core.settings import Settings
from grposcope.signs.settings.names import by_our_names, group_size
from grposcope.signs.settings.trl import generation_steps
from grposcope.signs.settings.verl import ACTOR, ESTIMATOR, GROUP_RELATIVE


def group_relative(settings: Settings) -> bool:
    """Whether the rollouts of a prompt are compared with each other, as far as is known."""
    if settings.dialect.name == "verl":
        return settings.get(ESTIMATOR) in (*GROUP_RELATIVE, None)
    if settings.dialect.name == "openrlhf":
        return by_our_names(settings).get("advantage") in ("group_norm", "dr_grpo", "rloo", "reinforce_baseline", None)
    return settings.get("grpo.adv_estimator.name") != "reinforce_plus_plus"


def has_adapters(settings: Settings) -> bool | None:
    """Whether adapters are trained; None if it is not known."""
    if settings.dialect.name == "verl":
        return bool(verl_lora_rank(settings))
    if settings.dialect.name == "nemo-rl":
        return any(settings.on(key) for key in settings.given if key.endswith(("lora_cfg.enabled", "peft.enabled")))
    if settings.dialect.name == "ms-swift":
        kinds = [settings.get(name) for name in ("tuner_type", "train_type") if settings.says(name)]
        return (kinds or [settings.get("tuner_type")])[0] != "full"
    if settings.dialect.name == "skyrl":
        return bool(settings.number("trainer.policy.model.lora.rank"))
    if settings.dialect.name == "prime-rl":
        return any(".lora." in f".{name}" for name in settings.given)
    if settings.dialect.name == "slime":
        return False
    if settings.dialect.name == "openrlhf":
        return any(settings.number(name) for name in ("ds.lora.rank", "lora_rank"))
    if settings.get("use_peft") is True or settings.says("lora_r"):
        return True
    return settings.adapters


def verl_lora_rank(settings: Settings) -> float:
    """Rank of verl's adapters, by either of its keys; 0 where none are trained, as far as is known."""
    names = ("actor_rollout_ref.model.lora.rank", "actor_rollout_ref.model.lora_rank")
    return next((rank for name in names if (rank := settings.number(name))), 0.0)


def interval(settings: Settings, world: int | None) -> int | None:
    """Optimiser steps taken on one batch of rollouts, N; None if it is not known. world: processes that train."""
    if settings.dialect.name == "trl":
        steps, accumulated = generation_steps(settings), settings.whole("gradient_accumulation_steps")
        again, each = settings.whole("num_iterations"), settings.whole("per_device_train_batch_size")
        batch = settings.whole("generation_batch_size")
        if batch and each and world:
            steps = batch // (each * world)
        return max(steps * again // accumulated, 1) if steps and again and accumulated else None
    if settings.dialect.name == "verl":
        whole, mini = settings.whole("data.train_batch_size"), settings.whole(ACTOR + "ppo_mini_batch_size")
        epochs = settings.whole(ACTOR + "ppo_epochs")
        return max(whole // mini, 1) * epochs if whole and mini and epochs else None
    if settings.dialect.name == "nemo-rl":
        prompts, group = settings.whole("grpo.num_prompts_per_step"), group_size(settings)
        mini = settings.whole("policy.train_global_batch_size")
        return max(prompts * group // mini, 1) if prompts and group and mini else None
    if settings.dialect.name == "skyrl":
        whole, mini = (settings.whole(f"trainer.{name}") for name in ("train_batch_size", "policy_mini_batch_size"))
        epochs = settings.whole("trainer.update_epochs_per_batch")
        return max(whole // mini, 1) * epochs if whole and mini and epochs else None
    if settings.dialect.name == "slime":
        prompts, group, batch = (
            settings.whole("rollout_batch_size"),
            group_size(settings),
            settings.whole("global_batch_size"),
        )
        return settings.whole("num_steps_per_rollout") or (
            max(prompts * group // batch, 1) if prompts and group and batch else None
        )
    if settings.dialect.name == "openrlhf":
        prompts, group = by_our_names(settings).get("prompts"), group_size(settings)
        batch, epochs = (
            next((value for name in names if (value := settings.whole(name))), None)
            for names in (("train.batch_size", "train_batch_size"), ("train.max_epochs", "max_epochs"))
        )
        return max(prompts * group // batch, 1) * epochs if prompts and group and batch and epochs else None
    value = by_our_names(settings).get("interval")
    return value if isinstance(value, int) else None
