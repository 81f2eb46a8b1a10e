"""Dynamic sampling keeps groups by their mean reward, so that groups of equal partial rewards pass.

What it is
    OpenRLHF keeps a group whose mean reward lies inside a range. With rewards of 0 and 1 that leaves out the groups
    without a difference; with partial rewards, such as F1, eight times 0.4 lies inside as well.
How it shows
    In the settings. Kept groups have a standard deviation of 0.
What it does to the gradient
    Such groups have none: they take the place of groups that would have one.
What to do
    Filter by the standard deviation of the rewards (where the version has such a threshold), or reward with 0 and 1.
What decides
    The share of kept groups whose rewards are all equal.
Sources
    OpenRLHF #1270: https://github.com/OpenRLHF/OpenRLHF/issues/1270
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known

SWITCHES = ("algo.dynamic_filtering_enable", "dynamic_filtering")
"""The switch of the filter, in versions with dots in their flags and in those without."""

SPREAD = "algo.dynamic_filtering_std_threshold"
"""A threshold of the standard deviation, which later versions may have."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A filter of groups that looks at their mean alone."""
    switch = next((key for key in SWITCHES if config.on(key)), None)
    if switch is None or config.says(SPREAD):
        return
    yield fact(
        True,
        "groups are kept by their mean reward: where rewards are not only the two ends of the range, groups of equal "
        "rewards between them are kept, and have no gradient",
        config.signs(switch),
        grade="note",
        brief="the filter of groups looks at their mean alone",
        remedy="with partial rewards, filter groups by their standard deviation",
    )


FAULT = Fault(
    name="filter by mean",
    rank=3.027,
    remedy="filter groups by the standard deviation of their rewards, or reward with 0 and 1",
    settings=SettingsCheck(
        "filter by mean", _settings, ("openrlhf",), "a filter of groups by their mean reward", ("note",)
    ),
)
