"""What division by the group's standard deviation does at a group size, in words: for rewards of two values."""

from __future__ import annotations

from collections.abc import Sequence

from grposcope.core.text import number, percent
from grposcope.maths import standardized_weight

HARD = 0.1
"""Success rate of the hard prompts that are compared with prompts solved half of the time."""


def effect(group: int, success: float | None = None) -> str:
    """What standardizing does at this group size; success: the mean success rate, where it is known."""
    if group <= standardized_weight.SCALE_ALONE:
        return (
            f"at G = {group} division by the group's standard deviation changes the scale of the gradient and nothing "
            "else, because every live group of rewards of two values has the same deviation"
        )
    shown = [HARD] if success is None or abs(success - HARD) < 0.02 else sorted({HARD, success})
    parts = [
        f"{number(float(standardized_weight.relative(p, group)))} × at a success rate of {percent(p)}" for p in shown
    ]
    return (
        f"at G = {group} division by the group's standard deviation makes a prompt count {' and '.join(parts)}, "
        "relative to one that is solved half of the time; leave-one-out advantages leave both alike"
    )


def rows(groups: Sequence[int], successes: Sequence[float]) -> list[tuple[str, ...]]:
    """A row per group size, and one for ever larger ones: w_G(p)/w_G(½) at these success rates."""
    finite = [
        (str(group), *(f"{float(standardized_weight.relative(p, group)):.2f}" for p in successes)) for group in groups
    ]
    return [*finite, ("limit (arcsin)", *(f"{standardized_weight.limit(p):.2f}" for p in successes))]
