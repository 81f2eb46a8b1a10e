"""A KL penalty in the reward, which GRPO divides by the standard deviation of the rewards.

What it is
    verl's use_kl_in_reward with the estimator grpo: the penalty is summed over the completion and standardized with
    the rewards of its group.
How it shows
    The reward after the penalty moves where the task's does not; completions may shrink, since short ones pay less.
What it does to the gradient
    A group whose rewards are otherwise equal is trained on its KL alone, at full size.
What to do
    Put the penalty into the loss.
What decides
    The standard deviation of the task's reward in the groups whose advantages are not 0.
Sources
    verl docs, algo/grpo: https://verl.readthedocs.io/en/latest/algo/grpo.html
    arXiv:2402.03300 (GRPO: the penalty in the loss): https://arxiv.org/abs/2402.03300"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.kl import IN_LOSS, IN_REWARD
from grposcope.signs.settings.verl import ESTIMATOR


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A penalty in the reward beside the estimator grpo."""
    if config.on(IN_REWARD) and config.get(ESTIMATOR) == "grpo":
        yield fact(
            True,
            "it is part of the reward, so it is summed over the completion and standardized: a group whose rewards are "
            "otherwise equal is trained on its KL alone, at full size",
            config.signs(IN_REWARD),
            grade="note",
            brief="the KL penalty is divided by the standard deviation of rewards",
            remedy=f"set {IN_LOSS}=True and {IN_REWARD}=False",
        )


FAULT = Fault(
    name="standardized kl penalty",
    rank=5.5,
    remedy="put the penalty into the loss",
    settings=SettingsCheck(
        "standardized kl penalty", _settings, ("verl",), "a KL penalty in the reward that GRPO standardizes", ("note",)
    ),
)
