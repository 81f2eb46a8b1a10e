"""Rollouts that engines write, whichever engine wrote them. A new one is a line in FINDERS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from grposcope.logs.trainers import (
    art_trajectories,
    ms_swift_completions,
    rllm_episodes,
    rollout_lines,
    traces,
    verl_rollouts,
    wandb_tables,
)
from grposcope.logs.written_rollouts import WrittenFiles

FINDERS: tuple[Callable[[Path], WrittenFiles | None], ...] = (
    art_trajectories.find, ms_swift_completions.find, rllm_episodes.find, traces.find, verl_rollouts.find,
    wandb_tables.find, rollout_lines.find,
)  # fmt: skip
"""What finds the files of an engine at a place; each gives None for those of others."""


def find(path: Path) -> WrittenFiles | None:
    """The rollouts at a place, a file or folder; None where no engine of FINDERS wrote any, as in pipes and devices."""
    if not (path.is_file() or path.is_dir()):
        return None
    return next((rollouts for finder in FINDERS if (rollouts := finder(path)) is not None), None)
