"""What settings say of the recipe: what is compared, what is trained, and how often a batch of rollouts is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from grposcope.core.settings import Settings
from grposcope.signs.settings.names import by_our_names, group_size
from grposcope.signs.settings.trl import generation_steps
from grposcope.signs.settings.verl import ACTOR, ESTIMATOR, GROUP_RELATIVE


def group_relative(settings: Settings) -> bool:
    """Whether the rollouts of a prompt are compared with each other, as far as is known."""
    if settings.dialect.name == "verl":
        by_teacher = settings.on(_DISTILS + "enabled") and settings.off(_DISTILS + "distillation_loss.use_task_rewards")
        return settings.get(ESTIMATOR) in (*GROUP_RELATIVE, None) and not by_teacher
    if settings.dialect.name == "openrlhf":
        return by_our_names(settings).get("advantage") in ("group_norm", "dr_grpo", "rloo", "reinforce_baseline", None)
    if settings.dialect.name == "prime-rl":
        kinds = [settings.get(key) for key in ("orchestrator.algo.type", "algo.type") if settings.says(key)]
        return (kinds or ["grpo"])[0] in ("grpo", "echo", "max_rl", "hierarchical_grpo")
    if settings.dialect.name == "ms-swift" and any(map(settings.says, _TEACHERS)) and not settings.says("reward_funcs"):
        return False
    if settings.dialect.name == "areal":
        return any(settings.get(f"actor.{name}.mean_level") == "group" for name in NORMS_OF_AREAL)
    if settings.dialect.name in _ALONE:
        return by_our_names(settings).get("advantage") not in _ALONE[settings.dialect.name]
    return settings.get("grpo.adv_estimator.name") != "reinforce_plus_plus"


NORMS_OF_AREAL = ("reward_norm", "adv_norm")
"""Where AReaL has what it subtracts from rewards or advantages and divides them by, below `actor`."""

_DISTILS = "distillation."
"""Where verl has what its policy learns from a teacher, beside its rewards unless these are switched off."""

_TEACHERS = ("teacher_model", "teacher_model_server", "teacher_adapters")
"""Keys of ms-swift's teacher, whose tokens are what pays where there is no reward."""

_ALONE: Mapping[str, tuple[str, ...]] = {
    "slime": ("ppo", "reinforce_plus_plus"),
    "skyrl": ("gae", "reinforce++"),
    "ms-swift": ("reinforce_plus_plus",),
}
"""Trainer -> its estimators that take each rollout by itself, or against the whole batch."""


def has_adapters(settings: Settings) -> bool | None:
    """Whether adapters are trained; None if it is not known, as where something else may say so."""
    unread = settings.partial or any("lora" in key or "peft" in key for key in settings.opaque)
    return _says_adapters(settings) or (
        None if unread and settings.dialect.name != "slime" else _says_adapters(settings)
    )


def _says_adapters(settings: Settings) -> bool | None:
    """Whether the settings that can be read, and defaults, say that adapters are trained."""
    if settings.dialect.name == "verl":
        return bool(verl_lora_rank(settings))
    if settings.dialect.name == "nemo-rl":
        return any(settings.on(key) for key in settings.given if key.endswith(("lora_cfg.enabled", "peft.enabled")))
    if settings.dialect.name == "ms-swift":
        names = ("tuner_type", "train_type", "train.tuner_type")
        kinds = [settings.get(name) for name in names if settings.says(name)]
        usual = "full" if settings.says("global_batch_size") else settings.get("tuner_type")  # with Megatron
        kind = (kinds or [usual])[0]
        return None if kind is None else kind != "full"
    if settings.dialect.name == "skyrl":
        return bool(settings.number("trainer.policy.model.lora.rank"))
    if settings.dialect.name == "prime-rl":
        return any(".lora." in f".{name}." for name in settings.given)
    if settings.dialect.name == "slime":
        return False
    if settings.dialect.name == "roll":
        return any(settings.says(f"actor_train.model_args.{name}") for name in ("lora_rank", "lora_target"))
    if settings.dialect.name == "areal":
        return settings.on("actor.use_lora")
    if settings.dialect.name == "mlx-lm-lora":
        return settings.get("train_type") != "full"
    if settings.dialect.name == "open-instruct":
        return settings.on("use_peft")
    if settings.dialect.name == "openrlhf":
        return any(settings.number(name) for name in ("ds.lora.rank", "lora_rank"))
    if settings.get("use_peft") is True or settings.says("lora_r"):
        return True
    return settings.adapters


def adapter_scale(settings: Settings) -> tuple[float, tuple[str, ...]] | None:
    """By what adapters are multiplied, alpha over rank, and the keys of both; None where both are not given."""
    ranks, alphas = (tuple(key for key in settings.given if key.rpartition(".")[2] in names) for names in _ADAPTERS)
    pairs = [(rank, alpha) for rank in ranks for alpha in alphas if rank.rpartition(".")[0] == alpha.rpartition(".")[0]]
    for rank, alpha in pairs:
        size, factor = settings.number(rank), settings.number(alpha)
        if size and factor is not None and not settings.on("use_rslora"):
            return factor / size, (rank, alpha)
    return None


_ADAPTERS = (("lora_rank", "lora_r", "rank", "dim"), ("lora_alpha", "alpha"))
"""Last parts of the keys of an adapter's rank and of its alpha."""


def verl_lora_rank(settings: Settings) -> float:
    """Rank of verl's adapters, by either of its keys; 0 where none are trained, as far as is known."""
    names = ("actor_rollout_ref.model.lora.rank", "actor_rollout_ref.model.lora_rank")
    return next((rank for name in names if (rank := settings.number(name))), 0.0)


def interval(settings: Settings, world: int | None) -> int | None:
    """Optimiser steps taken on one batch of rollouts, N; None if it is not known. world: processes that train."""
    if settings.dialect.name in ("trl", "ms-swift"):
        return _interval_of_trl(settings, world)
    if settings.dialect.name in _INTERVALS:
        return _INTERVALS[settings.dialect.name](settings)
    value = by_our_names(settings).get("interval")
    return value if isinstance(value, int) else None


def _interval_of_trl(settings: Settings, world: int | None) -> int | None:
    """Rounds of micro-batches over those of a step; the batch of rollouts counts them where the processes are known."""
    steps, accumulated = generation_steps(settings), settings.whole("gradient_accumulation_steps")
    again, each = settings.whole("num_iterations"), settings.whole("per_device_train_batch_size")
    batch = settings.whole("generation_batch_size")
    if batch and each and world:
        steps = batch // (each * world)
    return _steps(_product(steps, again), accumulated)


def _interval_of_verl(settings: Settings) -> int | None:
    whole, mini = settings.whole("data.train_batch_size"), settings.whole(ACTOR + "ppo_mini_batch_size")
    return _steps(whole, mini, settings.whole(ACTOR + "ppo_epochs"))


def _interval_of_nemo_rl(settings: Settings) -> int | None:
    rollouts = _product(settings.whole("grpo.num_prompts_per_step"), group_size(settings))
    return _steps(rollouts, settings.whole("policy.train_global_batch_size"))


def _interval_of_skyrl(settings: Settings) -> int | None:
    whole, mini = settings.whole("trainer.train_batch_size"), settings.whole("trainer.policy_mini_batch_size")
    return _steps(whole, mini, settings.whole("trainer.update_epochs_per_batch"))


def _interval_of_slime(settings: Settings) -> int | None:
    rollouts = _product(settings.whole("rollout_batch_size"), group_size(settings))
    return settings.whole("num_steps_per_rollout") or _steps(rollouts, settings.whole("global_batch_size"))


def _interval_of_openrlhf(settings: Settings) -> int | None:
    rollouts = _product(by_our_names(settings).get("prompts"), group_size(settings))
    batch, epochs = (
        next((value for name in names if (value := settings.whole(name))), None)
        for names in (("train.batch_size", "train_batch_size"), ("train.max_epochs", "max_epochs"))
    )
    return _steps(rollouts, batch, epochs)


_INTERVALS: Mapping[str, Callable[[Settings], int | None]] = {
    "prime-rl": lambda settings: 1,  # a step of its trainer takes one batch, once
    "mlx-lm-lora": lambda settings: 1,
    "areal": lambda settings: settings.whole("actor.ppo_n_minibatches"),
    "verl": _interval_of_verl,
    "nemo-rl": _interval_of_nemo_rl,
    "skyrl": _interval_of_skyrl,
    "slime": _interval_of_slime,
    "openrlhf": _interval_of_openrlhf,
}
"""Dialect -> how its settings state the optimiser steps on a batch; TRL's depend on the processes too."""


def _steps(rollouts: int | None, batch: int | None, epochs: int | None = 1) -> int | None:
    """Optimiser steps of `batch` each on so many rollouts or prompts, at least one, in every epoch."""
    return max(rollouts // batch, 1) * epochs if rollouts and batch and epochs else None


def _product(prompts: int | None, group: int | None) -> int | None:
    return prompts * group if prompts and group else None
