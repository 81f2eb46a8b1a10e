"""The range that a reward cannot leave: inferred from rewards, and kept by forecasts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from grposcope.core.errors import UserError
from grposcope.maths.timeseries.noise import Array


@dataclass(frozen=True)
class RewardRange:
    """Least and largest possible reward; −∞ and ∞ where there is no end. UserError unless low < high."""

    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise UserError(f"the reward range must end above its beginning, got {self.low:g} to {self.high:g}")

    def clip(self, rewards: Array) -> Array:
        """Rewards held to the range."""
        return np.clip(rewards, self.low, self.high)
