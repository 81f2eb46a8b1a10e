"""Credit: how much of the reward each token is given, (B, T), the form in which every objective takes its advantages.

`SOURCES` names the ways to give credit for settings, flags and probes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from grposcope.credit import process
from grposcope.errors import UserError
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


def outcome(objective: Objective, rollouts: Rollouts) -> Float[Tensor, "B T"]:
    """A_i on every token of rollout i, 0 where masked (GRPO, arXiv:2402.03300, section 4.1.2)."""
    return objective.token_advantages(rollouts, torch.float64)


SOURCES: dict[str, CreditSource] = {
    "outcome": CreditSource(outcome),
    "steps": CreditSource(process.of_rollouts, uses_advantage=False, needs_steps=True),
}
"""Name of a setting -> source of credit."""


def per_token(
    kind: str, objective: Objective, rollouts: Rollouts, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "B T"]:
    """Credit of every token under `objective`, 0 where masked; UserError for an unknown kind or missing step labels."""
    if kind not in SOURCES:
        raise UserError(f"unknown credit {kind!r}; use one of {', '.join(SOURCES)}")
    return SOURCES[kind].assign(objective, rollouts).to(dtype)
