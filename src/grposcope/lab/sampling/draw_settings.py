"""How completions are drawn and graded."""

from __future__ import annotations

from dataclasses import dataclass

from grposcope.lab.sampling.sampler import Sampling, Tree
from grposcope.lab.tasks.faults import ErrorPolicy


@dataclass(frozen=True)
class DrawSettings:
    """Settings of a draw, each with its default.

    sampling: length, temperature and precision.
    label_steps: put the task's per-step labels on the tokens.
    reward_timeout: seconds that grading may take each time, 0 for no limit.
    reward_errors: what becomes of rollouts whose reward fails (`lab.tasks.faults.graded`); one that is dropped has the
    reward NaN and no tokens.
    tree: how rollouts branch, where their group is one of leaves.
    turn_values: continuations from the state before each turn but the first, 0 for none.
    """

    sampling: Sampling
    label_steps: bool = False
    reward_timeout: float = 0
    reward_errors: ErrorPolicy = "fail"
    tree: Tree | None = None
    turn_values: int = 0
