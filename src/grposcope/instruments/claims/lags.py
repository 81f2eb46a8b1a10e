"""[D] arXiv:2606.30789: its rule κηK < 1 − μ for late rollouts, against exact maps; known second-hand."""

from __future__ import annotations

import numpy as np

from grposcope.instruments.claims.claim import Derived, Drawing, Tell
from grposcope.instruments.dynamics import constant_lag, refresh


def published_rule(tell: Tell) -> Derived:
    """Every setting within the rule, by the spectral radius of the refresh cycle and of a step with a constant lag."""
    settings = unsafe = 0
    over, lags, wrong = [], [], []
    points: list[tuple[str, float, float, float]] = []
    for momentum in (0.0, 0.3, 0.5, 0.8, 0.9, 0.95, 0.99):
        for pull in np.geomspace(0.003, 1, 15):
            bound = constant_lag.rule(1.0, momentum, float(pull))
            allowed = constant_lag.below(bound)
            if not 1 <= allowed <= 200:
                continue
            settings += 1
            radius = constant_lag.radius(1.0, momentum, float(pull), int(allowed))
            cycle = float(refresh.spectral_radius(1.0, momentum, float(pull), int(allowed)))
            unsafe += radius >= 1 or cycle >= 1
            interval, lag = refresh.threshold(1.0, momentum, float(pull)), constant_lag.threshold(1.0, momentum, pull)
            over.append(interval / allowed)
            lags.append(lag / allowed)
            wrong.append(interval / lag)
            if momentum in (0.0, 0.9):
                points += [(f"N*, β = {momentum:g}", bound, interval, 0.0), (f"K*, β = {momentum:g}", bound, lag, 0.0)]
    return Derived(
        "holds" if not unsafe else "does not hold",
        f"in {settings} settings within the rule none is unstable"
        if not unsafe
        else f"{unsafe} of {settings} unstable",
        "exact maps of heavy ball, refreshes and constant lags; the largest stable refresh interval is "
        f"{min(over):.1f} to {max(over):.1f} times what the rule allows, the largest stable lag {min(lags):.1f} to "
        f"{max(lags):.1f} times, and N* taken for a lag {min(wrong):.1f} times too large or more",
        Drawing("(1 − β)/(ηκ), steps", "largest stable interval or lag, steps", sorted(points), log=True),
    )
