"""The settings of other trainers under our names, from a configuration that they logged.

Only what is written there is taken; a setting that is not there is absent, never a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grposcope.runs import metrics
from grposcope.runs.columns import flat

_TRL = {
    "group": ("num_generations",),
    "kl": ("beta",),
    "lr": ("learning_rate",),
    "interval": ("num_iterations",),
    "logging_steps": ("logging_steps",),
    "scale_rewards": ("scale_rewards",),
    "multi_objective_aggregation": ("multi_objective_aggregation",),
    "loss_type": ("loss_type",),
    "temperature": ("temperature",),
    "max_tokens": ("max_completion_length",),
    "clip_low": ("epsilon",),
    "steps": ("max_steps",),
    "trl_version": ("trl_version",),
}
_VERL = {
    "group": ("actor_rollout_ref/rollout/n",),
    "lr": ("actor_rollout_ref/actor/optim/lr",),
    "advantage": ("algorithm/adv_estimator",),
    "scale_rewards": ("algorithm/norm_adv_by_std_in_grpo",),
    "kl_in_reward": ("algorithm/use_kl_in_reward",),
    "kl_in_loss": ("actor_rollout_ref/actor/use_kl_loss",),
    "divergence": ("actor_rollout_ref/actor/kl_loss_type",),
    "loss_type": ("actor_rollout_ref/actor/loss_agg_mode",),
    "temperature": ("actor_rollout_ref/rollout/temperature",),
    "max_tokens": ("data/max_response_length",),
    "prompts": ("data/train_batch_size",),
    "clip_low": ("actor_rollout_ref/actor/clip_ratio_low", "actor_rollout_ref/actor/clip_ratio"),
}
_OPENRLHF = {
    "group": ("n_samples_per_prompt",),
    "kl": ("init_kl_coef",),
    "divergence": ("kl_estimator",),
    "lr": ("actor_learning_rate",),
    "advantage": ("advantage_estimator",),
    "temperature": ("temperature",),
}
_TABLES: Mapping[str, Mapping[str, tuple[str, ...]]] = {"trl": _TRL, "verl": _VERL, "openrlhf": _OPENRLHF}


def settings(engine: str, logged: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by our names: the engine's convention for advantages, then what was logged, then what was given.

    verl's kl is the coefficient in use: kl_loss_coef, or kl_ctrl.kl_coef with the KL in the reward, 0 without either.
    """
    configuration = flat(dict(logged))
    found: dict[str, Any] = {}
    for name, keys in _TABLES.get(engine, {}).items():
        for key in keys:
            if configuration.get(key) is not None:
                found[name] = configuration[key]
                break
    if engine == "verl" and ("kl_in_loss" in found or "kl_in_reward" in found):
        found["kl"] = 0.0
        if found.get("kl_in_loss"):
            found["kl"] = configuration.get("actor_rollout_ref/actor/kl_loss_coef")
        elif found.get("kl_in_reward"):
            found["kl"] = configuration.get("algorithm/kl_ctrl/kl_coef")
    return {**metrics.CONVENTIONS.get(engine, {}), **found, **given}
