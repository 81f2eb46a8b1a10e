"""What a probe measures, and how closely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from grposcope.instruments.gradient.weightings import Weighting
from grposcope.lab.objectives import Objective

Tier = Literal["fast", "exact"]


@dataclass(frozen=True)
class ProbeSettings:
    """Settings of `probe.probe`, each with its default.

    credit: a source as `lab.credit.chosen` reads it, or advantages per token (B, T).
    temperature: the sampling temperature of the rollouts.
    tier: "fast" takes the `leading` singular values and bounds the rest, "exact" takes all.
    sweep: group sizes, each the first rollouts of every group.
    also: further recipes, at every group size of the sweep.
    controls: adds `weightings.controls`.
    extra: further weightings.
    learning_rate: for the share of weights a step would change.
    check: compare with autograd on a few tokens first, which also improves the estimate of the memory needed.
    """

    credit: str | Tensor = "outcome"
    temperature: float = 1.0
    tier: Tier = "fast"
    sweep: Sequence[int] = ()
    also: Sequence[Objective] = ()
    controls: bool = False
    extra: Sequence[Weighting] = ()
    leading: int = 16
    learning_rate: float | None = None
    seed: int = 0
    check: bool = True
