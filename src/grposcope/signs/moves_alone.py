"""A policy that goes far from its start while nothing of what is sampled changes: another one draws the rollouts."""

from __future__ import annotations

import numpy as np

from grposcope.core.text import listed
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs.quantities import LEAST, SHORT, MetricSeries, Quantities
from grposcope.signs.thresholds import MANY_STEPS

SIGNED = ("kl_k1", "kl_penalty", "kl_estimate")
"""KL estimates that may be negative, whose level does not say how far the policy went."""

FAR, TIMES = 0.1, 5.0
"""Nats of KL per token that a policy cannot go without its texts changing, if they are also TIMES those of the first
rows."""

OF_ADAPTERS = 0.03
"""The same where adapters are trained, which a sampler may be sent without: FAR in a run of them takes long."""

STILL = 0.03
"""Change of a metric of the rollouts, over its level, that is none."""

FURTHER = 1.0
"""Nats of KL per token from which what is sampled need not stand still to STILL, but only within its noise."""

FINE = 0.1
"""Standard error of a change, over the level, from which noise could hide a change of what is sampled."""


def moves_alone(quantities: Quantities, adapters: bool = False) -> str:
    """That the trained policy goes far from its start while reward, length and entropy of what is sampled stand still,
    as a clause; empty where it does not, or something moves, or too little is logged to say. adapters: whether these
    are what is trained, so that OF_ADAPTERS is far where all three stay within their noise and one stands still."""
    kl, still = distance(quantities), [quantities.get(name, LEAST) for name in ("reward", "length", "entropy")]
    seen = [quantity for quantity in still if quantity is not None]
    if kl is None or len(kl) < MANY_STEPS or still[0] is None or len(seen) < 2:
        return ""
    first, last = kl.level(EARLY).value, kl.level(LATE).value
    sent_apart = adapters and len(seen) == len(still) and _within_noise(seen) and any(map(stands, seen[1:]))
    if last < (OF_ADAPTERS if sent_apart else FAR) or last < TIMES * float(np.median(kl.values[:SHORT])):
        return ""
    if not all(map(stands, seen)) and not ((sent_apart or last > FURTHER) and _within_noise(seen)):
        return ""
    names = listed([quantities.key(quantity.name) for quantity in seen])
    return f"{quantities.went(kl.name, first, last)} nats per token, while {names} of what is sampled stand still"


def distance(quantities: Quantities) -> MetricSeries | None:
    """The KL to the start, on enough rows, by an estimate that is not negative; None where none is logged."""
    kl = quantities.get("kl", SHORT)
    return None if kl is None or kl.name in SIGNED or kl.values.min() < 0 else kl


def stands(series: MetricSeries) -> bool:
    """Whether a metric of the rollouts has the same level at both ends, to STILL of it or of its noise."""
    change, middle = series.change(EARLY, LATE), abs(float(np.median(series.values)))
    size = abs(change.value) + 2 * change.se
    return bool(size <= max(STILL * middle, 0.5 * float(np.std(series.values))))


def _within_noise(seen: list[MetricSeries]) -> bool:
    """Whether no metric changes beyond its noise, and one beside the reward is known finely enough to have shown it."""
    changes = [(series.change(EARLY, LATE), abs(float(np.median(series.values)))) for series in seen]
    fine = any(change.se <= FINE * middle for change, middle in changes[1:])
    return fine and all(abs(change.value) <= 2 * change.se or abs(change.value) <= STILL * m for change, m in changes)
