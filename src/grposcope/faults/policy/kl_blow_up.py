"""The policy moved far from the one it started as, and ever faster, or very far, or for no gain; or single rows
exploded.

Asked as
    The KL explodes, or has spikes
What it is
    The policy left the region where the starting model was competent; or one token became nearly impossible, and
    the k3 estimate of that row exploded.
How it shows
    The KL of the last tenth is above its limits and several times that of the first half; or rows far beyond what a
    policy can have.
What it does to the gradient
    The KL term, where there is one, outweighs the reward; without one nothing holds the policy.
What to do
    Raise the KL coefficient or lower the learning rate, and go back to a checkpoint from before the onset. After a
    spike: read the completions of that step.
What decides
    Whether the held-out score falls with it, and whether the sampler agrees with the trainer.
Sources
    Gao, Schulman & Hilton 2022, arXiv:2210.10760
    OpenRLHF #931: https://github.com/OpenRLHF/OpenRLHF/issues/931
    Search-R1 #88: https://github.com/PeterGriffinJin/Search-R1/issues/88
    ms-swift #6550: https://github.com/modelscope/ms-swift/issues/6550
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Grade, Interval, Sign, measured
from grposcope.core.text import brief as short
from grposcope.core.text import number
from grposcope.signs import onset, run_outcome
from grposcope.signs.quantities import SHORT, MetricSeries, Quantities

FAR, VERY_FAR = 0.5, 3.0
"""Nats of KL per token: far if it also grows steeply, and very far however it got there."""

STEEP = 5.0
"""Mean KL of the last tenth over that of the first half; the ratio is 3.8 if it grows linearly."""

AWAY = 1.0
"""Nats of KL per token that have to be paid for: a note where the run gained, a warning where no gain is shown."""

NEAR = 0.25
"""Share of the last tenth's KL that the first rows' is below where the policy went away in this run."""

FIRST = 3
"""Rows whose median is the KL at the start."""

IMPOSSIBLE, TIMES = 100.0, 1000.0
"""Nats of KL per token that no policy has, if they are also TIMES the median of all rows: the estimate has exploded."""

_OF_A_PROXY = (
    "have late completions and early ones judged by something else than this reward (a held-out score, another judge, "
    "ten read by hand) before anything else: the reward rises while the policy goes far from its start, and no other "
    "score is logged, which is where a reward model is gamed. Go back to the last checkpoint that is better by that, "
    "and raise the KL coefficient or lower the learning rate from there"
)
"""What to do where the reward rises with the KL and nothing else says that it gained."""

SURE = 0.05 / 3
"""p-value of one of the three tests below which it is flagged, unless other rules share the level."""

HALF, TAIL = (0.0, 0.5), (0.9, 1.0)
"""The parts of the run that are compared."""


def _check(quantities: Quantities) -> Finding:
    """The last tenth above FAR and STEEP × the first half, or above VERY_FAR, or above AWAY from a start nearby; or
    rows that exploded."""
    kl = quantities.require_computed_kl(SHORT)
    usual = float(np.median(kl.values))
    exploded = np.flatnonzero((kl.values > IMPOSSIBLE) & (kl.values > TIMES * usual))
    if len(exploded) and float(np.median(kl.values[-len(kl) // 10 :])) < VERY_FAR:  # it came back
        return _exploded(kl, exploded, quantities.key(kl.name))
    if kl.logs is not None:
        early, late = kl.geometric_mean(HALF), kl.geometric_mean(TAIL)
        far, away, very_far = (kl.logs.level(TAIL, math.log(limit)).p_up for limit in (FAR, AWAY, VERY_FAR))
        steep = kl.logs.change(HALF, TAIL, minus=math.log(STEEP)).p_up
    else:
        first, last = kl.level(HALF), kl.level(TAIL)
        early, late = (first.value, first.se), (last.value, last.se)
        far, away, very_far = (kl.level(TAIL, limit).p_up for limit in (FAR, AWAY, VERY_FAR))
        steep = kl.change(HALF, TAIL, STEEP).p_up
    start = float(np.median(kl.values[:FIRST]))
    began_near = start < NEAR * late[0]
    blown, unpaid = max(far, steep), away if began_near else 1.0
    p = min(1.0, 3 * min(blown, very_far, unpaid))
    begins = partial(onset.since, _from_its_usual(kl, early[0]), 1, course=True, shown=False)
    evidence = (
        Sign(f"{kl.name}, first half", *early, column=kl.name),
        Sign(f"{kl.name}, last tenth", *late, f"{FAR:g} and {STEEP:g} × the first half, or {VERY_FAR:g}", kl.name),
    )
    because = f"the KL to the starting policy went from {early[0]:.3g} to {late[0]:.3g} nats per token"
    brief = quantities.went(kl.name, early[0], late[0])
    if min(blown, very_far) <= SURE:
        alone = not len(quantities.run.evaluations) and run_outcome.of_reward(quantities).direction == "up"
        remedy = _OF_A_PROXY if alone and not quantities.binary_rewards else ""
        return measured(p, because, evidence, brief=brief, begins=begins, remedy=remedy)
    begins = partial(onset.since, _from_its_usual(kl, start), 1, course=True, shown=False)
    evidence = (evidence[0], replace(evidence[1], limit=f"{AWAY:g}, and {1 / NEAR:g} × the first rows"))
    return measured(p, because, evidence, brief=brief, begins=begins, grades=("note", "warning"))


def _from_its_usual(kl: MetricSeries, usual: float) -> MetricSeries:
    """log(KL + usual), in which the way from 0 to the usual KL is short: every run makes that way in its first steps.

    The KL itself where it may be negative.
    """
    if kl.logs is None or usual <= 0:
        return kl
    return MetricSeries(kl.name, kl.steps, np.log(np.maximum(kl.values, 0) + usual))


def _exploded(kl: MetricSeries, rows: NDArray[np.int64], key: str) -> Finding:
    """Single rows whose KL is beyond what a policy can have."""
    largest, usual = float(kl.values[rows].max()), float(np.median(kl.values))
    when = Interval(int(kl.steps[rows[0]]), told="at" if len(rows) == 1 else "first at")
    on = f"{when}" if len(rows) == 1 else f"on {len(rows)} rows, {when}"
    because = (
        f"the KL to the starting policy reaches {number(largest)} nats per token {on}; its median is {number(usual)}"
    )
    evidence = (
        Sign(f"largest {kl.name}", largest, limit=f"{IMPOSSIBLE:g} nats and {TIMES:g} × the median", column=kl.name),
    )
    advice = (
        "read the completions of that step: one token that became nearly impossible makes the estimate explode; where "
        "its step shows in the gradient, clamp the log-ratio of the term, take k2 for k3, or mask that token (often a "
        "special or a padding token)"
    )
    brief = f"{key} {short(largest)} {when}"
    if len(rows) > 1:
        brief = f"{key} up to {short(largest)} in {len(rows)} of {len(kl)} {kl.rows}"
    single: tuple[Grade, Grade] | None = ("warning", "warning") if len(rows) == 1 and rows[0] < len(kl) - 1 else None
    return measured(0.0, because, evidence, remedy=advice, brief=brief, since=when, grades=single)


FAULT = Fault(
    name="kl blow-up",
    rank=50,
    remedy="raise the KL coefficient or lower the learning rate; go back to the checkpoint before the onset",
    beside="warning",
    log=LogTest(
        "kl blow-up",
        _check,
        needs=("kl",),
        statistic="mean log KL of the last tenth against limits and against the first half",
        threshold=f"> {FAR:g} nats and > {STEEP:g} × the first half, or > {VERY_FAR:g} nats; the error shrinks with n; "
        f"or > {AWAY:g} nats after a start below {NEAR:g} of that, with no gain (a warning); or a row > {IMPOSSIBLE:g} "
        f"nats and > {TIMES:g} × the median",
        limit=True,
    ),
)
