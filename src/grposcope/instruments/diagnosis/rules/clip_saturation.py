"""Clip saturation: too many tokens have no gradient because the clip of the ratio holds them."""

from __future__ import annotations

import numpy as np

from grposcope.core.metrics import VARIANTS
from grposcope.instruments.diagnosis.findings import OWN_METHOD, Evidence, Rule, RuleResult, cannot_tell
from grposcope.instruments.diagnosis.quantities import SHORT, Quantities, too_few
from grposcope.maths.timeseries import level as levels
from grposcope.maths.timeseries.change import LATE

HELD = 0.3
"""Share of tokens held by the clip that is too much."""


def check(quantities: Quantities) -> RuleResult:
    """The late share of tokens held by the clip, both sides, above HELD."""
    both = quantities.get("clip_fraction", SHORT)
    low, high = quantities.run.table.get("clip_low"), quantities.run.table.get("clip_high")
    values = both.values if both is not None else low + high if low is not None and high is not None else None
    values = values[np.isfinite(values)] if values is not None else None
    if values is None or len(values) < SHORT:
        rows = max((len(one) for name in VARIANTS["clip"] if (one := quantities.column(name))), default=0)
        because = too_few(rows, "clip fraction", SHORT) if rows else "no clip fraction is logged"
        return cannot_tell(because, *(() if rows else ("clip_fraction",)))
    over = levels.level(values, LATE, HELD)
    share = over.value + HELD
    column = both.name if both is not None else "clip_high"
    evidence = (Evidence(f"clip fraction, last {1 - LATE[0]:.0%}", share, over.se, f"limit {HELD:g}", column),)
    because = f"{share:.1%} of tokens are clipped"
    return RuleResult(over.p_up, because, evidence, brief=because)


RULE = Rule(
    mode="clip saturation",
    needs=("clip_fraction",),
    statistic="late clip fraction − limit",
    threshold=f"> {HELD:g} of tokens",
    source=OWN_METHOD,
    advice="use fewer updates per batch or a lower learning rate; check that sampler and trainer agree",
    check=check,
    limit=True,
    costs="clipped tokens teach nothing",
)
