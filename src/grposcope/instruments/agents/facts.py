"""What rollouts with turns say: the reward by turns, what ended them, and whether the update draws to more turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Run
from grposcope.maths.group_covariance import covariance

STEPS = 10
"""Last steps whose rollouts are taken."""

_PaidBy = tuple[str, int, float, Estimate]
"""What some rollouts have in common, how many they are, their share, and their reward."""

MOST = 12
"""Rows of the table of turns; rollouts of more turns share the last."""


@dataclass(frozen=True)
class TurnFacts:
    """What the rollouts of some steps say of their turns.

    steps: first and last. by_turns: rollouts by the turns that they took; by_stop: by what ended them. drawn:
    Cov(turns, reward) within groups, calls: the same of tool calls, None where they are not known. rollouts: how many.
    """

    steps: tuple[int, int]
    by_turns: tuple[_PaidBy, ...]
    by_stop: tuple[_PaidBy, ...]
    drawn: Estimate
    calls: Estimate | None
    rollouts: int


def _rows(run: Run, step: int) -> Sequence[Rollout]:
    """The rollouts of a step; none where their file is damaged or a package is missing, which the viewer says."""
    try:
        return run.rollouts[step]
    except UserError:
        return ()


def of_run(run: Run) -> TurnFacts | None:
    """The facts of the last rollouts of a run; None where they have one turn, or their turns are not known."""
    steps = sorted(run.rollouts)[-STEPS:]
    rows = [(step, row) for step in steps for row in _rows(run, step) if math.isfinite(row.reward)]
    counts = [row.turn_count for _, row in rows]
    if not rows or any(count is None for count in counts) or max(count or 0 for count in counts) < 2:
        return None
    own = [row for _, row in rows]
    turns = np.array(counts, np.float64)
    rewards = np.array([row.reward for row in own])
    groups = [(step, row.group) for step, row in rows]
    made = [row.calls for row in own]
    calls = None if any(count is None for count in made) or not any(made) else \
        covariance(np.array(made, np.float64), rewards, groups)  # fmt: skip
    top = min(int(turns.max()), MOST)
    by_turns = [(f"{turn}" if turn < top or turns.max() <= top else f"{turn} or more", np.minimum(turns, top) == turn)
                for turn in range(int(turns.min()), top + 1)]  # fmt: skip
    return TurnFacts(
        (steps[0], steps[-1]),
        tuple(_paid(what, own, rewards, chosen) for what, chosen in by_turns if chosen.any()),
        _by_stop(own, rewards),
        covariance(turns, rewards, groups),
        calls,
        len(own),
    )


def _by_stop(rows: Sequence[Rollout], rewards: np.ndarray) -> tuple[_PaidBy, ...]:
    words = np.array([row.stop or "not said" for row in rows])
    if (words == "not said").all():
        return ()
    names, counts = np.unique(words, return_counts=True)
    order = names[np.argsort(-counts, kind="stable")].tolist()
    return tuple(_paid(name, rows, rewards, words == name) for name in order)


def _paid(what: str, rows: Sequence[Rollout], rewards: np.ndarray, chosen: np.ndarray) -> _PaidBy:
    return (what, int(chosen.sum()), float(chosen.mean()), Estimate.mean(rewards[chosen].tolist()))
