"""The loss that the settings of a run state: surrogate, ratio, clip, KL term and how terms of tokens are added up.

Settings are those of TRL's GRPOConfig (arguments of the trainer or as logged) and of verl. What is not said here, such
as gates in place of a clip, is no stated loss, so that nothing is compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNCLIPPED = 1e9
"""A clip range that no ratio leaves."""


@dataclass(frozen=True)
class StatedLoss:
    """The loss of a batch, of which ∂L/∂log π is `token_weights.of`.

    surrogate: "clip", min(ρA, clip(ρ, 1 − low, 1 + high) A), not below bound·A where A < 0 and bound > 0; "weighted",
    sg[clip(ρ)] A log π; "one-sided", A log π where the clip does not hold; "plain", ρA. ratio: "token", "sequence" (the
    geometric mean over the tokens) or "none". reduction: "sequence mean" (over the tokens of a rollout, then over
    rollouts), "token mean", "part token mean" (over the tokens of a micro-batch, then over these), "constant length"
    (the sum over `length`, then the mean over rollouts) or "sequence sum". divergence: "k1", "k2", "k3"; kl_weighted:
    whether ρ multiplies it. entropy: coefficient of the bonus. counted: whether means are over the "trained" tokens or
    over "all" that the policy wrote. over: whether "token mean" divides by the tokens of the "update", or by the
    share of the "batch" of rollouts that it takes. old: whose log-probabilities the ratio is to, of the "trainer" or
    "sampler".
    """

    surrogate: str = "clip"
    ratio: str = "token"
    low: float = 0.2
    high: float = 0.2
    bound: float = 0.0
    reduction: str = "sequence mean"
    length: int = 0
    divergence: str = "k3"
    kl_weighted: bool = False
    entropy: float = 0.0
    counted: str = "trained"
    over: str = "update"
    old: str = "trainer"


TRL = {
    "grpo": "sequence mean", "bnpo": "part token mean", "dr_grpo": "constant length", "dapo": "token mean",
    "luspo": "sequence sum", "cispo": "token mean",
}  # fmt: skip
"""loss_type of TRL -> reduction."""

VERL = {
    "token-mean": "token mean", "seq-mean-token-mean": "sequence mean", "seq-mean-token-sum": "sequence sum",
}  # fmt: skip
"""`loss_agg_mode` of verl -> reduction."""

_ACTOR = "actor_rollout_ref.actor."

NAMES = (
    "loss_type", "epsilon", "epsilon_high", "delta", "importance_sampling_level", "use_bias_correction_kl",
    "entropy_coef", "top_entropy_quantile", "off_policy_mask_threshold", "use_vllm", "use_liger_kernel",
    "vllm_importance_sampling_correction",
    *(f"{_ACTOR}{name}" for name in ("loss_agg_mode", "clip_ratio", "clip_ratio_low", "clip_ratio_high",
      "clip_ratio_c", "kl_loss_type", "entropy_coeff", "policy_loss.loss_mode")),
)  # fmt: skip
"""Names of settings that are read here."""


def of_trl(settings: Mapping[str, Any], limit: int | None) -> StatedLoss | None:
    """The loss of GRPOConfig's fields by name; limit: longest completion. None where these state no loss of ours."""
    kind = settings.get("loss_type")
    odd = (
        _number(settings.get("top_entropy_quantile"), 1.0) < 1
        or settings.get("off_policy_mask_threshold") is not None
        or (settings.get("use_vllm") and settings.get("vllm_importance_sampling_correction", True))
        or settings.get("use_liger_kernel")
    )
    if kind not in TRL or odd or (kind == "dr_grpo" and not limit):
        return None
    low = _number(settings.get("epsilon"), 0.2)
    given_high = settings.get("epsilon_high")
    high = low if given_high is None else _number(given_high, low)
    return StatedLoss(
        surrogate="weighted" if kind == "cispo" else "clip",
        ratio="sequence" if settings.get("importance_sampling_level") == "sequence" else "token",
        low=1.0 if kind == "cispo" else low,
        high=high - 1 if kind == "cispo" else high,  # TRL clamps the ratio at epsilon_high itself
        bound=_number(settings.get("delta"), 0.0),
        reduction=TRL[str(kind)],
        length=int(limit or 0) if kind == "dr_grpo" else 0,
        kl_weighted=bool(settings.get("use_bias_correction_kl")),
        entropy=_number(settings.get("entropy_coef"), 0.0),
        over="batch",
    )


def of_verl(settings: Mapping[str, Any]) -> StatedLoss | None:
    """The loss of verl's actor from a flat mapping of its settings; None where these state no loss of ours."""
    kind = settings.get(f"{_ACTOR}loss_agg_mode")
    mode = settings.get(f"{_ACTOR}policy_loss.loss_mode", "vanilla")
    if kind not in VERL or mode not in ("vanilla", "gspo"):
        return None
    both = _number(settings.get(f"{_ACTOR}clip_ratio"), 0.2)
    estimator = {"kl": "k1", "k1": "k1", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}
    divergence = estimator.get(str(settings.get(f"{_ACTOR}kl_loss_type", "low_var_kl")))
    if divergence is None:
        return None
    return StatedLoss(
        ratio="sequence" if mode == "gspo" else "token",
        low=_number(settings.get(f"{_ACTOR}clip_ratio_low"), both),
        high=_number(settings.get(f"{_ACTOR}clip_ratio_high"), both),
        bound=0.0 if mode == "gspo" else _number(settings.get(f"{_ACTOR}clip_ratio_c"), 3.0),
        reduction=VERL[str(kind)],
        divergence=divergence,
        entropy=_number(settings.get(f"{_ACTOR}entropy_coeff"), 0.0),
    )


def _number(value: Any, absent: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else absent
