"""Update rule of a run as the stability theory needs it, and the check of its refresh interval.

The effective step η of `refresh` follows from the optimizer by the table `OPTIMIZERS`. The curvature is the one that
the reward's time constant τ implies, κ = (1 − β)/(η(τ + lag)), along the direction that the reward responds to.
Stiffer directions decide, so a largest stable interval from this κ is an upper bound; `lab.train.run_curvature`
measures the stiffest direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.text import listed
from grposcope.instruments.dynamics import constant_lag, refresh, sampled_refresh
from grposcope.instruments.dynamics.oscillator import check_optimizer
from grposcope.instruments.dynamics.refresh import largest


def _adam_step(lr: float, beta1: float, rms_gradient: float, eps: float = 1e-8) -> float:
    """The heavy-ball step of Adam: η (1 − β₁) / (√v̂ + ε), with √v̂ the measured root mean square gradient.

    Assumption: √v̂ changes little over 1/(1 − β₁) steps, as late in a run or with β₂ near 1; then Adam is
    heavy ball with momentum β₁ and this step. One rms for all parameters is a mean field; per-parameter
    values give a step per parameter.
    """
    if not (rms_gradient > 0 and math.isfinite(rms_gradient)):
        raise UserError(f"rms gradient {rms_gradient:g} must be above 0; measure it as √mean(g²) over recent steps")
    if not 0 <= beta1 < 1:
        raise UserError(f"β₁ = {beta1:g} must be at least 0 and below 1")
    return lr * (1 - beta1) / (rms_gradient + eps)


def _curvature_of(time_constant: Estimate, step: float, momentum: float, interval: int = 1) -> Estimate:
    """κ = (1 − β)/(η(τ + lag)) from the time constant of a run, in the overdamped limit; lag (N − 1)/2.

    It is the curvature along the direction that the reward responds to, as uncertain as the time constant, whose
    flag is kept.
    """
    check_optimizer(step, momentum, 1.0)
    if not interval >= 1:
        raise UserError(f"interval {interval} must be a whole number of optimiser steps, at least 1")
    late = time_constant.value + (interval - 1) / 2
    value = (1 - momentum) / (step * late)
    return Estimate(value, value * time_constant.se / late, time_constant.n, time_constant.flag)


if TYPE_CHECKING:
    from grposcope.core.run import Run
    from grposcope.instruments.dynamics.curves import Fit

UNKNOWN = Estimate(math.nan, math.nan, 0, "not measured")

NEAR = 0.5
"""Share of the largest stable interval up to which an interval is called stable without a warning."""


OPTIMIZERS: dict[str, tuple[Callable[[float, float, float], float], bool]] = {
    "sgd": (lambda lr, momentum, rms_gradient: lr, False),
    "adam": (_adam_step, True),
    "adamw": (_adam_step, True),
}
"""By the name of the optimizer that a run records: effective step η, a function of (lr, momentum, √v̂), and whether it
depends on √v̂; of others the theory has none. √v̂ is the root mean square of the gradient over all weights, as the
optimizer sees it (after clipping)."""


def effective_step(optimizer: str, lr: float, momentum: float, rms_gradient: float = math.nan) -> float:
    """Effective step η of the theory; UserError for an optimizer without one in OPTIMIZERS, or without its √v̂."""
    if not optimizer:
        raise UserError("cannot tell: the optimizer is not recorded, so its effective step is unknown")
    if optimizer not in OPTIMIZERS:
        raise UserError(f"cannot tell: the effective step of optimizer {optimizer} is unknown")
    step, needs_rms_gradient = OPTIMIZERS[optimizer]
    if needs_rms_gradient and not rms_gradient > 0:
        raise UserError(
            f"cannot tell: the effective step of optimizer {optimizer} needs the root mean square gradient per "
            "parameter, √mean(g²), which follows from the gradient norms and the number of weights"
        )
    return step(lr, momentum, rms_gradient)


@dataclass(frozen=True)
class UpdateRule:
    """Update rule of a run.

    lr: mean over the run. momentum: β of SGD, or β₁ of Adam. interval: optimizer steps N on each batch of rollouts.
    lag: optimizer steps K that rollouts are old when they are first trained on, as in an asynchronous trainer.
    optimizer: its recorded name. rms_gradient: √v̂, NaN where it is not needed or not known. step: effective step η,
    NaN where it is not known. curvature: κ. source: where κ comes from: given, reward or measured. current: the part of
    a measured κ that follows every step. missing: why the step or the curvature is not known; empty if both are.
    """

    lr: float
    momentum: float
    interval: int
    optimizer: str
    rms_gradient: float = math.nan
    step: float = math.nan
    curvature: Estimate = UNKNOWN
    source: Literal["given", "reward", "measured"] = "given"
    current: Estimate = UNKNOWN
    missing: str = ""
    lag: int = 0

    @property
    def oldest(self) -> int:
        """Optimiser steps by which the oldest gradient of a cycle is late: K + N − 1."""
        return self.lag + self.interval - 1


Applies = Literal["refreshes", "constant lag", "published rule"]
"""Which threshold decides: N* where rollouts are fresh when a cycle begins, K* where every gradient is K steps old, and
the rule of arXiv:2606.30789, κη × the age of the oldest gradient < 1 − β, where both are so."""


@dataclass(frozen=True)
class Stability:
    """The check of one update rule.

    margin: where its interval stands, None where the curvature is not known. between: largest stable interval at both
    ends of the 95 % interval of the curvature, NaN where that has no standard error, ∞ where it reaches 0. verdict:
    stable, "stable, near the threshold", unstable or cannot tell. variation: standard deviation of κ between batches of
    rollouts ÷ κ, and sampled: the largest interval that such batches allow; NaN where the variation is not known.
    published: (1 − β)/(ηκ), below which [D]'s rule calls an interval or a lag stable. lag_threshold, lag_onset: the
    largest stable constant lag, and the least with which disturbances swing; all NaN where the curvature is not known.
    """

    rule: UpdateRule
    margin: refresh.Margin | None
    between: tuple[float, float]
    verdict: str
    variation: float = math.nan
    sampled: float = math.nan
    published: float = math.nan
    lag_threshold: float = math.nan
    lag_onset: float = math.nan

    @property
    def applies(self) -> Applies:
        """Which threshold decides."""
        if not self.rule.lag:
            return "refreshes"
        return "constant lag" if self.rule.interval == 1 else "published rule"

    @property
    def limit(self) -> float:
        """The largest stable value of what `applies` is about: N*, K*, or the age that [D]'s rule allows."""
        if self.applies == "refreshes":
            return math.nan if self.margin is None else self.margin.threshold
        return self.lag_threshold if self.applies == "constant lag" else constant_lag.below(self.published)


def update_rule(run: Run) -> UpdateRule:
    """Update rule of a run, without curvature; UserError where the learning rate, momentum or interval is missing."""
    lr, momentum, interval = run.config.get("lr", run.setting("lr")), run.setting("momentum"), run.setting("interval")
    rates = run.table.get("lr", np.empty(0))
    rates = rates[np.isfinite(rates)]
    if not isinstance(lr, int | float) and len(rates):
        lr = float(rates.mean())
    asked = (("learning rate (--lr)", lr), ("momentum (--momentum)", momentum), ("interval (--interval)", interval))
    lacking = [name for name, value in asked if not isinstance(value, int | float)]
    if lacking:
        raise UserError(
            f"{run.meta.source} does not record its {listed(lacking)}; give a run that records them, or, instead "
            "of a run, all settings of the optimiser and the curvature"
        )
    name = run.setting("optimizer")
    rule = UpdateRule(
        lr=float(rates.mean()) if len(rates) and rates.mean() > 0 else float(lr),
        momentum=float(momentum),
        interval=int(interval),
        optimizer="" if name is None else str(name),
        lag=_logged_lag(run, int(interval)),
    )
    if rule.optimizer in OPTIMIZERS and OPTIMIZERS[rule.optimizer][1]:
        rule = replace(rule, rms_gradient=_rms_gradient(run))
    try:
        return replace(rule, step=effective_step(rule.optimizer, rule.lr, rule.momentum, rule.rms_gradient))
    except UserError as error:
        return replace(rule, missing=str(error).removeprefix("cannot tell: "))


def _logged_lag(run: Run, interval: int) -> int:
    """Optimiser steps by which rollouts are late, from the staleness that a run logs; 0 where it logs none.

    Our own record counts optimiser steps, other trainers versions of the weights, of `interval` steps each.
    """
    logged = run.table.get("staleness/mean", np.empty(0))
    logged = logged[np.isfinite(logged)]
    if not len(logged):
        return 0
    return max(round(float(np.median(logged)) * (1 if run.meta.engine in ("", "grposcope") else interval)), 0)


def _rms_gradient(run: Run) -> float:
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


def _with_curvature(rule: UpdateRule, exponential: Fit) -> UpdateRule:
    """The rule with the curvature that an exponential fit of the reward implies, or why there is none."""
    rule = replace(rule, source="reward")
    if rule.missing:
        return rule
    tau = exponential.parameters.get("time_constant")
    if tau is None or tau.flag:
        reason = tau.flag if tau is not None else exponential.flag
        return replace(rule, missing=f"the reward curve has no time constant ({reason})")
    return replace(rule, curvature=_curvature_of(tau, rule.step, rule.momentum, rule.interval + 2 * rule.lag))


def from_reward(run: Run) -> UpdateRule:
    """Update rule of a run with the curvature that the time constant of its reward implies; UserError without reward.

    Directions that the reward does not see may be stiffer, so a stable interval from this curvature is an upper bound.
    """
    from grposcope.instruments.dynamics.curves import fit_series
    from grposcope.instruments.dynamics.forecast_summary import POINTS, reward_column
    from grposcope.instruments.dynamics.reward_curve import averaged, clean, each_batch

    rule, name = update_rule(run), reward_column(run)
    if name is None:
        raise UserError(f"{run.meta.source} records no reward")
    curve = each_batch(clean(run.table["step"], run.table[name]), rule.interval)
    return _with_curvature(rule, fit_series(averaged(curve, POINTS), "exponential"))


def check(rule: UpdateRule, ratio: refresh.Ratio = "none", variation: float = math.nan) -> Stability:
    """Check the refresh interval of a rule; `ratio`: the importance ratio that its gradient carries.

    variation: standard deviation of κ between batches ÷ κ; NaN: not known, or for a measured κ as its error says.
    """
    if not math.isfinite(rule.curvature.value):
        return Stability(rule, None, (math.nan, math.nan), "cannot tell")
    step, momentum, curvature = rule.step, rule.momentum, rule.curvature
    margin = refresh.margin(step, momentum, curvature.value, rule.interval, ratio)
    lags = {
        "published": constant_lag.rule(step, momentum, curvature.value),
        "lag_threshold": constant_lag.threshold(step, momentum, curvature.value),
        "lag_onset": _constant_lag_onset(step, momentum, curvature.value),
    }
    if rule.lag and ratio == "none":
        stale = Stability(rule, margin, (math.nan, math.nan), "cannot tell", **lags)
        between = _lags_between(stale)
        return replace(stale, between=between, verdict=_verdict_of_lag(stale, between))
    between = _between(rule, ratio)
    if math.isnan(variation) and rule.source == "measured":
        variation = curvature.se * math.sqrt(curvature.n) / curvature.value
    if ratio != "none" or math.isnan(variation):
        return Stability(rule, margin, between, _verdict(margin, between), **lags)
    sampled = sampled_refresh.threshold(step, momentum, curvature.value, variation)
    return Stability(rule, margin, between, _verdict(margin, between), variation, sampled, **lags)


def _between(rule: UpdateRule, ratio: refresh.Ratio) -> tuple[float, float]:
    if not math.isfinite(rule.curvature.se):
        return math.nan, math.nan
    low, high = rule.curvature.interval()
    least, most = (refresh.threshold(rule.step, rule.momentum, k, ratio) if k > 0 else math.inf for k in (high, low))
    return least, most


def _lags_between(check: Stability) -> tuple[float, float]:
    """`limit` of a lagged rule at both ends of the 95 % interval of the curvature."""
    rule = check.rule
    if not math.isfinite(rule.curvature.se):
        return math.nan, math.nan

    def limit(curvature: float) -> float:
        if curvature <= 0:
            return math.inf
        if check.applies == "constant lag":
            return constant_lag.threshold(rule.step, rule.momentum, curvature)
        return constant_lag.below(constant_lag.rule(rule.step, rule.momentum, curvature))

    low, high = rule.curvature.interval()
    return limit(high), limit(low)


def _constant_lag_onset(lr: float, momentum: float, curvature: float) -> float:
    """The smallest constant lag with which a disturbance swings while it dies out or grows; 0 if it does without."""
    check_optimizer(lr, momentum, curvature)
    pull = lr * curvature
    if not _monotone(pull, momentum, 0):
        return 0.0
    return largest(lambda lag: _monotone(pull, momentum, lag)) + 1


def _monotone(pull: float, momentum: float, lag: int) -> bool:
    """Whether there is a real multiplier in (β, 1) at this lag."""
    if lag == 0 and momentum == 0:
        return pull < 1  # z = 1 − k
    half = lag * (1 + momentum) / 2
    top = half + math.sqrt(max(half**2 - (lag**2 - 1) * momentum, 0.0))
    z = top / (lag + 1)
    if not 0 < z < 1:
        return False
    return pull <= math.exp((lag - 1) * math.log(z)) * (1 - z) * (z - momentum)


def _verdict_of_lag(check: Stability, between: tuple[float, float]) -> str:
    """Of a lag alone by K*; of a lag with several steps on a batch stable by [D]'s rule, which is safe, or not told."""
    age, rule = check.rule.oldest, check.rule
    if math.isfinite(between[0]) and between[0] < age <= between[1]:
        return "cannot tell"
    if age > check.limit:
        return "unstable" if rule.interval == 1 else "cannot tell"
    return "stable" if age <= NEAR * check.limit else "stable, near the threshold"


def _verdict(margin: refresh.Margin, between: tuple[float, float]) -> str:
    if margin.stable is None or (math.isfinite(between[0]) and between[0] < margin.interval <= between[1]):
        return "cannot tell"
    if not margin.stable:
        return "unstable"
    return "stable" if margin.share <= NEAR else "stable, near the threshold"
