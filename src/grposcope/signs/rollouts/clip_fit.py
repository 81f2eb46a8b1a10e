"""Which clip range, or ratio, derivatives of a loss come from, where these are not the stated ones.

Under min(ρA, clip(ρ, 1 − low, 1 + high)A) a token has the weight −cAρ, or 0 where the clip holds it: at A > 0 above
1 + high, at A < 0 below 1 − low. So the limit in force lies between the largest ratio that still has a weight and the
smallest that has none. Where every ratio is taken for 1 the weights are −cA whatever the ratio was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from grposcope.core.rollouts import Rollout
from grposcope.core.run import Bools, Floats
from grposcope.signs.rollouts import token_weights
from grposcope.signs.rollouts.stated_loss import UNCLIPPED, StatedLoss


@dataclass(frozen=True)
class _RatioLimit:
    """Where a limit of the ratio lies: not below `open`, the outermost ratio with a weight, nor beyond `held`.

    open, held: distances from 1; open is 0 and held infinite where no token shows them.
    """

    open: float
    held: float

    def allows(self, distance: float) -> bool:
        """Whether the limit may be that far from 1, but for rounding."""
        return self.open <= distance * (1 + ROUNDING) + ROUNDING and distance <= self.held * (1 + ROUNDING) + ROUNDING

    def words(self, sign: int, stated: float) -> str:
        """What the limit does, beside the stated one. sign: 1 of the upper limit, −1 of the lower."""
        side, ends = ("above", "up to") if sign > 0 else ("below", "down to")
        beside = f"where {1 + sign * stated:.4g} is stated"
        if not np.isfinite(self.held):
            return f"do not clip ratios {ends} {1 + sign * self.open:.4g}, {beside}"
        first, last = sorted((1 + sign * self.open, 1 + sign * self.held))
        return f"clip the ratio {side} a limit between {first:.4g} and {last:.4g}, {beside}"


ROUNDING = 1e-5
"""Of ratios, from log-probabilities in float32."""


def explained(
    loss: StatedLoss, kl: float, some: Sequence[Rollout], rows: Sequence[Rollout], derivatives: Floats, tolerance: float
) -> tuple[str, str] | None:
    """What the weights `derivatives` of some rows are, where another ratio or clip range explains all; else None.

    The name of the fault's kind, and words after "the derivatives of the loss".
    """
    if loss.surrogate != "clip" or loss.ratio == "none":
        return None
    present = [row for row in rows if not row.dropped]
    free = token_weights.of(replace(loss, low=UNCLIPPED, high=UNCLIPPED, bound=0.0), some, present)
    plain = token_weights.of(replace(loss, ratio="none"), some, present)
    pull = kl * np.nan_to_num(np.concatenate(free.kl)) if kl else np.zeros(len(derivatives))
    policy = np.concatenate(free.policy)
    scale = np.nanmax(np.abs(derivatives), initial=0.0)
    finite = np.isfinite(derivatives) & np.isfinite(policy)
    rest = derivatives - pull
    if _equal(rest, np.concatenate(plain.policy), finite, tolerance * scale):
        far = np.exp(_log_ratio(loss, some))[finite]
        return "ratio always 1", (
            f"are those of a ratio of 1 at every token, although it is {far.min():.3g} to {far.max():.3g} by the "
            "recorded log-probabilities"
        )
    ratio = np.exp(_log_ratio(loss, some))
    credit = np.concatenate([_credit(row) for row in some])
    weighty = finite & (np.abs(policy) > 3 * tolerance * scale)
    has = np.abs(rest - policy) <= tolerance * scale
    inside = np.abs(rest) <= tolerance * scale
    if not (has | inside)[weighty].all() or (not inside[weighty].any() and not has[weighty].any()):
        return None
    if not (has | inside)[finite].all():
        return None
    above, below = weighty & (credit > 0), weighty & (credit < 0)
    high, low = _limit(ratio - 1, above, inside), _limit(1 - ratio, below, inside)
    wrong_side = (weighty & inside & (((credit < 0) & (ratio > 1)) | ((credit > 0) & (ratio < 1)))).any()
    if wrong_side and not loss.bound:
        return _both_sides(loss, ratio, weighty, inside)
    if high is None or low is None:
        return None
    told = [limit.words(sign, stated) for limit, sign, stated in ((high, 1, loss.high), (low, -1, loss.low))
            if not limit.allows(stated)]  # fmt: skip
    if not told:
        return None
    swapped = len(told) == 2 and high.allows(loss.low) and low.allows(loss.high) and loss.low != loss.high
    end = ": the two sides are exchanged" if swapped else ""
    return "clip range", f"{' and '.join(told)}{end}"


def _both_sides(loss: StatedLoss, ratio: Floats, weighty: Bools, inside: Bools) -> tuple[str, str] | None:
    """That the ratio is clamped whatever the sign of the advantage, without the min of the clipped surrogate."""
    beyond = (ratio > 1 + loss.high) | (ratio < 1 - loss.low)
    if not (inside == beyond)[weighty].all():
        return None
    return "clip on both sides", (
        "are 0 wherever the ratio is out of its range, whatever the sign of the advantage: the clipped term is not "
        "compared with the other one"
    )


def _limit(distance: Floats, side: Bools, inside: Bools) -> _RatioLimit | None:
    """Where the limit lies on one side, whose tokens are `side`; None where no limit explains which are held."""
    outward = side & (distance > 0)
    inner = float(distance[outward & ~inside].max(initial=0.0))
    outer = float(distance[outward & inside].min(initial=np.inf))
    if (side & inside & (distance <= 0)).any() or inner > outer * (1 + ROUNDING):
        return None
    return _RatioLimit(inner, outer)


def _equal(values: Floats, other: Floats, finite: Bools, within: float) -> bool:
    return bool(finite.any()) and float(np.abs(values - other)[finite].max()) <= within


def _log_ratio(loss: StatedLoss, some: Sequence[Rollout]) -> Floats:
    """log ρ of the tokens of all rows, one after the other."""
    parts = []
    for row in some:
        width = token_weights.length(row)
        current = np.zeros(width) if row.current is None else np.asarray(row.current, np.float64)
        mask = token_weights.counted(row, loss, len(current))
        parts.append(np.log(token_weights.ratio_of(loss, row, np.where(mask > 0, current, 0.0), mask)))
    return np.concatenate(parts)


def _credit(row: Rollout) -> Floats:
    width = token_weights.length(row) if row.current is None else len(row.current)
    if row.advantages is None:
        return np.zeros(width)
    return np.nan_to_num(np.broadcast_to(row.advantages, width))
