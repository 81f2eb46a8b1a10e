"""TRL's settings of the loss as an `Objective` of ours.

    objective(args)      what has the same gradient as TRL's loss at every step; UserError for what has no counterpart
    fresh(args)          the same for rollouts of the current policy, where more of TRL's settings have a counterpart

args is a GRPOConfig or RLOOConfig. A setting that a version of TRL does not have has no effect. Where a loss is
written differently and has the same gradient, ours stands for it:

| loss_type | reduction | surrogate |
|---|---|---|
| grpo | sequence_mean | Clip(epsilon, epsilon_high, bound = delta) |
| bnpo, dapo | token_mean | the same |
| dr_grpo | constant_length | the same |
| luspo | sequence_sum | the same |
| cispo | token_mean | Cispo; TRL clamps the ratio at epsilon_high itself, ours at 1 + high |
| sapo, vespo | sequence_mean, token_mean | their gates are 1 with slope 1 at ratio 1: fresh rollouts alone |

scale_rewards "group", "batch", "none" are the advantages standardized, batch_standardized, centered; RLOO's are
leave_one_out. importance_sampling_level "sequence" is the ratio of GSPO; RLOO's is that of the whole completion, which
we do not have and which is 1 on fresh rollouts. Gradients are compared in tests/contract/.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.objectives import Objective, advantages, ratios, recipes, reductions
from grposcope.lab.objectives.surrogates import Cispo, Clip, Reinforce, Surrogate

REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "grpo": reductions.sequence_mean,
    "bnpo": reductions.token_mean,
    "dr_grpo": reductions.constant_length,
    "dapo": reductions.token_mean,
    "cispo": reductions.token_mean,
    "luspo": reductions.sequence_sum,
    "sapo": reductions.sequence_mean,
    "vespo": reductions.token_mean,
}
"""loss_type -> how TRL reduces the terms of the tokens."""

SCALES = {"group": "standardized", "batch": "batch_standardized", "none": "centered"}
"""scale_rewards -> name of our advantage."""

RECIPES = {
    "standardized": "grpo",
    "batch_standardized": "batch_grpo",
    "centered": "dr_grpo",
    "leave_one_out": "rloo",
    "mean_normalized": "maxrl",
    "whitened": "ppo",
    "none": "reinforce",
}
"""Advantage -> the recipe that is known for it, which names what the best group size depends on; others have none."""

GATES = ("sapo", "vespo")
"""Losses whose factor for the ratio we do not have; on fresh rollouts it is 1."""


def _objective(args: Any) -> Objective:
    """The objective whose gradient is that of TRL's loss at every step; UserError naming what has no counterpart."""
    objective, differs = fresh(args)
    differs = [*differs, *_reused(args)]
    if differs:
        raise UserError(f"TRL's settings have no counterpart here: {'; '.join(differs)}")
    return objective


def fresh(args: Any, advantage: str | None = None) -> tuple[Objective, list[str]]:
    """The objective with TRL's gradient on rollouts of the current policy, and what it still leaves out, a clause each.

    advantage: a name of `advantages.ALL` that takes the place of TRL's own. UserError for a loss that is not known.
    """
    rloo = is_rloo(args)
    loss = "rloo" if rloo else str(getattr(args, "loss_type", "dapo"))
    if not rloo and loss not in REDUCTIONS:
        raise UserError(f"loss_type {loss!r} of TRL is not known here; use one of {', '.join(REDUCTIONS)}")
    name = advantage or _advantage(args)
    sequence = getattr(args, "importance_sampling_level", "token") == "sequence"
    reduction = reductions.sequence_sum if rloo else REDUCTIONS[loss]
    if reduction is reductions.constant_length:
        reduction = partial(reductions.constant_length, length=args.max_completion_length)
    objective = replace(
        recipes.GRPO,
        name=_recipe(name, loss, sequence),
        paper=f"loss_type {loss} of TRL" if not rloo else "RLOO of TRL",
        advantage=advantages.ALL[name].function,
        ratio=ratios.sequence if sequence else ratios.token,
        surrogate=_surrogate(args, loss),
        reduction=reduction,
        kl=0.0 if rloo else float(getattr(args, "beta", 0.0) or 0.0),
        kl_weighted=bool(getattr(args, "use_bias_correction_kl", False)),
        entropy=float(getattr(args, "entropy_coef", 0.0) or 0.0),
    )
    return objective, _left_out(args, objective, loss, rloo, sequence, advantage)


def is_rloo(args: Any) -> bool:
    """Whether these are arguments of RLOOTrainer."""
    return any("RLOO" in kind.__name__ for kind in type(args).__mro__)


def _reuses(args: Any) -> bool:
    """Whether a batch of rollouts is used for more than one optimiser step, so that ratios leave 1."""
    return getattr(args, "num_iterations", 1) > 1 or _rounds(args) > args.gradient_accumulation_steps


def _rounds(args: Any) -> int:
    """Micro-batches of a process in a batch of rollouts."""
    return int(getattr(args, "steps_per_generation", None) or args.gradient_accumulation_steps)


def _advantage(args: Any) -> str:
    """Name of the advantage that TRL takes."""
    if is_rloo(args):
        return "leave_one_out"
    scale: Any = getattr(args, "scale_rewards", "group")
    return SCALES[scale if isinstance(scale, str) else "group" if scale else "none"]


def _recipe(advantage: str, loss: str, sequence: bool) -> str:
    """Name of the objective: a recipe of ours by its advantage, and TRL's loss where the recipe has another one."""
    if sequence and advantage == "standardized":
        return "gspo" if loss == "grpo" else f"gspo, {loss} loss"
    recipe = RECIPES.get(advantage, advantage)
    return recipe if loss == recipe else f"{recipe}, {loss} loss"


def _surrogate(args: Any, loss: str) -> Surrogate:
    low = float(args.epsilon)
    given = getattr(args, "epsilon_high", None)
    high = low if given is None else float(given)
    if loss == "cispo":
        return Cispo(low=1.0, high=high - 1)
    if loss in GATES:
        return Reinforce()
    return Clip(low, high, getattr(args, "delta", None))


def _left_out(
    args: Any, objective: Objective, loss: str, rloo: bool, sequence: bool, advantage: str | None
) -> list[str]:
    """Parts of TRL's loss that the objective lacks even on fresh rollouts, a clause each."""
    said = []
    together = getattr(args, "multi_objective_aggregation", "sum_then_normalize")
    if together != "sum_then_normalize" and advantage is None:
        said.append(f"multi_objective_aggregation={together} normalises every reward function by itself")
    if (quantile := getattr(args, "top_entropy_quantile", 1.0)) < 1:
        said.append(f"top_entropy_quantile={quantile:g} trains only tokens with high entropy")
    if rloo:
        said += _left_out_of_rloo(args, advantage)
    if sequence and objective.kl and objective.kl_weighted:
        said.append("use_bias_correction_kl weighs the divergence by the ratio of the whole completion")
    if getattr(args, "use_adaptive_entropy", False):
        said.append("use_adaptive_entropy changes the weight of the entropy bonus from step to step")
    if getattr(args, "use_vllm", False) and getattr(args, "vllm_importance_sampling_correction", False):
        said.append("vllm_importance_sampling_correction multiplies by ratios of trainer to vLLM")
    return said + _other_means(args, objective, loss)


def _left_out_of_rloo(args: Any, advantage: str | None) -> list[str]:
    """What RLOO does to rewards and advantages before its loss, a clause each. advantage: as in `fresh`."""
    said = []
    if getattr(args, "normalize_advantages", False) and advantage is None:
        said.append("normalize_advantages divides by the standard deviation of the batch")
    if getattr(args, "reward_clip_range", None) and advantage is None:
        said.append("reward_clip_range changes the rewards first")
    if getattr(args, "beta", None):
        said.append("beta of RLOO subtracts the divergence from the reference policy from the rewards")
    return said


def _other_means(args: Any, objective: Objective, loss: str) -> list[str]:
    """Where TRL averages over other tokens than those of one step's batch, a clause each."""
    said = []
    pieces = args.gradient_accumulation_steps * getattr(args, "world_size", 1)
    if pieces > 1 and (loss == "bnpo" or objective.entropy):
        what = "the loss" if loss == "bnpo" else "the entropy bonus"
        said.append(f"{what} is a mean over the tokens of each of {pieces} micro-batches, then over these")
    if loss in ("dapo", "cispo", "vespo") and _rounds(args) != args.gradient_accumulation_steps:
        said.append(f"loss_type {loss} divides by the tokens of the whole batch of rollouts, not of one step's part")
    return said


def _reused(args: Any) -> list[str]:
    """Parts of TRL's loss that differ from the objective of `fresh` once ratios leave 1, a clause each."""
    if not _reuses(args):
        return []
    said = []
    if is_rloo(args):
        said.append("RLOO clips the ratio of the whole completion, and rollouts are used for several steps")
    elif args.loss_type in GATES:
        said.append(f"loss_type {args.loss_type} has a factor for the ratio, and rollouts are used for several steps")
    if getattr(args, "off_policy_mask_threshold", None) is not None:
        said.append("off_policy_mask_threshold drops rollouts that are used for several steps")
    return said
