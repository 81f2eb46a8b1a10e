"""Groups with almost equal rewards, whose differences division by the standard deviation scales up to full size.

What it is
    Advantages are divided by the standard deviation of their group, or each reward by its own before they are added.
    Where rewards differ by noise alone, as those of a length penalty or a judge may, that noise is all there is.
How it shows
    In the spread of rewards within groups: some live groups have a hundredth of the usual one.
What it does to the gradient
    0.01 in one group counts as much as right versus wrong in another.
What to do
    Round the rewards, drop what varies so little, divide by the standard deviation of the batch, or do not divide.
What decides
    The standard deviations of the groups of an earlier run, which grposcope lint reads beside the settings.
Sources
    arXiv:2503.20783 (question-level difficulty bias): https://arxiv.org/abs/2503.20783
    arXiv:2601.05242 (GDPO): https://arxiv.org/abs/2601.05242"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.core.text import percent
from grposcope.faults.checks.effective_weights import AGGREGATION, WEIGHTS, count, drawn
from grposcope.faults.checks.standardizing import scaled_by_group
from grposcope.faults.known_task import Known
from grposcope.signs.settings.names import group_size

TINY = 0.01
"""Spread of a group, as a share of the median spread of live groups, below which its differences are noise."""

RARE = 0.02
"""Share of live groups with a tiny spread up to which they hardly matter."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Groups with hardly any spread in an earlier run, or several rewards of which some may have hardly any."""
    if config.get(AGGREGATION) == "normalize_then_sum" and count(config) > 1 and drawn(config, facts) is None:
        yield fact(
            True,
            "each reward is divided by its own standard deviation before the rewards are added: one that varies in "
            "few groups counts there as much as the main one",
            config.signs(WEIGHTS, AGGREGATION),
            grade="note",
            brief="rare rewards count fully",
            remedy="give such rewards small weights",
        )
    key = scaled_by_group(config)
    if not key:
        return
    run = facts.run
    if run is not None and len(run.groups) and len(set(run.groups.sizes.tolist())) == 1 and run.groups.sizes[0] > 1:
        yield from _measured(config, key, run.groups.rewards.reshape(len(run.groups), -1), run.meta.name)
    elif config.reward_functions is not None and config.reward_functions > 1:
        group = group_size(config) or 8
        yield fact(
            True,
            "advantages are divided by the standard deviation of their group: if the rewards of a group differ "
            "by only 0.01, that 0.01 counts as much as right versus wrong in another group (up to "
            f"{(group - 1) / group**0.5:.3g} for G = {group})",
            config.signs(key),
            grade="note",
            brief="small differences count as much as large ones",
            remedy="check the standard deviations of an earlier run, divide by that of the batch, or do not divide",
        )


def _measured(config: Settings, key: str, rewards: np.ndarray, name: str) -> Iterator[Finding]:
    """The share of live groups with a tiny spread, among rewards (P, G) of an earlier run."""
    spread = rewards.std(-1, ddof=1)
    live = spread[spread > 0]
    if not len(live):
        return
    share = float(np.mean(live < TINY * np.median(live)))
    if share > RARE:
        yield fact(
            True,
            f"in {percent(share, 1)} of the live groups of {name} rewards differ by less than "
            f"{TINY:.0%} of the usual difference; division by their standard deviation makes them count as much as the "
            "others",
            config.signs(key),
            grade="warning",
            brief="noise is scaled up to full size",
            remedy="round the rewards, drop the part that varies so little, or divide by the batch's standard "
            "deviation",
        )


FAULT = Fault(
    name="vanishing deviation",
    rank=3.1,
    remedy="round the rewards, divide by the standard deviation of the batch, or do not divide",
    settings=SettingsCheck(
        "vanishing deviation",
        _settings,
        ("trl", "verl", "skyrl", "openrlhf", "slime", "ms-swift"),
        "groups or rewards that hardly vary, divided by their standard deviation",
        ("warning", "note"),
    ),
)
