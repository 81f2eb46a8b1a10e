"""What a run's settings and its reward say of its stability: effective step, momentum, interval, curvature.

The curvature is that of the reward's time constant, κ = (1 − β)/(η(τ + lag)), along what the reward sees. Stiffer
directions decide, so a bound from it is an upper one; `training.curvature` measures those. For Adam
the step is η(1 − β₁)/√v̂, with √v̂ the root mean square of the logged gradient norms (as clipped) over all weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from grposcope.dynamics import fit
from grposcope.dynamics.oscillator import adam_step, curvature_of
from grposcope.errors import UserError
from grposcope.records import Estimate
from grposcope.runs.run import Run

UNKNOWN = Estimate(math.nan, math.nan, 0, "not measured")


@dataclass(frozen=True)
class Setting:
    """How a run is optimised. lr: mean over the run. momentum: β, or β₁ of Adam. interval: N. rms_gradient: √v̂, NaN
    where it is not needed or not known. step: effective step η of the theory, NaN with the reason in `missing`."""

    lr: float
    momentum: float
    interval: int
    optimizer: str
    rms_gradient: float = math.nan
    step: float = math.nan
    curvature: Estimate = UNKNOWN
    missing: str = ""


def setting(run: Run) -> Setting:
    """The setting of a run; UserError where its record lacks the learning rate, momentum or interval."""
    lr, momentum, interval = run.config.get("lr", run.setting("lr")), run.setting("momentum"), run.setting("interval")
    lacking = [name for name, value in (("learning rate", lr), ("momentum", momentum), ("interval", interval))
               if not isinstance(value, int | float)]  # fmt: skip
    if lacking:
        raise UserError(f"{run.meta.source} does not record its {' and '.join(lacking)}")
    rates = run.table.get("lr", np.empty(0))
    rates = rates[np.isfinite(rates)]
    found = Setting(
        lr=float(rates.mean()) if len(rates) and rates.mean() > 0 else float(lr),
        momentum=float(momentum),
        interval=int(interval),
        optimizer="adam" if str(run.setting("optimizer")).startswith("adam") else "sgd",
    )
    if found.optimizer == "sgd":
        return replace(found, step=found.lr)
    found = replace(found, rms_gradient=rms_gradient(run))
    if not found.rms_gradient > 0:
        return replace(found, missing="no gradient norms and number of weights in the record: Adam's step is unknown")
    return replace(found, step=adam_step(found.lr, found.momentum, found.rms_gradient))


def interval(run: Run) -> int:
    """Optimiser steps on each batch of rollouts, 1 where the record does not say."""
    found = run.setting("interval")
    return int(found) if isinstance(found, int | float) and found >= 1 else 1


def rms_gradient(run: Run) -> float:
    """√mean g² over steps and weights, from the logged norms held at the clip; NaN where they are not recorded."""
    weights = run.config.get("model", {}).get("parameters") if isinstance(run.config.get("model"), dict) else None
    norms = run.table.get("grad_norm", np.empty(0))
    norms = norms[np.isfinite(norms) & (norms > 0)]
    if not weights or not len(norms):
        return math.nan
    clip = run.setting("clip_grad")
    held = np.minimum(norms, clip) if clip else norms
    return float(math.sqrt(np.mean(held**2) / weights))


def with_curvature(found: Setting, exponential: fit.Fit) -> Setting:
    """The setting with the curvature that an exponential fit of the reward implies, or why there is none."""
    if found.missing:
        return found
    tau = exponential.parameters.get("time_constant")
    if tau is None or tau.flag:
        reason = tau.flag if tau is not None else exponential.flag
        return replace(found, missing=f"no time constant in the reward curve ({reason})")
    return replace(found, curvature=curvature_of(tau, found.step, found.momentum, found.interval))
