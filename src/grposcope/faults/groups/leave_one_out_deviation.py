"""Advantages divided by the standard deviation of the other rollouts, which is 0 for the only one that differs.

What it is
    NeMo-RL's leave-one-out baseline together with normalized rewards: the deviation leaves the rollout out as well.
How it shows
    Advantages of ±10⁶, or thousands of times their usual size; a spike of the gradient norm where one rollout of a
    group differs from all others.
What it does to the gradient
    One rollout outweighs the batch; with clipping of the gradient the others vanish beside it.
What to do
    Switch one of the two off.
What decides
    The largest advantage of a batch: it should be below √G.
Sources
    NeMo-RL #1518, #1519, #4161: https://github.com/NVIDIA-NeMo/RL/issues/1518"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.names import group_size

BASELINE, SCALED = "grpo.use_leave_one_out_baseline", "grpo.normalize_rewards"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Both switches on; worse where an earlier run has rewards that float32 cannot hold exactly."""
    group = group_size(config)
    if not (config.on(BASELINE) and config.on(SCALED)) or not group:
        return
    rewards = facts.run.groups.rewards if facts.run is not None else np.empty(0)
    inexact = bool(np.any(rewards.astype(np.float32) * 1024 % 1))  # 0, ¼, 1 are held exactly, 0.35 is not
    yield fact(
        True,
        f"if one rollout of {group} differs, its advantage is divided by the standard deviation of the other "
        f"{group - 1}, which is 0: this gave ±10⁶ before NeMo-RL #1519 (November 2025). Later versions do not divide "
        "the advantage of such a rollout, but rewards that float32 cannot hold exactly, such as 0.35, still gave "
        "advantages of 4,000 times their size in 2026"
        + (f"; {facts.run.meta.name} has such rewards" if inexact and facts.run is not None else ""),
        config.signs(BASELINE, SCALED),
        grade="warning" if inexact else "note",
        brief="advantages can be far too large",
        remedy=f"set {BASELINE} to false, or {SCALED} to false",
    )


FAULT = Fault(
    name="leave-one-out deviation",
    rank=3.0,
    remedy=f"set {BASELINE} to false, or {SCALED} to false",
    settings=SettingsCheck(
        "leave-one-out deviation",
        _settings,
        ("nemo-rl",),
        "advantages divided by the standard deviation of the other rollouts",
        ("warning", "note"),
    ),
)
