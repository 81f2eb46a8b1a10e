"""The best checkpoints are chosen by a validation metric, and validation is off.

Asked as
    You asked to save checkpoints based on val_reward but the metric is not found
What it is
    checkpointing.metric_name names a metric of validation, and grpo.val_period is 0.
How it shows
    In the settings. The trainer warns that the metric is not found, and keeps the most recent checkpoints.
What it does to the gradient
    Nothing. What is kept after a late fall is the fallen policy: keep_top_k deletes those before it.
What to do
    Set grpo.val_period to a number of steps, or take a metric of training.
What decides
    The first checkpoint: whether the metric is in its training_info.json.
Sources
    NeMo-RL #762: https://github.com/NVIDIA-NeMo/RL/issues/762
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known

METRIC, PERIOD, AT_END = "checkpointing.metric_name", "grpo.val_period", "grpo.val_at_end"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A metric of validation that no validation measures."""
    metric = config.get(METRIC)
    validated = isinstance(metric, str) and metric.startswith(("val_", "val:", "val/", "validation"))
    if not validated or config.off("checkpointing.enabled") or config.number(PERIOD) != 0 or config.on(AT_END):
        return
    yield fact(
        True,
        f"checkpoints are kept by {metric}, and {PERIOD} is 0, so that it is never measured after the start: the most "
        "recent ones are kept, not the best",
        config.signs(METRIC, PERIOD, "checkpointing.keep_top_k"),
        grade="warning",
        brief="checkpoints are kept by a metric that is not measured",
        remedy=f"set {PERIOD} to a number of steps, or {METRIC} to null",
    )


FAULT = Fault(
    name="best not measured",
    rank=5.66,
    remedy="switch validation on, or keep checkpoints by a metric of training",
    settings=SettingsCheck(
        "best not measured",
        _settings,
        ("nemo-rl",),
        "checkpoints kept by a metric of validation that is off",
        ("warning",),
    ),
)
