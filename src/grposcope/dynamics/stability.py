"""Update rule of a run as the stability theory needs it: effective step, momentum, refresh interval, curvature.

The effective step η of `refresh` follows from the optimizer by the table `OPTIMIZERS`. The curvature is the one that
the reward's time constant τ implies, κ = (1 − β)/(η(τ + lag)), along the direction that the reward responds to.
Stiffer directions decide, so a largest stable interval from this κ is an upper bound; `geometry.curvature` measures
the stiffest direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from grposcope.dynamics.oscillator import adam_step, curvature_of
from grposcope.errors import UserError
from grposcope.records import Estimate

if TYPE_CHECKING:
    from grposcope.runs.run import Run
    from grposcope.timeseries.curves import Fit

UNKNOWN = Estimate(math.nan, math.nan, 0, "not measured")


@dataclass(frozen=True)
class EffectiveStep:
    """Effective step η of an optimizer: a function of (lr, momentum, √v̂), and whether it depends on √v̂.

    √v̂ is the root mean square of the gradient over all weights, as the optimizer sees it (after clipping).
    """

    step: Callable[[float, float, float], float]
    needs_rms_gradient: bool


ADAM = EffectiveStep(adam_step, needs_rms_gradient=True)

OPTIMIZERS: dict[str, EffectiveStep | None] = {
    "sgd": EffectiveStep(lambda lr, momentum, rms_gradient: lr, needs_rms_gradient=False),
    "adam": ADAM,
    "adamw": ADAM,
}
"""Effective steps by the name of the optimizer that a run records; None where the theory has none for it."""


def effective_step(optimizer: str, lr: float, momentum: float, rms_gradient: float = math.nan) -> float:
    """Effective step η of the theory; UserError for an optimizer without one in OPTIMIZERS, or without its √v̂."""
    if not optimizer:
        raise UserError("cannot tell: the optimizer is not recorded, so its effective step is not known")
    known = OPTIMIZERS.get(optimizer)
    if known is None:
        raise UserError(f"cannot tell: the effective step of optimizer {optimizer} is not known")
    if known.needs_rms_gradient and not rms_gradient > 0:
        raise UserError(
            f"cannot tell: the effective step of optimizer {optimizer} needs the root mean square gradient per "
            "parameter, √mean(g²), which follows from the gradient norms and the number of weights"
        )
    return known.step(lr, momentum, rms_gradient)


@dataclass(frozen=True)
class UpdateRule:
    """Update rule of a run.

    lr: mean over the run. momentum: β of SGD, or β₁ of Adam. interval: optimizer steps N on each batch of rollouts.
    optimizer: its recorded name. rms_gradient: √v̂, NaN where it is not needed or not known. step: effective step η,
    NaN where it is not known. curvature: κ. missing: why the step or the curvature is not known; empty if both are.
    """

    lr: float
    momentum: float
    interval: int
    optimizer: str
    rms_gradient: float = math.nan
    step: float = math.nan
    curvature: Estimate = UNKNOWN
    missing: str = ""


def update_rule(run: Run) -> UpdateRule:
    """Update rule of a run, without curvature; UserError where the learning rate, momentum or interval is missing."""
    lr, momentum, interval = run.config.get("lr", run.setting("lr")), run.setting("momentum"), run.setting("interval")
    lacking = [name for name, value in (("learning rate", lr), ("momentum", momentum), ("interval", interval))
               if not isinstance(value, int | float)]  # fmt: skip
    if lacking:
        raise UserError(
            f"{run.meta.source} does not record its {' and '.join(lacking)}; give a run that does, or each setting"
        )
    rates = run.table.get("lr", np.empty(0))
    rates = rates[np.isfinite(rates)]
    name = run.setting("optimizer")
    rule = UpdateRule(
        lr=float(rates.mean()) if len(rates) and rates.mean() > 0 else float(lr),
        momentum=float(momentum),
        interval=int(interval),
        optimizer="" if name is None else str(name),
    )
    known = OPTIMIZERS.get(rule.optimizer)
    if known is not None and known.needs_rms_gradient:
        rule = replace(rule, rms_gradient=rms_gradient(run))
    try:
        return replace(rule, step=effective_step(rule.optimizer, rule.lr, rule.momentum, rule.rms_gradient))
    except UserError as error:
        return replace(rule, missing=str(error).removeprefix("cannot tell: "))


def refresh_interval(run: Run) -> int:
    """Optimizer steps on each batch of rollouts, 1 where the record does not say."""
    interval = run.setting("interval")
    return int(interval) if isinstance(interval, int | float) and interval >= 1 else 1


def rms_gradient(run: Run) -> float:
    """√mean g² over steps and weights, from the logged norms held at the clip; NaN where they are not recorded."""
    model = run.config.get("model")
    weights = model.get("parameters") if isinstance(model, dict) else None
    norms = run.table.get("grad_norm", np.empty(0))
    norms = norms[np.isfinite(norms) & (norms > 0)]
    if not weights or not len(norms):
        return math.nan
    clip = run.setting("clip_grad")
    clipped = np.minimum(norms, clip) if clip else norms
    return float(math.sqrt(np.mean(clipped**2) / weights))


def with_curvature(rule: UpdateRule, exponential: Fit) -> UpdateRule:
    """The rule with the curvature that an exponential fit of the reward implies, or why there is none."""
    if rule.missing:
        return rule
    tau = exponential.parameters.get("time_constant")
    if tau is None or tau.flag:
        reason = tau.flag if tau is not None else exponential.flag
        return replace(rule, missing=f"the reward curve has no time constant ({reason})")
    return replace(rule, curvature=curvature_of(tau, rule.step, rule.momentum, rule.interval))
