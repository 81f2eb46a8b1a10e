"""A reference model that is loaded for a KL penalty whose coefficient is 0.

What it is
    The switch of the penalty is on and its coefficient 0.
How it shows
    A reference model takes memory and a forward pass of every step; the KL is logged.
What it does to the gradient
    Nothing: the penalty is multiplied by 0.
What to do
    Switch the penalty off, unless the logged KL is worth its price.
What decides
    timing_s/ref in the log.
Sources
    slime, placement_group and loss, August 2026: https://github.com/THUDM/slime
    verl docs, algo/grpo: https://verl.readthedocs.io/en/latest/algo/grpo.html
    verl 0.9.1, validate_config: https://github.com/verl-project/verl"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.kl import PENALTIES


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A switch that is on beside a coefficient of 0."""
    for switch, coefficient in _OTHERS.get(config.dialect.name, PENALTIES):
        if config.on(switch) and config.number(coefficient) == 0:
            yield fact(
                True,
                f"{switch} is on with a coefficient of 0: the reference model costs memory and time but changes "
                "nothing of the update",
                config.signs(switch, coefficient),
                grade="note",
                brief="an unused reference model",
                remedy=f"set {switch}=False, unless the logged KL is worth that",
            )


_OTHERS = {
    "roll": (("use_kl_loss", "kl_loss_coef"),),
    "slime": (("use_kl_loss", "kl_loss_coef"),),
    "skyrl": (("trainer.algorithm.use_kl_loss", "trainer.algorithm.kl_loss_coef"),),
}
"""Trainer -> switch and coefficient of its penalty."""


FAULT = Fault(
    name="unused reference",
    rank=5.3,
    remedy="switch the penalty off",
    settings=SettingsCheck(
        "unused reference", _settings, ("verl", *_OTHERS), "a KL penalty with a coefficient of 0", ("note",)
    ),
)
