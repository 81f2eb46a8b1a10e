"""A discount or a λ that was set beside an estimator that reads neither.

What it is
    Estimators of verl that compare the rollouts of a prompt sum the rewards over the completion; gamma and lam belong
    to GAE and its kin.
How it shows
    Changing them changes nothing.
What it does to the gradient
    Nothing.
What to do
    Leave them out, or use an estimator that reads them.
What decides
    The estimator in the settings.
Sources
    verl 0.9.1, core_algos: https://github.com/verl-project/verl"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.faults.reward.token_level_rewards import CHANGE
from grposcope.signs.settings.verl import ESTIMATOR, OUTCOME_ONLY


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A gamma or lam other than 1 beside an estimator of outcomes."""
    estimator = config.get(ESTIMATOR)
    keys = ("algorithm.gamma", "algorithm.lam")
    idle = [key for key in keys if config.says(key) and config.number(key) not in (None, 1.0)]
    if estimator in OUTCOME_ONLY and idle:
        yield fact(True, f"estimator {estimator} ignores {' and '.join(idle)}", config.signs(*idle), grade="note",
                   brief="a discount that has no effect", remedy="leave it out, or " + CHANGE)  # fmt: skip


FAULT = Fault(
    name="idle discount",
    rank=5.1,
    remedy="leave it out",
    settings=SettingsCheck(
        "idle discount", _settings, ("verl",), "a discount beside an estimator that ignores it", ("note",)
    ),
)
