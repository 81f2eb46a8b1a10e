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
    key = "algorithm.norm_adv_by_std_in_grpo"
    return key if config.on(key) and config.get(ESTIMATOR) in ("grpo", "grpo_vectorized", "gdpo") else ""
