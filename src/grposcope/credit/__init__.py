"""Credit: how much of the reward each token is given, (B, T), the form in which every objective takes its advantages.

`SOURCES` names the ways to give credit for settings, flags and probes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from grposcope.credit import process, steps
from grposcope.errors import UserError
from grposcope.objectives import Objective
from grposcope.records import Rollouts


@dataclass(frozen=True)
class CreditSource:
    """One way to give credit to tokens.

    assign: from an objective and rollouts to credit (B, T), 0 where masked. help: what it is, for a list of sources.
    uses_advantage: whether it spreads the objective's advantage, so that it needs a group where the advantage does.
    needs_group: whether it compares the rollouts of a group itself, so that G must be 2 or more.
    needs_steps: whether the rollouts must carry rewards of their steps, which only some tasks label.
    warning: what to know before training with it; empty for none.
    """

    assign: Callable[[Objective, Rollouts], Tensor]
    help: str
    uses_advantage: bool = False
    needs_group: bool = False
    needs_steps: bool = False
    warning: str = ""


def outcome(objective: Objective, rollouts: Rollouts) -> Float[Tensor, "B T"]:
    """A_i on every token of rollout i, 0 where masked (GRPO, arXiv:2402.03300, section 4.1.2)."""
    return objective.token_advantages(rollouts, torch.float64)


SOURCES: dict[str, CreditSource] = {
    "outcome": CreditSource(outcome, "one for the whole rollout", uses_advantage=True),
    "steps": CreditSource(
        steps.of_rollouts,
        "verified steps still to come, less those of the others, never standardized",
        needs_group=True,
        needs_steps=True,
    ),
    "process": CreditSource(
        process.of_rollouts,
        "process supervision of the GRPO paper, biased",
        needs_steps=True,
        warning="credit process, GRPO's process supervision as published, is biased: where later steps are right less "
        "often than earlier ones it teaches the policy to stop early; credit steps is not",
    ),
}
"""Name of a setting -> source of credit."""


def described() -> str:
    """The sources and what each gives, in one line."""
    return "what each token's credit is: " + "; ".join(f"{name}, {source.help}" for name, source in SOURCES.items())


def per_token(
    kind: str, objective: Objective, rollouts: Rollouts, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "B T"]:
    """Credit of every token under `objective`, 0 where masked; UserError for an unknown kind or missing step labels."""
    if kind not in SOURCES:
        raise UserError(f"unknown credit {kind!r}; use one of {', '.join(SOURCES)}")
    return SOURCES[kind].assign(objective, rollouts).to(dtype)
