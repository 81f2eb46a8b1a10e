"""Cancelling components: the components of the reward vary while their sum does not."""

from __future__ import annotations

import math

import numpy as np

from grposcope.diagnosis.findings import OWN_METHOD, Evidence, Rule, RuleResult, cannot_tell
from grposcope.diagnosis.quantities import SHORT, Quantities, too_few
from grposcope.timeseries import level as levels

CANCELLED = 0.1
"""Spread of the summed reward below this share of its components' spread: they cancel."""

WHOLE = (0.0, 1.0)
"""The whole run."""


def check(quantities: Quantities) -> RuleResult:
    """Spread of the reward below CANCELLED × the root of the sum of its components' squared spreads."""
    parts = quantities.components("component_std")
    spread = quantities.get("reward_std", SHORT)
    if len(quantities.components()) < 2 and len(parts) < 2:
        rows = [len(one) for name in quantities.run.table
                if name.startswith("component/") and (one := quantities.column(name))]  # fmt: skip
        few = too_few(max(rows), "reward components", SHORT) if len(rows) > 1 else ""
        return cannot_tell(few or "fewer than two reward components are logged", "components")
    if len(parts) < 2 or spread is None:
        if spread is None and quantities.logged("reward_std"):
            return cannot_tell(quantities.absence("reward_std", SHORT), "component_std")
        return cannot_tell("the spread of the reward or of its components is not logged", "component_std")
    table = quantities.run.table
    squares = np.sum([table[f"component_std/{name}"] ** 2 for name in parts], axis=0)
    excess = table[spread.name] - CANCELLED * np.sqrt(squares)
    excess = excess[np.isfinite(excess)]
    if len(excess) < SHORT or not np.nansum(squares):
        return cannot_tell("too few rows have the spread of all components", "component_std")
    test, total = levels.level(excess, WHOLE), spread.level(WHOLE)
    of_parts = math.sqrt(float(np.nanmean(squares)))
    limit = f"limit {CANCELLED:g} × the components' {of_parts:.3g}"
    evidence = (Evidence(spread.name, total.value, total.se, limit, spread.name),)
    but = "but their sum only by" if total.value < of_parts else "and their sum by"
    because = f"the components' rewards vary by {of_parts:.2g} within the batch {but} {total.value:.2g}"
    return RuleResult(test.p_down, because, evidence)


RULE = Rule(
    mode="cancelling components",
    needs=("component_std", "reward_std"),
    statistic="spread of the reward − ρ × root of the sum of squared spreads of its components",
    threshold=f"below {CANCELLED:g} ×",
    source=OWN_METHOD,
    advice="look at signs and weights of the reward functions; normalise each before the sum",
    check=check,
    limit=True,
    beside="warning",
)
