"""The range that a reward cannot leave: inferred from rewards, and kept by forecasts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from grposcope.errors import UserError
from grposcope.timeseries.noise import Array

ROOM = 1e-3
"""Share of the range that a level keeps from its ends, so that it can still move."""


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

    def approach(self, now: float, change: Array) -> Array:
        """Levels that expected changes (H,) from the level `now` lead to: each next part of a change closes its share
        of the room that is left, room · (1 − e^{−change/room}), so that no end is reached.
        """
        room = ROOM * (self.high - self.low) if math.isfinite(self.high - self.low) else 0.0
        now = min(max(now, self.low + room), self.high - room)
        above, below = self.high - now, now - self.low
        up = -above * np.expm1(-np.maximum(change, 0.0) / above) if math.isfinite(above) else np.maximum(change, 0.0)
        down = below * np.expm1(np.minimum(change, 0.0) / below) if math.isfinite(below) else np.minimum(change, 0.0)
        return np.asarray(now + up + down)


def inferred(reward: Array) -> RewardRange:
    """0 to 1 where all rewards (n,) lie there, and no range elsewhere."""
    if reward.min() >= 0 and reward.max() <= 1:
        return RewardRange(0.0, 1.0)
    return RewardRange()
