"""A learning rate of 0, with which nothing is learned.

What it is
    The rate is 0 or below, by a typing error or a schedule.
How it shows
    A log shows it as misconfiguration: the learning rate is 0 on all rows; the reward does not move.
What it does to the gradient
    Nothing: it is computed and multiplied by 0.
What to do
    Set a learning rate.
What decides
    The rate in the settings.
Sources
    method of this project"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import OWN_METHOD, Fault, SettingsCheck
from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.faults.known import Known
from grposcope.signs.settings.names import LEARNING_RATE


def settings(config: Settings, known: Known) -> Iterator[Finding]:
    """A learning rate that is not above 0."""
    key = LEARNING_RATE[config.dialect.name]
    rate = config.number(key)
    if rate is None:
        yield cannot_tell(f"{key} is not known", key)
    elif rate <= 0:
        yield fact(True, f"the learning rate is {rate:g}", config.signs(key), grade="failing",
                   brief="nothing is learned", remedy=f"set {key}")  # fmt: skip


FAULT = Fault(
    name="zero learning rate",
    rank=2.3,
    remedy="set a learning rate",
    source=OWN_METHOD,
    settings=SettingsCheck(
        "zero learning rate", settings, ("trl", "verl", "nemo-rl"), "a learning rate of 0", ("failing",)
    ),
)
