"""Too many tokens have no gradient because the clip of the ratio holds them.

Asked as
    The clip ratio is high
What it is
    The policy moves far within a batch, or sampler and trainer disagree before any update.
How it shows
    The late clip fraction is above 0.3 of tokens.
What it does to the gradient
    Clipped tokens teach nothing; what remains is the part of the batch that moved least.
What to do
    Fewer updates per batch or a lower learning rate; check that sampler and trainer agree.
What decides
    The clip fraction of the first update of a batch: above 0 there, sampler and trainer disagree.
Sources
    method of this project
"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, measured
from grposcope.core.metrics import VARIANTS
from grposcope.maths.timeseries import level as levels
from grposcope.maths.timeseries.change import LATE
from grposcope.signs.quantities import SHORT, Quantities, too_few

HELD = 0.3
"""Share of tokens held by the clip that is too much."""


def check(quantities: Quantities) -> Finding:
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
    evidence = (Sign(f"clip fraction, last {1 - LATE[0]:.0%}", share, over.se, f"limit {HELD:g}", column),)
    because = f"{share:.1%} of tokens are clipped"
    return measured(over.p_up, because, evidence, brief=because)


FAULT = Fault(
    name="clip saturation",
    rank=190,
    remedy="use fewer updates per batch or a lower learning rate; check that sampler and trainer agree",
    effect="clipped tokens teach nothing",
    log=LogTest(
        "clip saturation",
        check,
        needs=("clip_fraction",),
        statistic="late clip fraction − limit",
        threshold=f"> {HELD:g} of tokens",
        limit=True,
    ),
)
