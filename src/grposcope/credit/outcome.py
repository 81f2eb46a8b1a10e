"""Outcome credit: every token of a rollout carries the rollout's advantage (GRPO, arXiv:2402.03300, section 4.1.2)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from grposcope.credit.source import CreditSource
from grposcope.objectives import Objective
from grposcope.records import Rollouts


def outcome(objective: Objective, rollouts: Rollouts) -> Float[Tensor, "B T"]:
    """A_i on every token of rollout i, 0 where masked."""
    return objective.token_advantages(rollouts, torch.float64)


SOURCE = CreditSource(outcome)
