"""Advantages are divided by something else than the settings state.

What it is
    The deviation of the batch in place of the group's, another ddof or ε, or no division at all. Or a mean and
    deviation of a part of the batch, such as what one rank of context parallelism holds.
How it shows
    Advantages are exactly those of a recipe with another scale, ddof or ε. Settings whiten them where each rank has a
    part of every sequence.
What it does to the gradient
    Prompts are weighted otherwise: dividing by the group's deviation favours prompts that are nearly always or
    nearly never solved; ddof is a factor of √(G/(G − 1)); ε decides what groups of nearly equal rewards weigh.
What to do
    Correct the divisor (scale_rewards in TRL), or state the one that is meant.
What decides
    Rewards, groups and advantages of one batch: grposcope verify FOLDER.
Sources
    Dr. GRPO: https://arxiv.org/abs/2503.20783
    slime #2235, whitening by rank: https://github.com/THUDM/slime/pull/2235
    miles #3229, the same: https://github.com/radixark/miles/pull/3229
    TRL, scale_rewards"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import advantages


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Whitening of advantages where context parallelism splits every sequence over ranks."""
    ranks = config.whole("context_parallel_size")
    if not config.on("normalize_advantages") or ranks is None or ranks < 2:
        return
    because = (
        f"context_parallel_size {ranks} gives each rank a part of every sequence, and before slime #2235 of July 2026 "
        f"(for miles: #3229) normalize_advantages takes the mean and deviation of what a rank holds: then the {ranks} "
        "parts of a sequence have different shifts and scales"
    )
    yield fact(True, because, config.signs("normalize_advantages", "context_parallel_size"), grade="warning",
               brief="advantages may be whitened by rank",
               remedy="see that the version is a newer one; else set context_parallel_size 1, or leave "
               "normalize_advantages out: group-relative advantages do not need it")  # fmt: skip


FAULT = Fault(
    name="wrong divisor",
    rank=3.0,
    remedy="correct the divisor of the advantages (scale_rewards in TRL), or state the one you intend",
    instead="warning",
    rollouts=(advantages.PROOF,),
    settings=SettingsCheck(
        "wrong divisor", _settings, ("slime",), "whitening of advantages by what each rank holds", ("warning",)
    ),
)
