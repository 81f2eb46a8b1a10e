"""A reward has far less of the weight in the advantage than was asked for, though it varies.

What it is
    Within groups it hardly varies beside the others, so that its share of the standardized advantage is small.
How it shows
    The share of the effective weight λσ/σ_S within groups, with its interval, is below a quarter of what was
    configured.
What it does to the gradient
    Its part of the gradient is that share; the policy hardly learns from it.
What to do
    Standardize each reward before adding them, or raise the weight of the muted one.
What decides
    grposcope rewards RUN: effective weights with intervals.
Sources
    arXiv:2602.05863
    arXiv:2601.05242 (GDPO)
"""

from __future__ import annotations

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.text import percent, visible
from grposcope.faults.checks.effective_weights import CHECK
from grposcope.instruments import has
from grposcope.maths.component_weights import MUTED
from grposcope.signs.quantities import Quantities

REACHED = 0.95
"""A reward whose mean is above this share of its largest value has little left to teach."""


def _check(quantities: Quantities) -> Finding:
    """Rewards of single functions whose effective share lies, with its interval, below MUTED of what was asked for."""
    if not has("rewards"):
        if len(quantities.components()) < 2 and not quantities.run.groups.components:
            return fact(False, "there is one reward")
        return cannot_tell("the module instruments.rewards is not installed", "groups")
    import numpy as np

    from grposcope.instruments.rewards import found

    what = found.of_run(quantities.run)
    if what is None and len(quantities.components()) > 1:
        return cannot_tell("the rewards of single rollouts are not logged", "groups")
    if what is None or not what.weights.live:
        few = [
            component
            for name in quantities.run.table
            if name.startswith("component/") and (component := quantities.column(name))
        ]
        return cannot_tell(quantities.absent_components(2)) if len(few) > 1 else fact(False, "there is one reward")
    largest = dict(zip(what.rollouts.given.names, np.nanmax(what.rollouts.given.rewards, 0).tolist(), strict=True))
    muted = [
        component for component in what.weights.components
        if component.muted and not (largest[component.name] > 0 and component.mean > REACHED * largest[component.name])
    ]  # fmt: skip
    if not muted or not what.rollouts.known:
        return fact(False, "every reward whose weight is known has about the weight it was given")
    worst = min(muted, key=lambda component: component.share.value / component.intended_share)
    name = visible(worst.name, 40)
    asked, has_now = percent(worst.intended_share), percent(worst.share.value, 1)
    evidence = tuple(
        Sign(f"share of {component.name} in the advantage", component.share.value, component.share.se,
                 f"limit {MUTED:g} × {percent(component.intended_share)}")
        for component in muted
    )  # fmt: skip
    because = f"{name} should have {asked} of the weight in the advantage and has {has_now}"
    return fact(True, because, evidence, brief=f"{visible(name, 30)} weighs {has_now}, not {asked}")


FAULT = Fault(
    name="muted component",
    rank=230,
    remedy="standardize each reward before adding them, or raise the weight of the one that hardly counts (see "
    "grposcope rewards)",
    effect="the policy hardly learns from it",
    beside="note",
    instead="warning",
    log=LogTest(
        "muted component",
        _check,
        needs=("groups",),
        statistic="share of the effective weight λσ/σ_S of a component within groups",
        threshold=f"its 95% interval is below {MUTED:g} × the configured share of |λ|",
    ),
    settings=CHECK,
)
