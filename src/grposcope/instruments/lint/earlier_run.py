"""What an earlier run on the same task tells the checks of settings beside its rows."""

from __future__ import annotations

import math

from grposcope.core.errors import UserError
from grposcope.core.run import Run
from grposcope.instruments.dynamics.stability import UpdateRule, from_reward


def update_rule(run: Run) -> tuple[UpdateRule | None, str]:
    """The update rule of an earlier run with its curvature, and where that comes from or why there is none."""
    try:
        rule = from_reward(run)
    except UserError as error:
        return None, str(error)
    if not math.isfinite(rule.curvature.value):
        return rule, f"its curvature is unknown: {rule.missing}"
    return rule, f"from the time constant of the reward of {run.meta.name}, which stiffer directions may undercut"
