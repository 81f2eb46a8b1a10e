"""What a probe of rollouts with several turns says of credit for turns, in words and as a table."""

from __future__ import annotations

import math

from grposcope.core.text import listed, number, percent, span
from grposcope.maths.turn_moments import TurnSavings

PAYS = 0.9
"""Noise over that of a reward for the whole rollout below which a credit is worth having."""

SHOWN = 6
"""Turns whose shares are told in words."""


def sentences(turns: TurnSavings) -> list[str]:
    """Which turns make the noise of the gradient, and what each credit for turns would save."""
    base, *others = turns.ratio
    told = [f"{percent(share.value)} by turn {turn}" for turn, share in enumerate(turns.share[:SHOWN], 1)
            if math.isfinite(share.value)]  # fmt: skip
    made = []
    if told:
        made.append(f"With groups of {turns.group}, the noise of the gradient under the {base} is made {listed(told)}.")
    made += [_saving(turns, name, base) for name in others]
    if not others:
        made.append("Rollouts have one reward, at their end, so that nothing can be saved by dropping rewards of the "
                    "past; a value for each turn, by continuations or branches, may save more.")  # fmt: skip
    return made


def _saving(turns: TurnSavings, name: str, base: str) -> str:
    ratio, (low, high) = turns.ratio[name], turns.interval[name]
    if not math.isfinite(ratio.value) or math.isnan(low):
        return f"What the {name} would save is not shown by {turns.prompts} prompts; probe more."
    said = f"Credit by the {name} has {number(ratio.value)} × the noise of the {base} (95%: {span(low, high)})"
    if high < PAYS:
        return f"{said}: rewards of turns are worth having."
    if low > PAYS:
        return f"{said}: it saves little; only a value for each turn, by continuations or branches, may save more."
    return f"{said}: more prompts would show whether it is worth having."
