"""Settings of the advantages that stand where the estimator does not look.

What it is
    NeMo-RL's estimator reads grpo.adv_estimator.*. Its recipes hand grpo.normalize_rewards and
    grpo.use_leave_one_out_baseline on to it by interpolation; settings that do not come from such a recipe do not.
How it shows
    grpo.normalize_rewards is given, and grpo.adv_estimator.normalize_rewards is neither given nor inherited.
What it does to the gradient
    Advantages are those of the estimator's own defaults, divided by the standard deviation, whatever the file says.
What to do
    Set grpo.adv_estimator.normalize_rewards (and use_leave_one_out_baseline) itself.
What decides
    The configuration that the run prints at its start, under adv_estimator.
Sources
    nemo-platform #1504: https://github.com/NVIDIA-NeMo/nemo-platform/pull/1504
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known

HANDED_ON = ("normalize_rewards", "use_leave_one_out_baseline")
"""Settings of the advantages that may stand at both places."""

DEFAULTS = {"normalize_rewards": True, "use_leave_one_out_baseline": True}
"""What the estimator takes where it is given nothing."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Settings at the former place that differ from what the estimator then takes, in a file that inherits nothing."""
    if config.says("defaults") or any(key.startswith("grpo.adv_estimator.") for key in config.given):
        return
    unread = [f"grpo.{name}" for name in HANDED_ON if config.given.get(f"grpo.{name}") not in (None, DEFAULTS[name])]
    if not unread:
        return
    read = ", ".join(key.replace("grpo.", "grpo.adv_estimator.") for key in unread)
    yield fact(
        True,
        f"the estimator of the advantages reads {read}, which the file neither gives nor inherits from a recipe, so "
        "that its own default holds",
        config.signs(*unread),
        grade="warning",
        brief=f"{unread[0]} is not read",
        remedy=f"set {read}",
    )


FAULT = Fault(
    name="normalisation not read",
    rank=3.05,
    remedy="set grpo.adv_estimator.normalize_rewards and grpo.adv_estimator.use_leave_one_out_baseline",
    settings=SettingsCheck(
        "normalisation not read",
        _settings,
        ("nemo-rl",),
        "settings of the advantages that stand where the estimator does not look",
        ("warning",),
    ),
)
