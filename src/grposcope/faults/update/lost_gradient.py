"""The gradient is 0, or next to none, although rewards differ within groups.

Asked as
    grad_norm is 0 while reward_std is not
What it is
    There are advantages, and nothing of the loss arrives at the weights: parameters that do not require a gradient, a
    graph that is cut (gradient checkpointing on adapters, a detached ratio), an engine that loses it, or an empty mask.
How it shows
    The gradient norm is 0 in every row, or below 1e-5, while the spread within groups is not. Where the KL grows or the
    reward rises all the same, only the norm is logged wrongly.
What it does to the gradient
    It is 0, whatever the rewards are.
What to do
    List the trainable parameters without a gradient after one backward pass; count the tokens of the mask; try another
    version or ZeRO stage of the engine. Easier prompts do not help.
What decides
    One step: for p in model.parameters(): p.requires_grad, p.grad; and a checksum of the weights before and after it.
Sources
    TRL #5312, a norm of 5e-6: https://github.com/huggingface/trl/issues/5312
    ms-swift #5571: https://github.com/modelscope/ms-swift/issues/5571
    ms-swift #5890: https://github.com/modelscope/ms-swift/issues/5890
    mlx-lm-lora #55, a ratio that is a constant: https://github.com/Goekdeniz-Guelmez/mlx-lm-lora/issues/55
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, Sign, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.lost_gradient import BACKWARD, TEST

_RATIO = "importance_sampling_level"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """mlx-lm-lora without a level of its ratio, which is then 1 and carries no gradient."""
    level = config.given.get(_RATIO)
    if level not in (None, "none", "None") or _RATIO in config.opaque or config.partial:
        return
    yield fact(
        True,
        f"{'by its default before mlx-lm-lora 3.0, None, ' if level is None else ''}the ratio is the constant 1, "
        "through which no gradient of the reward passes: only the KL term moves the weights",
        config.signs(_RATIO) or (Sign(f"{_RATIO} is not set"),),
        grade="warning",
        explains=("update not applied", "no learning"),
        brief="the policy's gradient may be exactly 0",
        remedy=f"set {_RATIO} to token",
        source="mlx-lm-lora #55: https://github.com/Goekdeniz-Guelmez/mlx-lm-lora/issues/55",
    )


FAULT = Fault(
    name="lost gradient",
    rank=11,
    remedy=BACKWARD,
    effect="nothing is learned",
    beside="warning",
    log=TEST,
    settings=SettingsCheck(
        "lost gradient", _settings, ("mlx-lm-lora",), "a ratio that is a constant", ("warning",), "mlx-lm-lora #55"
    ),
)
