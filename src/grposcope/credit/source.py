"""What a source of credit is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from grposcope.objectives import Objective
from grposcope.records import Rollouts


@dataclass(frozen=True)
class CreditSource:
    """One way to give credit to tokens.

    assign: from an objective and rollouts to credit (B, T), 0 where masked. uses_advantage: whether it spreads the
    objective's advantage, so that it needs a group where the advantage does. needs_steps: whether the rollouts must
    carry rewards of their steps, which only some tasks label.
    """

    assign: Callable[[Objective, Rollouts], Tensor]
    uses_advantage: bool = True
    needs_steps: bool = False
