"""Surrogate objectives per token: what is maximised, given ratio ρ, log π and credit A.

A surrogate is a small value with its clip range; calling it maps arrays (B, T) to (B, T), with
gradients through `ratio` and `logp`. Each is homogeneous in the credit: c ≥ 0 times the credit
gives c times the surrogate, by which `corrections` come in. `held` says which tokens the clip holds still, as two bool
arrays (B, T): below the range and above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from grposcope.core.errors import UserError


@runtime_checkable
class Surrogate(Protocol):
    """A surrogate as objectives use it."""

    def __call__(
        self, ratio: Float[Tensor, "B T"], logp: Float[Tensor, "B T"], credit: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]: ...

    def held(
        self, ratio: Float[Tensor, "B T"], credit: Float[Tensor, "B T"]
    ) -> tuple[Bool[Tensor, "B T"], Bool[Tensor, "B T"]]:
        """Which tokens the clip holds back below, and which above, (B, T) each."""
        ...


@dataclass(frozen=True)
class Reinforce:
    """ρ A, unclipped: its gradient is the importance-weighted policy gradient ρ A ∇log π."""

    def __call__(
        self, ratio: Float[Tensor, "B T"], logp: Float[Tensor, "B T"], credit: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        return ratio * credit

    def held(
        self, ratio: Float[Tensor, "B T"], credit: Float[Tensor, "B T"]
    ) -> tuple[Bool[Tensor, "B T"], Bool[Tensor, "B T"]]:
        """None: nothing is clipped."""
        never = torch.zeros_like(ratio, dtype=torch.bool)
        return never, never


@dataclass(frozen=True)
class Clip:
    """min(ρA, clip(ρ, 1−low, 1+high) A), PPO (arXiv:1707.06347). high > low is DAPO's clip-higher.

    With `bound`, not below bound·A where A < 0, so that a huge ratio cannot dominate (dual clip,
    arXiv:1912.09729); bound must exceed 1 + high.
    """

    low: float = 0.2
    high: float = 0.2
    bound: float | None = None

    def __post_init__(self) -> None:
        if self.low < 0 or self.high < 0:
            raise UserError(f"clip range low={self.low}, high={self.high} must not be negative")
        if self.bound is not None and self.bound <= 1 + self.high:
            raise UserError(f"dual-clip bound {self.bound} must exceed 1 + high = {1 + self.high}")

    def __call__(
        self, ratio: Float[Tensor, "B T"], logp: Float[Tensor, "B T"], credit: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        clipped = torch.minimum(ratio * credit, ratio.clamp(1 - self.low, 1 + self.high) * credit)
        if self.bound is None:
            return clipped
        return torch.where(credit < 0, torch.maximum(clipped, self.bound * credit), clipped)

    def held(
        self, ratio: Float[Tensor, "B T"], credit: Float[Tensor, "B T"]
    ) -> tuple[Bool[Tensor, "B T"], Bool[Tensor, "B T"]]:
        """Tokens of negative credit below 1 − low; those of positive credit above 1 + high, and past the dual clip."""
        high = (ratio > 1 + self.high) & (credit > 0)
        if self.bound is not None:
            high = high | ((ratio > self.bound) & (credit < 0))
        return (ratio < 1 - self.low) & (credit < 0), high


@dataclass(frozen=True)
class OneSided:
    """A log π, 0 where ρ has gone past 1 + high with A > 0 or below 1 − low with A < 0 (arXiv:2509.24203).

    The tokens of `Clip`, without the ratio as a weight. The value of the loss has no meaning; its gradient has.
    """

    low: float = 0.2
    high: float = 0.2

    def __call__(
        self, ratio: Float[Tensor, "B T"], logp: Float[Tensor, "B T"], credit: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        low, high = self.held(ratio.detach(), credit)
        return (credit * logp).masked_fill(low | high, 0.0)

    def held(
        self, ratio: Float[Tensor, "B T"], credit: Float[Tensor, "B T"]
    ) -> tuple[Bool[Tensor, "B T"], Bool[Tensor, "B T"]]:
        """Tokens of negative credit below 1 − low, and of positive credit above 1 + high."""
        return (ratio < 1 - self.low) & (credit < 0), (ratio > 1 + self.high) & (credit > 0)


@dataclass(frozen=True)
class Cispo:
    """sg[clip(ρ, 1−low, 1+high)] A log π (CISPO, arXiv:2506.13585): the weight is clipped, no token is dropped.

    low ≥ 1 leaves the ratio free below. The value of the loss has no meaning; its gradient has.
    """

    low: float = 1.0
    high: float = 4.0

    def __call__(
        self, ratio: Float[Tensor, "B T"], logp: Float[Tensor, "B T"], credit: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        return ratio.clamp(1 - self.low, 1 + self.high).detach() * credit * logp

    def held(
        self, ratio: Float[Tensor, "B T"], credit: Float[Tensor, "B T"]
    ) -> tuple[Bool[Tensor, "B T"], Bool[Tensor, "B T"]]:
        """Tokens whose weight is clipped at 1 − low, and at 1 + high."""
        return ratio < 1 - self.low, ratio > 1 + self.high
