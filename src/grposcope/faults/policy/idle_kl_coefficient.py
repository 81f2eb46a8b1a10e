"""A KL coefficient that was set while the KL penalty itself is off.

What it is
    verl has a switch and a coefficient for each of its two penalties, in the loss and in the reward. The coefficient
    alone does nothing. slime subtracts kl_coef from the rewards of tokens where its estimator is PPO or REINFORCE++,
    and the estimators that compare groups leave it out.
How it shows
    No KL to a reference is logged, and no reference model is loaded.
What it does to the gradient
    It has no KL term: nothing holds the policy near where it began.
What to do
    Switch the penalty on, or leave the coefficient out.
What decides
    Whether actor/kl_loss is logged.
Sources
    verl docs, algo/grpo: https://verl.readthedocs.io/en/latest/algo/grpo.html
    verl 0.9.1, validate_config: https://github.com/verl-project/verl
    slime #399: https://github.com/THUDM/slime/pull/399"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.kl import IN_LOSS, IN_REWARD, LOSS_COEFFICIENT, REWARD_COEFFICIENT

OF_GROUPS = ("grpo", "gspo")
"""Estimators of slime whose returns are the rewards of groups alone."""

USUAL = 0.001
"""verl's default of both coefficients, which stays in many scripts that want no penalty."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A coefficient beside both switches off, or one that the estimator does not use."""
    if config.dialect.name == "slime":
        estimator = config.get("advantage_estimator")
        if config.number("kl_coef") and estimator in OF_GROUPS:
            yield fact(True, f"the estimator {estimator} takes the rewards of groups alone and leaves the KL out, so "
                       "that kl_coef only loads a reference",
                       config.signs("kl_coef", "advantage_estimator"), grade="warning",
                       brief="no KL penalty despite its coefficient",
                       remedy="set use_kl_loss and kl_loss_coef, or leave kl_coef out")  # fmt: skip
        return
    if config.dialect.name == "roll":
        if config.off("use_kl_loss") and config.number("kl_loss_coef"):
            yield fact(True, "use_kl_loss is off, so that the coefficient of the KL in the loss is not used",
                       config.signs("kl_loss_coef", "use_kl_loss"), grade="warning", explains=("kl blow-up",),
                       brief="no KL in the loss despite its coefficient",
                       remedy="set use_kl_loss: true, or leave the coefficient out")  # fmt: skip
        return
    if config.dialect.name == "skyrl":
        yield from _skyrl(config)
        return
    if not (config.off(IN_LOSS) and config.off(IN_REWARD)):
        return
    idle = [key for key in (LOSS_COEFFICIENT, REWARD_COEFFICIENT) if config.says(key) and config.number(key)]
    if idle:
        usual = all(config.number(key) == USUAL for key in idle)
        yield fact(
            True,
            "both use_kl_loss and use_kl_in_reward are off, so there is no reference model and nothing holds the "
            "policy near it",
            config.signs(*idle, IN_LOSS, IN_REWARD),
            grade="note" if usual else "warning",
            explains=("kl blow-up",),
            brief="no KL penalty despite its coefficient",
            remedy=f"set {IN_LOSS}=True, or leave the coefficient out",
        )


def _skyrl(config: Settings) -> Iterator[Finding]:
    """SkyRL: a coefficient of one's own beside both switches off."""
    loss, reward, coefficient = (f"trainer.algorithm.{name}" for name in ("use_kl_loss", "use_kl_in_reward",
                                                                          "kl_loss_coef"))  # fmt: skip
    if config.off(loss) and config.off(reward) and config.says(coefficient) and config.number(coefficient):
        yield fact(
            True,
            "both use_kl_loss and use_kl_in_reward are off, so that the coefficient of the KL is not used",
            config.signs(coefficient, loss, reward),
            grade="note" if config.number(coefficient) == USUAL else "warning",
            explains=("kl blow-up",),
            brief="no KL penalty despite its coefficient",
            remedy=f"set {loss} to true, or leave the coefficient out",
        )


FAULT = Fault(
    name="idle kl coefficient",
    rank=3.5,
    remedy="switch the penalty on, or leave the coefficient out",
    settings=SettingsCheck(
        "idle kl coefficient",
        _settings,
        ("verl", "roll", "slime", "skyrl"),
        "a KL coefficient whose switch is off, or that the estimator does not use",
        ("warning", "note"),
    ),
)
