"""[D] arXiv:2606.30789: a damped oscillator, the refresh threshold, group size as temperature, closed-form curves.

[D] arXiv:2606.30789: its rule κηK < 1 − μ for late rollouts, against exact maps; known second-hand.
"""

from __future__ import annotations

import math

import numpy as np

from grposcope.core.errors import UserError
from grposcope.instruments.claims.claim import Derived, Drawing, PaperClaim, PaperVerdict, Tell
from grposcope.instruments.claims.enumerated_policy import Array
from grposcope.instruments.dynamics import constant_lag, refresh
from grposcope.instruments.dynamics.bandit import Bandit
from grposcope.instruments.dynamics.fit import fit
from grposcope.instruments.dynamics.oscillator import Oscillator, check_optimizer


def _published_rule(tell: Tell) -> Derived:
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
            radius = _constant_lag_radius(1.0, momentum, float(pull), int(allowed))
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


def _constant_lag_radius(lr: float, momentum: float, curvature: float, lag: int) -> float:
    """Largest |multiplier| of a step at this lag, from the roots of its polynomial; below 1 is stable."""
    check_optimizer(lr, momentum, curvature)
    if not (0 <= lag <= 2000 and int(lag) == lag):
        raise UserError(f"lag {lag} must be a whole number of optimiser steps from 0 to 2,000")
    polynomial = np.zeros(int(lag) + 3)
    polynomial[0] = 1.0
    polynomial[1] -= 1 + momentum
    polynomial[2] += momentum
    polynomial[int(lag) + 1] += lr * curvature
    return float(np.abs(np.roots(polynomial)).max())


def _bandit(arms: int, kl: float) -> Bandit:
    return Bandit(np.random.default_rng(0).random(arms), kl=kl)


def _stiffest(bandit: Bandit) -> Array:
    return np.asarray(np.linalg.eigh(-bandit.hessian(bandit.fixed_point())[0])[1][None, :, -1])


def _oscillator(tell: Tell) -> Derived:
    """Distance to the closed form on both sides of ζ = 1 as the step shrinks."""
    bandit = _bandit(4, 0.3)
    kappa, direction, said, good = float(bandit.stiffness()[0]), _stiffest(bandit), [], True
    for ratio in (1.5, 1.0, 0.5):
        errors = []
        for beta in (0.8, 0.975):
            lr = ((1 - beta) / (2 * ratio)) ** 2 / ((1 + beta) / 2) / kappa
            model = Oscillator.from_optimizer(lr, beta, kappa, start=1e-3, plateau=0.0)
            steps = int(6 / math.sqrt(model.stiffness / model.mass) * max(ratio, 1.0))
            begin = bandit.fixed_point() + 1e-3 * direction
            run = bandit.simulate(lr, beta, 1, None, steps, start=begin, keep_path=True)
            assert run.path is not None
            along = ((run.path[0] - bandit.fixed_point()) * direction).sum((-2, -1))
            errors.append(float(np.abs(along - model.trajectory(run.steps)).max()) / 1e-3)
        good = good and errors[1] < errors[0] / 4
        said.append(f"ζ = {ratio:g}: {errors[0]:.1%} at β = 0.8, {errors[1]:.1%} at 0.975")
    return Derived(
        "holds" if good else "does not hold",
        f"distance to the closed form, relative to the displacement: {'; '.join(said)}",
        "a softmax bandit in exact expectation",
    )


def _first_unstable(bandit: Bandit, lr: float, momentum: float, most: int, cycles: int = 240) -> float:
    """The smallest refresh interval up to `most` at which a run leaves the fixed point; ∞ if none does."""

    def leaves(intervals: Array) -> Array:
        every = max(1, int(intervals.min()) // 6)
        begin = bandit.fixed_point() + 1e-4 * _stiffest(bandit)
        run = bandit.simulate(
            lr, momentum, intervals, None, cycles * int(intervals.max()), start=begin, every=every, keep_path=True
        )
        assert run.path is not None
        distance = np.linalg.norm(run.path - bandit.fixed_point(), axis=(-2, -1))
        n = distance.shape[1]
        early, late = distance[:, int(0.4 * n) : int(0.6 * n)].max(1), distance[:, int(0.8 * n) :].max(1)
        return np.asarray((late > 1e-2) | ((late > early) & (late > 1e-8)))

    low, high = 0, most
    while high - low > 1:
        grid = np.unique(np.linspace(low + 1, high, 12).astype(int))
        bad = leaves(grid)
        if not bad.any():
            return math.inf if high == most else float(high)
        at = int(bad.argmax())
        high, low = int(grid[at]), int(grid[at - 1]) if at else low
    return float(high)


def _threshold(tell: Tell) -> Derived:
    """First interval that is lost, against the spectral radius of the cycle map and the lag rule."""
    cases = ((4, 0.3, 0.5, 1.0), (8, 0.8, 0.7, 0.3), (8, 0.8, 0.9, 0.05), (2, 0.5, 0.9, 0.3), (16, 0.3, 0.0, 1.5))
    said, good, shares = [], True, []
    points: list[tuple[str, float, float, float]] = []
    for arms, kl, momentum, lr in cases:
        bandit = _bandit(arms, kl)
        kappa = float(bandit.stiffness()[0])
        predicted = int(refresh.threshold(lr, momentum, kappa)) + 1
        tell(f"refresh threshold of a bandit of {arms} arms")
        measured = _first_unstable(bandit, lr, momentum, 3 * predicted + 5)
        good = good and measured == predicted
        shares.append(measured / refresh.naive_threshold(lr, momentum, kappa))
        points += [("measured", predicted, measured, 0.0), ("lag rule", predicted, measured / shares[-1], 0.0)]
        said.append(f"{measured:.0f} ({predicted})")
    return Derived(
        "holds" if good else "does not hold",
        f"first unstable interval, with the prediction in brackets: {', '.join(said)}; these are {min(shares):.2f} to "
        f"{max(shares):.2f} times the rule of thumb 2(1 − β)/(ηκ)",
        "five softmax bandits in exact expectation; sampled runs diverge earlier (dynamics_threshold.py)",
        Drawing("first unstable interval by the cycle map", "first unstable interval", sorted(points), log=True),
    )


GROUPS = (2, 4, 8, 16, 32)


def _noisy(advantage: str, runs: int) -> tuple[Array, Array, dict[int, tuple[Array, Array]]]:
    """Variance around the plateau and its error by group size, (len(GROUPS),), and the mean curves with theirs."""
    bandit = Bandit([0.2, 0.5, 0.8, 0.4], kl=0.4)
    variance, error, curves = [], [], {}
    for group in GROUPS:
        run = bandit.simulate(0.05, 0.5, 2, group, 1200, np.arange(runs), binary=True, advantage=advantage, every=20,
                              keep_path=True)  # fmt: skip
        assert run.path is not None
        late = run.path[:, -30:]
        each = ((late - late.mean((0, 1))) ** 2).sum((-2, -1)).mean(1)
        variance.append(each.mean())
        error.append(each.std(ddof=1) / math.sqrt(runs))
        early = run.value[:, 1:20]
        curves[group] = (early.mean(0), early.std(0, ddof=1) / math.sqrt(runs))
    return np.array(variance), np.array(error), curves


def _temperature(tell: Tell, runs: int = 300) -> Derived:
    """The exponent of the noise in G, for G ≥ 8."""
    tell(f"noise around the plateau: {runs} bandit runs at each of {len(GROUPS)} group sizes")
    variance, error, _ = _noisy("leave_one_out", runs)
    tail = np.array(GROUPS) >= 8
    (slope, _), cov = np.polyfit(
        np.log(GROUPS)[tail], np.log(variance)[tail], 1, w=(variance / error)[tail], cov="unscaled"
    )
    se = float(cov[0, 0] ** 0.5)
    return Derived(
        "holds" if abs(slope + 1) < 0.15 else "does not hold",
        f"variance ∝ G^({slope:.2f} ± {se:.2f}) for G ≥ 8",
        f"a softmax bandit, {runs} runs at each group size",
        Drawing(
            "group size G",
            "variance of the logits around the plateau",
            [("leave-one-out", g, float(v), float(e)) for g, v, e in zip(GROUPS, variance, error, strict=True)],
            log=True,
        ),
    )


def _invariance(tell: Tell, runs: int = 300) -> Derived:
    """Distance of the mean curves from that of the largest group, in standard errors."""
    limit, growths = 4.5, {}
    points: list[tuple[str, float, float, float]] = []
    for name in ("leave_one_out", "standardized"):
        tell(f"mean curves with {name.replace('_', '-')} advantages")
        curves = _noisy(name, runs)[2]
        end, end_error = curves[GROUPS[-1]]
        points = [
            (f"G = {group}", 20.0 * (index + 1), float(mean[index]), float(error[index]))
            for group, (mean, error) in curves.items()
            for index in range(len(mean))
        ]
        growths[name] = max(
            float(np.abs((mean - end) / np.hypot(error, end_error)).max())
            for group, (mean, error) in curves.items()
            if group != GROUPS[-1]
        )
    own, scaled = growths["leave_one_out"], growths["standardized"]
    verdict: PaperVerdict = "does not hold" if own > limit else "holds in part" if scaled > limit else "holds"
    return Derived(
        verdict,
        f"largest distance of a mean curve from that of G = {GROUPS[-1]}, in standard errors: {own:.1f} with "
        f"leave-one-out advantages, {scaled:.1f} with standardized ones",
        f"a softmax bandit, {runs} runs at each of {len(GROUPS)} group sizes",
        Drawing("step", "expected reward, standardized advantages", points),
    )


def _curves(tell: Tell, runs: int = 12) -> Derived:
    """R² of the inertial curve and of two rivals on learning curves, and which is the highest."""
    bandit = Bandit(np.random.default_rng(3).random((64, 8)), kl=0.05)
    families, r2 = ("inertial", "exponential"), {}
    points: list[tuple[str, float, float, float]] = []
    for group in (8, 16):
        run = bandit.simulate(2.0, 0.9, 1, group, 400, np.arange(runs), every=2)
        points += [
            (f"reward, G = {group}", float(step), float(value), 0.0)
            for step, value in zip(run.steps[1::4], run.observed[0, 1::4], strict=True)
        ]
        curve = fit(run.steps[1:], run.observed[0, 1:], "inertial").predict(run.steps[1::4])
        points += [
            (f"inertial, G = {group}", float(x), float(y), 0.0) for x, y in zip(run.steps[1::4], curve, strict=True)
        ]
        for name in families:
            fitted = [fit(run.steps[1:], series[1:], name).r2 for series in run.observed]
            mean, se = float(np.mean(fitted)), float(np.std(fitted, ddof=1) / math.sqrt(runs))
            r2[name, group] = (mean, se)
        tell(f"closed-form curves at G = {group}")
    fits = all(r2["inertial", group][0] - 1.96 * r2["inertial", group][1] >= 0.91 for group in (8, 16))
    alone = all(r2["inertial", group][0] - r2["exponential", group][0] > 0.01 for group in (8, 16))
    shown = "; ".join(
        f"{name} " + ", ".join(f"{r2[name, group][0]:.3f} ± {r2[name, group][1]:.3f}" for group in (8, 16))
        for name in families
    )
    return Derived(
        "holds" if fits and alone else "holds in part" if fits else "does not hold",
        f"R² at G = 8 and 16: {shown}"
        + ("" if alone else "; R² does not distinguish the inertial curve from the exponential"),
        f"64 softmax bandits of 8 arms trained together, {runs} seeds at each group size",
        Drawing("step", "reward of one run and its fit", points),
    )


CLAIMS = (
    PaperClaim(
        "oscillator", "d", "Near its fixed point a run is a damped oscillator, with momentum as mass",
        "holds if the distance to the closed form falls more than fourfold as 1 − β falls eightfold, on both sides of "
        "ζ = 1", True, "dynamics_bandit.py", _oscillator,
    ),
    PaperClaim(
        "refresh-threshold", "d", "Runs diverge beyond a refresh interval N*",
        "holds if the first unstable interval is the predicted one, to the step, in every case", True,
        "dynamics_bandit.py", _threshold,
    ),
    PaperClaim(
        "temperature", "d", "The group size is a temperature: noise around the plateau falls as 1/G",
        "holds if the exponent lies within 0.15 of −1 for G ≥ 8", False, "dynamics_temperature.py", _temperature,
    ),
    PaperClaim(
        "invariance", "d", "The mean curve does not depend on the group size",
        "holds if no mean curve is more than 4.5 standard errors from that of the largest group; in part if that is so "
        "only for leave-one-out advantages", False, "dynamics_invariance.py", _invariance,
    ),
    PaperClaim(
        "closed-form", "d", "Closed forms fit reward curves with R² ≥ 0.91",
        "holds if the 95% interval of the inertial curve's R² is above 0.91 and the exponential's is lower by more "
        "than 0.01; in part if only the first is true", False, "dynamics_closed_form.py", _curves,
    ),
    PaperClaim(
        "published-rule", "d", "Rollouts that are K steps late are safe while κηK < 1 − μ",
        "holds if no refresh interval and no constant lag within the rule is unstable on a grid of settings", True,
        "dynamics_constant_lag.py", _published_rule,
    ),
)  # fmt: skip
