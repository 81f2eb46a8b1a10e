"""Where settings say that advantages are divided by the standard deviation of their group."""

from __future__ import annotations

from grposcope.core.settings import Settings
from grposcope.faults.checks.effective_weights import AGGREGATION
from grposcope.signs.settings.verl import ESTIMATOR


def scaled_by_group(config: Settings) -> str:
    """The key that says that advantages are divided by the deviation of their group; empty where they are not."""
    if config.dialect.name == "trl":
        scaled = config.get("scale_rewards") in ("group", True)
        return "scale_rewards" if scaled and config.get(AGGREGATION) == "sum_then_normalize" else ""
    if config.dialect.name in _OTHERS:
        return _of_others(config)
    key = "algorithm.norm_adv_by_std_in_grpo"
    return key if config.on(key) and config.get(ESTIMATOR) in ("grpo", "grpo_vectorized", "gdpo") else ""


_OTHERS = {
    "skyrl": ("trainer.algorithm.advantage_estimator", ("grpo",), "trainer.algorithm.grpo_norm_by_std"),
    "openrlhf": ("algo.advantage.estimator", ("group_norm",), ""),
    "slime": ("advantage_estimator", ("grpo", "gspo", "cispo"), ""),
    "ms-swift": ("advantage_estimator", ("grpo",), ""),
}
"""Trainer -> its key of the estimator, those that compare a group, and a switch of the division, empty for none."""

_OFF = ("algo.advantage.no_std_norm", "disable_grpo_std_normalization")
"""Switches that leave the division out."""


def _of_others(config: Settings) -> str:
    """The key of the estimator that divides by the deviation of a group; empty where it does not."""
    estimator, dividing, switch = _OTHERS[config.dialect.name]
    if config.get(estimator) not in dividing or any(map(config.on, _OFF)):
        return ""
    if config.dialect.name == "ms-swift" and config.get("scale_rewards") not in (None, "group", True):
        return ""
    return (switch if config.on(switch) else "") if switch else estimator
