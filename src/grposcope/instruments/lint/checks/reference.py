"""KL penalties without a reference, references without a penalty, and coefficients that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.instruments.lint.checks.derived import ACTOR
from grposcope.instruments.lint.config import Known, TrainerConfig
from grposcope.instruments.lint.findings import Fault, Untold


def trl_reference(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """TRL: a reference that is to follow the policy, while beta = 0 makes none; adapters have no such model at all."""
    if not config.on("sync_ref_model"):
        return
    if config.number("beta") == 0:
        yield Fault("failing", "no reference to synchronise", "beta is 0, so TRL makes no reference model, and refuses "
                      "sync_ref_model", "set beta above 0, such as 1e-3, or sync_ref_model=False",
                      ("sync_ref_model", "beta"))  # fmt: skip
    elif config.adapters:
        yield Fault(
            "failing",
            "no reference to synchronise",
            "with adapters, TRL uses the model without them as the reference, and refuses sync_ref_model",
            "set sync_ref_model=False",
            ("sync_ref_model",),
        )


def verl_reference(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """verl: coefficients beside switches that are off, and a switch that is on beside a coefficient of 0."""
    loss, weight = ACTOR + "use_kl_loss", ACTOR + "kl_loss_coef"
    reward, price = "algorithm.use_kl_in_reward", "algorithm.kl_ctrl.kl_coef"
    in_loss, in_reward = config.get(loss), config.get(reward)
    for switch, on, coefficient in ((loss, in_loss, weight), (reward, in_reward, price)):
        value = config.number(coefficient)
        if on is True and value == 0:
            yield Fault(
                "note",
                "an unused reference model",
                f"{switch} is on with a coefficient of 0: the reference model costs memory and time but changes "
                "nothing",
                f"set {switch}=False",
                (switch, coefficient),
            )
    if in_loss is False and in_reward is False:
        idle = tuple(key for key in (weight, price) if config.says(key) and config.number(key))
        if idle:
            yield Fault("warning", "no KL penalty despite its coefficient", "both use_kl_loss and use_kl_in_reward "
                          "are off, so there is no reference model and nothing holds the policy near it",
                          f"set {loss}=True, or leave the coefficient out", (*idle, loss, reward))  # fmt: skip
    if in_loss is True and in_reward is True and config.number(weight) and config.number(price):
        yield Fault("note", "two KL penalties", f"one in the loss ({config.number(weight):g}) and one in the reward "
                      f"({config.number(price):g})", "keep the one in the loss, as GRPO "
                      "does", (loss, reward))  # fmt: skip
    if in_reward is True and config.get("algorithm.adv_estimator") == "grpo":
        yield Fault("note", "the KL penalty is divided by the standard deviation of rewards", "it is part of the "
                      "reward, so it is summed over the completion and standardized: a group whose rewards are "
                      "otherwise equal is trained on its KL alone, at full size",
                      f"set {loss}=True and {reward}=False", (reward,))  # fmt: skip
