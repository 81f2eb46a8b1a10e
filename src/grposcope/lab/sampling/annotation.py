"""What annotates every token of rollouts with what a model says of it: its form, and what it is made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.tasks import Problem

Annotator = Callable[[RolloutBatch, Sequence[Problem]], RolloutBatch]
"""Rollouts and the problem of each of their groups, to the rollouts with one more token annotation."""


@dataclass(frozen=True)
class AnnotationContext:
    """What annotators are made from. instruction: the task's. micro_batch: rollouts per forward pass.

    learned: folder of a run or a checkpoint whose critic is used; None for a critic that is yet to learn.
    """

    policy: Policy
    temperature: float
    micro_batch: int
    instruction: str = ""
    remote_code: bool = False
    learned: Path | None = None


def check_numbers(numbers: Tensor, rollouts: RolloutBatch, policy: Policy, whose: str, remedy: str) -> None:
    """UserError that names the first token whose number is not finite. found (B, T); whose: "the teacher"."""
    bad = (~numbers.isfinite() & rollouts.mask).nonzero()
    if not len(bad):
        return
    row, column = bad[0].tolist()
    token = policy.tokenizer.decode([int(rollouts.tokens[row, column])])
    raise UserError(
        f"{whose} gives {float(numbers[row, column])} for token {column + 1} ({token!r}) of rollout {row + 1} of the "
        f"batch, and for {len(bad) - 1} others; {remedy}"
    )
