"""A reference model that is to follow the policy, while none is made.

What it is
    TRL makes a reference model only where `beta` is above 0, and none for adapters, whose reference is the model
    without them. `sync_ref_model` asks for one.
How it shows
    TRL refuses to start. AReaL starts, and its KL term is then the log-probability alone.
What it does to the gradient
    Nothing where there is none; AReaL's pays for unlikely tokens.
What to do
    Set beta above 0, or sync_ref_model=False.
What decides
    Starting the run.
Sources
    AReaL 1.0.4, areal.trainer.ppo.actor: https://github.com/inclusionAI/AReaL
    TRL 1.16, GRPOTrainer: https://huggingface.co/docs/trl/grpo_trainer"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known

SYNC = "sync_ref_model"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A reference to be synchronised beside beta = 0, or beside adapters; a KL term without one."""
    if config.dialect.name == "areal":
        yield from _areal(config)
        return
    if not config.on(SYNC):
        return
    brief = "no reference to synchronise"
    if config.number("beta") == 0:
        because = f"beta is 0, so TRL makes no reference model, and refuses {SYNC}"
        yield fact(True, because, config.signs(SYNC, "beta"), grade="failing", brief=brief,
                   remedy=f"set beta above 0, such as 1e-3, or {SYNC}=False")  # fmt: skip
    elif config.adapters:
        because = f"with adapters, TRL uses the model without them as the reference, and refuses {SYNC}"
        yield fact(True, because, config.signs(SYNC), grade="failing", brief=brief, remedy=f"set {SYNC}=False")


def _areal(config: Settings) -> Iterator[Finding]:
    """AReaL's KL term without a reference, whose log-probabilities then are 0."""
    coefficient = config.number("actor.kl_ctl")
    if not coefficient or config.partial or any(key.startswith("ref.") for key in (*config.given, *config.opaque)):
        return
    yield fact(
        True,
        f"actor.kl_ctl is {coefficient:g} and the file has no ref: AReaL then takes 0 for the reference's "
        f"log-probabilities, and every token is paid {coefficient:g} × −log π(y), the more the less likely it was",
        config.signs("actor.kl_ctl"),
        grade="warning",
        explains=("entropy explosion",),
        brief="a KL term without a reference",
        remedy="set actor.kl_ctl to 0, or give ref",
        source="source of AReaL 1.0.4: https://github.com/inclusionAI/AReaL",
    )


FAULT = Fault(
    name="missing reference",
    rank=1.5,
    remedy=f"set {SYNC}=False",
    settings=SettingsCheck(
        "missing reference", _settings, ("trl", "areal"), "a reference that does not exist", ("failing", "warning")
    ),
)
