"""A reference model that is to follow the policy, while none is made.

What it is
    TRL makes a reference model only where `beta` is above 0, and none for adapters, whose reference is the model
    without them. `sync_ref_model` asks for one.
How it shows
    TRL refuses to start.
What it does to the gradient
    Nothing: there is none.
What to do
    Set beta above 0, or sync_ref_model=False.
What decides
    Starting the run.
Sources
    TRL 1.16, GRPOTrainer: https://huggingface.co/docs/trl/grpo_trainer"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known

SYNC = "sync_ref_model"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A reference to be synchronised beside beta = 0, or beside adapters."""
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


FAULT = Fault(
    name="missing reference",
    rank=1.5,
    remedy=f"set {SYNC}=False",
    settings=SettingsCheck("missing reference", _settings, ("trl",), "a reference that does not exist", ("failing",)),
)
