"""Groups are dropped by the sum of rewards that are standardized one by one.

What it is
    GDPO standardizes each reward alone, so that a group has a gradient where any of them differs. A filter that looks
    at their sum drops groups in which differences cancel: right and long against wrong and short.
How it shows
    In the settings. Groups are dropped whose parts of the reward differ.
What it does to the gradient
    It is missing from just those groups for which the estimator was chosen.
What to do
    Filter by one reward, or not at all, where each is standardized alone.
What decides
    The share of dropped groups in which some part of the reward differs, from the rewards by function of one step.
Sources
    SkyRL #2104: https://github.com/NovaSky-AI/SkyRL/pull/2104
    arXiv:2601.05242 (GDPO): https://arxiv.org/abs/2601.05242
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known

FILTERS: Mapping[str, tuple[str, str]] = {
    "skyrl": ("trainer.algorithm.advantage_estimator", "trainer.algorithm.zero_variance_filter"),
    "verl": ("algorithm.adv_estimator", "algorithm.filter_groups.enable"),
}
"""Trainer -> its key of the estimator, and the switch of its filter."""

ONE = "acc"
"""Metric of verl's filter that is no sum."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """GDPO with a filter that looks at the sum."""
    estimator, switch = FILTERS[config.dialect.name]
    if config.get(estimator) != "gdpo" or not config.on(switch):
        return
    if config.dialect.name == "verl" and config.get("algorithm.filter_groups.metric") in (None, ONE):
        return
    yield fact(
        True,
        "each reward is standardized alone, and groups are dropped whose sums are equal: those whose rewards differ "
        "and cancel have a gradient, and are dropped too",
        config.signs(estimator, switch),
        grade="warning",
        brief="groups are dropped by the sum of rewards",
        remedy=f"set {switch} to false",
    )


FAULT = Fault(
    name="filter of summed rewards",
    rank=3.025,
    remedy="filter by one reward, or not at all",
    settings=SettingsCheck(
        "filter of summed rewards", _settings, tuple(FILTERS), "GDPO with a filter of groups by the sum", ("warning",)
    ),
)
