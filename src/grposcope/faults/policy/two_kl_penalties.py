"""A KL penalty in the loss and another in the reward.

What it is
    Both switches of verl are on with coefficients above 0.
How it shows
    actor/kl_loss and a reward after the penalty are both logged.
What it does to the gradient
    The policy pays twice for leaving the reference, once per token and once through its advantages.
What to do
    Keep the one in the loss, as GRPO does.
What decides
    The two switches in the settings.
Sources
    verl docs, algo/grpo: https://verl.readthedocs.io/en/latest/algo/grpo.html
    arXiv:2402.03300 (GRPO: the penalty in the loss): https://arxiv.org/abs/2402.03300"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.kl import IN_LOSS, IN_REWARD, LOSS_COEFFICIENT, REWARD_COEFFICIENT


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Both penalties on, each with a coefficient."""
    loss, reward = config.number(LOSS_COEFFICIENT), config.number(REWARD_COEFFICIENT)
    if config.on(IN_LOSS) and config.on(IN_REWARD) and loss and reward:
        yield fact(True, f"one in the loss ({loss:g}) and one in the reward ({reward:g})",
                   config.signs(IN_LOSS, IN_REWARD), grade="note", brief="two KL penalties",
                   remedy="keep the one in the loss, as GRPO does")  # fmt: skip


FAULT = Fault(
    name="two kl penalties",
    rank=5.4,
    remedy="keep the one in the loss, as GRPO does",
    settings=SettingsCheck(
        "two kl penalties", _settings, ("verl",), "a KL penalty in the loss and one in the reward", ("note",)
    ),
)
