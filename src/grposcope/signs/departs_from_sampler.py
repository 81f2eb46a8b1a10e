"""An update goes ever farther from the policy that drew its batch, while the reward stands still: that policy is old.

A sound trainer draws each batch with the weights of the step before, so that the KL between both is of one step, from
the first batch to the last. Where the sampler keeps its first weights it is of the whole way: it grows by orders of
magnitude, tokens are clipped and norms grow with it, and rewards stay those of the first policy. A learning rate that
is too high does the first too, but moves the reward. (Reported so: verl-omni #552, verl #7495.)
"""

from __future__ import annotations

import math

import numpy as np

from grposcope.core.finding import Finding, Sign, measured
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs import run_outcome
from grposcope.signs.moves_alone import stands
from grposcope.signs.quantities import LEAST, MetricSeries, Quantities

FARTHER = 30.0
"""Late over early KL to the policy that sampled, at least."""

FOLLOWED = 1.5
"""Late over early share of clipped tokens, at least; of gradient norms where no clipping is logged, its square."""

EXPLAINS = (
    "gradient explosion", "clip saturation", "gradient spikes", "no learning", "reward decline", "high learning rate",
)  # fmt: skip
"""Faults that follow from an update on the rollouts of an old policy."""


def check(quantities: Quantities, fault: str) -> Finding | None:
    """That the updates depart from the sampler while the reward stands still; None where one of these is not so."""
    kl, reward = quantities.get("kl_old", LEAST), quantities.get("reward", LEAST)
    if kl is None or reward is None or run_outcome.of_run(quantities.run).direction == "up":
        return None
    course = MetricSeries(kl.name, kl.steps, np.abs(kl.values)).logs
    followed = _followed(quantities)
    if course is None or followed is None or not stands(reward):
        return None
    p = course.change(EARLY, LATE, minus=math.log(FARTHER)).p_up
    if p >= 0.5:
        return None
    first, last = math.exp(course.level(EARLY).value), math.exp(course.level(LATE).value)
    went = quantities.went(kl.name, first, last)
    because = (
        f"{went} nats per token, and {followed}, while the reward stands still: updates go ever farther from the "
        "policy that drew their batch, as when the sampler never receives new weights"
    )
    times = f"{kl.name}, last {1 - LATE[0]:.0%} over first {EARLY[1]:.0%}"
    evidence = Sign(times, last / first, limit=f"counts from {FARTHER:g} ×", column=kl.name)
    return measured(p, because, (evidence,), fault, explains=EXPLAINS, brief=went)


def _followed(quantities: Quantities) -> str | None:
    """That clipping grew with it, or gradient norms where it is not logged, as a clause; None where it did not."""
    clipped, norm = quantities.get("clip", LEAST), quantities.get("grad_norm", LEAST)
    series, times = (clipped, FOLLOWED) if clipped is not None else (norm, FOLLOWED**2)
    if series is None or series.change(EARLY, LATE, times).p_up > 0.05:
        return None
    return quantities.went(series.name, series.level(EARLY).value, series.level(LATE).value)
