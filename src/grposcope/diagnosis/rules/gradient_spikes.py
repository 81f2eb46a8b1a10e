"""Gradient spikes and gradient explosion: norms far above their running median, or far larger late than early."""

from __future__ import annotations

import math

import numpy as np
from scipy.ndimage import median_filter
from scipy.special import betainc, stdtr

from grposcope.diagnosis.findings import OWN_METHOD, Evidence, Rule, RuleResult, cannot_tell
from grposcope.diagnosis.quantities import LEAST, MetricSeries, Quantities
from grposcope.timeseries.change import EARLY, LATE
from grposcope.timeseries.noise import Array

GROWN = 5.0
"""Late over early gradient norm that is an explosion."""

SPIKE = 3.0
"""A spike is at least this multiple of the running median."""

TAILS = 5
"""Degrees of freedom of Student's t that log gradient norms are judged by: heavier tails than normal."""


def check(quantities: Quantities) -> RuleResult:
    """Spikes of the gradient norm above its running median, or a late norm above GROWN × the early one."""
    norm = quantities.require("grad_norm")
    positive = norm.values > 0
    if positive.sum() < LEAST:
        return cannot_tell("the gradient norm is 0 on nearly all rows")
    p, multiples, rows = _spikes(norm.values[positive])
    steps = norm.steps[positive][rows]
    logs = MetricSeries(norm.name, norm.steps[positive], np.log(norm.values[positive]))
    early, late = (math.exp(logs.level(span).value) for span in (EARLY, LATE))
    growth = logs.change(EARLY, LATE, minus=math.log(GROWN))
    window = quantities.run.window
    limit = f"each row is the mean of {window} steps, which damps spikes" if window > 1 else f"counts from {SPIKE:g} ×"
    largest = float(multiples[0]) if len(multiples) else 1.0
    evidence = (
        Evidence("largest gradient norm over its running median", largest, limit=limit, column=norm.name),
        Evidence("spikes", float(len(multiples)), column=norm.name),
        Evidence(f"grad_norm, last {1 - LATE[0]:.0%} over first {EARLY[1]:.0%}",
                 late / early, limit=f"explosion from {GROWN:g} ×", column=norm.name),
    )  # fmt: skip
    if growth.p_up < min(p, 0.25):
        because = f"the gradient norm grew from {early:.3g} to {late:.3g}"
        return RuleResult(
            min(1.0, 2 * growth.p_up), because, evidence, norm.onset(), "gradient explosion", beside="warning",
            instead="failing",
        )  # fmt: skip
    p = min(1.0, 2 * p)
    if p >= 0.5:
        return RuleResult(p, "gradient norms have no spikes out of the ordinary", evidence)
    because = f"there are {len(multiples)} gradient spikes, the largest {largest:.3g} × the running median"
    return RuleResult(p, because, evidence, int(steps.min()) if len(steps) else None)


def _spikes(norms: Array) -> tuple[float, Array, np.ndarray]:
    """P-value of the second largest deviation of log norms, the spikes' multiples (largest first), and their rows.

    Two spikes are needed, since one odd batch in a run is chance: P(at least 2 of n exceed z) under Student's t.
    """
    logs = np.log(norms)
    deviation = logs - median_filter(logs, 31, mode="nearest")
    scale = max(1.4826 * float(np.median(np.abs(deviation))), 1e-3)
    order = np.argsort(-deviation)
    if deviation[order[1]] < math.log(SPIKE):
        return 1.0, np.empty(0), np.empty(0, np.int64)
    tail = stdtr(TAILS, -deviation[order] / scale)
    p = float(betainc(2, len(logs) - 1, tail[1]))  # of the binomial distribution
    rows = order[(deviation[order] > math.log(SPIKE)) & (tail <= max(tail[1], 1e-4))]
    return p, np.exp(deviation[rows]), rows


RULE = Rule(
    mode="gradient spikes",
    needs=("grad_norm",),
    statistic="second largest log norm above the running median of 31 rows in robust σ; late − ρ × early norm",
    threshold=f"P(2 of n exceed it under Student's t, {TAILS} df) and {SPIKE:g} ×, growing with log n; explosion "
    f"{GROWN:g} ×",
    source=OWN_METHOD,
    advice="clip the gradient (max_grad_norm), lower the learning rate, look at these steps' batches",
    check=check,
    instead="warning",
    costs="single updates outweigh the others",
)
