"""What verl must be told so that it descends the gradient of one of our objectives.

verl's own policy losses suffice for every recipe: `vanilla` is the ratio per token with a clip, `gspo` that per
rollout, `cispo` its own, and `gpg` log π without a ratio. `vanilla` also holds ratios above `clip_ratio_c` = 3 where
the advantage is negative (dual clip); our recipes do not, so the bound is moved out of the way.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from grposcope.core import capabilities
from grposcope.core.capabilities import CRITIC, LOWER_CLIP, Lack, Part, factor
from grposcope.core.errors import UserError
from grposcope.engines.verl.estimators import PREFIX
from grposcope.lab.credit import chosen
from grposcope.lab.objectives import Objective, advantages, divergences, ratios, recipes, reductions
from grposcope.lab.objectives.surrogates import Cispo, Clip, Reinforce

FAR = 1e9
"""A bound on ratios that none reaches."""

ACTOR = "actor_rollout_ref.actor."

_REDUCTIONS: dict[Any, str] = {
    reductions.sequence_mean: "seq-mean-token-mean",
    reductions.token_mean: "token-mean",
    reductions.sequence_sum: "seq-mean-token-sum",
    reductions.constant_length: "seq-mean-token-sum-norm",
}
_DIVERGENCES: dict[Any, str] = {divergences.k1: "k1", divergences.k2: "k2", divergences.k3: "k3"}


ENGINE = Part(
    "engine verl",
    provides=frozenset(
        {
            *(factor("ratio", ratio) for ratio in (ratios.none, ratios.token, ratios.sequence)),
            *(factor("surrogate", surrogate) for surrogate in (Clip, Cispo, Reinforce)),
            *(factor("reduction", reduction) for reduction in _REDUCTIONS),
            *(factor("divergence", divergence) for divergence in _DIVERGENCES),
            LOWER_CLIP,
        }
    ),
    lacks={
        CRITIC: Lack("trains one itself", "use recipe ppo, and set algorithm.adv_estimator=gae with algorithm.lam=0.95")
    },
)
"""The factors that losses of verl have, by themselves; and that it has no critic of ours."""


def _overrides(objective: Objective, limit: int) -> dict[str, Any]:
    """Settings of verl by their paths, for completions of at most `limit` tokens; `credit`, if any, is set by hand.

    UserError where verl has no such loss, the advantage is none of ours by name, or the recipe has a critic.
    """
    capabilities.check(ENGINE, objective.part())
    if brought := recipes.DEFAULT_SETTINGS.get(objective.name, {}).get("credit"):
        capabilities.check(ENGINE, Part(f"recipe {objective.name}", needs=chosen(brought).source.needs))
    told = {
        "algorithm.adv_estimator": PREFIX + _advantage(objective),
        **{ACTOR + name: value for name, value in _loss(objective).items()},
        **{ACTOR + name: value for name, value in _reduction(objective, limit).items()},
    }
    if objective.kl:
        told[ACTOR + "use_kl_loss"] = True
        told[ACTOR + "kl_loss_coef"] = objective.kl
        told[ACTOR + "kl_loss_type"] = _DIVERGENCES[objective.divergence]
    if objective.entropy:
        told[ACTOR + "entropy_coeff"] = objective.entropy
    if objective.resample_dead:
        told["algorithm.filter_groups.enable"] = True
        told["algorithm.filter_groups.metric"] = "reward"
    if objective.overlong:
        told["reward.reward_manager.name"] = "dapo"
        told["+reward.reward_kwargs.max_resp_len"] = limit
        told["+reward.reward_kwargs.overlong_buffer_cfg"] = {
            "enable": True, "len": round(objective.overlong * limit), "penalty_factor": 1.0, "log": False,
        }  # fmt: skip
    return told


def arguments(objective: Objective, limit: int) -> list[str]:
    """`overrides` as arguments of `python -m verl.trainer.main_ppo`."""
    return [f"{path}={_spelled(value)}" for path, value in _overrides(objective, limit).items()]


def _advantage(objective: Objective) -> str:
    advantage = objective.advantage
    for name, estimator in advantages.ALL.items():
        if advantage is estimator.function:
            return name
        if (
            isinstance(advantage, partial)
            and advantage.func is estimator.function
            and advantage.keywords == {"ddof": 1, "eps": 1e-4}
        ):
            return name
    raise UserError(f"verl has no advantage like that of {objective.name}; it needs one of {', '.join(advantages.ALL)}")


def _loss(objective: Objective) -> dict[str, Any]:
    """The policy loss and its clip range."""
    ratio, surrogate = objective.ratio, objective.surrogate
    if isinstance(surrogate, Clip) and ratio is ratios.token:
        bound = FAR if surrogate.bound is None else surrogate.bound
        return _clip("vanilla", surrogate.low, surrogate.high, clip_ratio_c=bound)
    if isinstance(surrogate, Clip) and ratio is ratios.sequence and surrogate.bound is None:
        return _clip("gspo", surrogate.low, surrogate.high)
    if isinstance(surrogate, Cispo) and ratio is ratios.token:
        return _clip("cispo", surrogate.low, surrogate.high)
    if isinstance(surrogate, Reinforce) and ratio is ratios.token:
        return _clip("vanilla", FAR, FAR, clip_ratio_c=2 * FAR)
    if isinstance(surrogate, Reinforce) and ratio is ratios.none:
        return {"policy_loss.loss_mode": "gpg"}
    raise UserError(f"verl has no policy loss with the ratio and surrogate of {objective.name}")


def _clip(mode: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"policy_loss.loss_mode": mode, "clip_ratio_low": low, "clip_ratio_high": high, **more}


def _reduction(objective: Objective, limit: int) -> dict[str, Any]:
    reduction = objective.reduction
    plain = reduction.func if isinstance(reduction, partial) else reduction
    told: dict[str, Any] = {"loss_agg_mode": _REDUCTIONS[plain]}
    if plain is reductions.constant_length:
        told["loss_scale_factor"] = reduction.keywords["length"] if isinstance(reduction, partial) else limit
    return told


def _spelled(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_spelled(inner)}" for key, inner in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)
