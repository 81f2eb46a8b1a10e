"""Credit: how much of the reward each token is given, (B, T), the form in which every objective takes its advantages.

A family of credit is a file with a `SOURCE`; `SOURCES` names them for settings, flags and probes.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from grposcope.credit import outcome, process
from grposcope.credit.source import CreditSource
from grposcope.errors import UserError
from grposcope.objectives import Objective
from grposcope.records import Rollouts

__all__ = ["SOURCES", "CreditSource", "per_token"]

SOURCES: dict[str, CreditSource] = {
    "outcome": outcome.SOURCE,
    "steps": process.SOURCE,
}
"""Name of a setting -> source of credit."""


def per_token(
    kind: str, objective: Objective, rollouts: Rollouts, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "B T"]:
    """Credit of every token under `objective`, 0 where masked; UserError for an unknown kind or missing step labels."""
    if kind not in SOURCES:
        raise UserError(f"unknown credit {kind!r}; use one of {', '.join(SOURCES)}")
    return SOURCES[kind].assign(objective, rollouts).to(dtype)
