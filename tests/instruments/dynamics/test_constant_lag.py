"""The largest stable lag and the onset of swings in closed form, against roots of the polynomial and the recursion."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.run import Groups, Meta, Run, no_evaluations
from grposcope.instruments.claims.dynamics import _constant_lag_radius
from grposcope.instruments.dynamics import constant_lag, refresh, stability, stability_answer
from grposcope.instruments.dynamics.stability import _constant_lag_onset

BETAS = (0.0, 0.3, 0.5, 0.8, 0.9, 0.95, 0.99)
PULLS = np.geomspace(0.004, 3.5, 14)


def roots(pull: float, beta: float, lag: int) -> np.ndarray:
    """Multipliers of x_{n+1} − (1+β)x_n + βx_{n−1} + k x_{n−K}, built another way: as a companion matrix of steps."""
    size = max(lag + 1, 2)
    step = np.eye(size, k=-1)
    step[0, 0] += 1 + beta
    step[0, 1] -= beta
    step[0, lag] -= pull
    return np.asarray(np.linalg.eigvals(step))


def swings(pull: float, beta: float, lag: int) -> bool:
    """Whether the multiplier of largest modulus is not a positive real one."""
    z = roots(pull, beta, lag)
    largest = z[np.abs(z) > np.abs(z).max() - 1e-9]
    return bool((np.abs(largest.imag) > 1e-6).any() or (largest.real < 0).any())


@pytest.mark.parametrize("beta", BETAS)
def test_the_threshold_is_where_a_root_leaves_the_circle(beta: float) -> None:
    for pull in PULLS:
        found = constant_lag.threshold(1.0, beta, float(pull))
        scan = -1
        while scan < 70 and np.abs(roots(pull, beta, scan + 1)).max() < 1 - 1e-11:
            scan += 1
        assert found == scan or (scan == 70 and found >= 70), (pull, found, scan)


def test_the_radius_is_that_of_the_recursion() -> None:
    for beta, pull, lag in ((0.0, 0.1, 5), (0.9, 0.02, 4), (0.5, 0.3, 0), (0.5, 0.3, 3)):
        assert _constant_lag_radius(1.0, beta, pull, lag) == pytest.approx(
            np.abs(roots(pull, beta, lag)).max(), abs=1e-9
        )
        x, window = [1.0] * (lag + 3), 200
        for _ in range(2 * window):
            x.append((1 + beta) * x[-1] - beta * x[-2] - pull * x[-1 - lag])
        early, late = (np.abs(x[at : at + window]).max() for at in (50, 50 + window // 2))
        rate = _constant_lag_radius(1.0, beta, pull, lag)
        assert late / early == pytest.approx(rate ** (window // 2), rel=0.3)


@pytest.mark.parametrize("beta", BETAS)
def test_the_onset_is_where_the_largest_root_turns(beta: float) -> None:
    for pull in np.geomspace(0.0015, 0.6, 9):
        found = _constant_lag_onset(1.0, beta, float(pull))
        scan = 0
        while scan < 60 and not swings(pull, beta, scan):
            scan += 1
        assert found == scan or (scan == 60 and found >= 60), (pull, found, scan)


def test_without_momentum_it_is_the_known_condition() -> None:
    for lag in (0, 1, 2, 7, 100, 5000):
        border = 2 * math.sin(math.pi / (2 * (2 * lag + 1)))
        assert constant_lag.threshold(border * (1 - 1e-9), 0.0, 1.0) == lag
        assert constant_lag.threshold(border * (1 + 1e-9), 0.0, 1.0) == lag - 1


def test_the_published_rule_is_never_unsafe_and_n_star_is_no_lag() -> None:
    """Every interval and every lag below (1 − β)/(ηκ) is stable; N* taken for a lag is too large everywhere."""
    settings, ratios = 0, []
    for beta in np.r_[np.linspace(0, 0.95, 10), 0.99]:
        for pull in np.geomspace(0.003, 1, 15):
            allowed = constant_lag.below(constant_lag.rule(1.0, beta, float(pull)))
            if allowed < 1:
                continue
            settings += 1
            lag, interval = constant_lag.threshold(1.0, beta, float(pull)), refresh.threshold(1.0, beta, float(pull))
            assert lag >= allowed
            assert interval >= allowed
            ratios.append(interval / lag)
    assert settings > 100
    assert min(ratios) > 1.2
    assert 1.3 < np.median(ratios) < 3.4


def test_a_tiny_pull_has_no_end_and_a_huge_one_no_lag() -> None:
    assert constant_lag.threshold(1e-20, 0.9, 1.0) == math.inf
    assert constant_lag.threshold(3.9, 0.9, 1.0) == -1
    assert constant_lag.below(math.inf) == math.inf
    assert constant_lag.below(5.0) == 4
    with pytest.raises(UserError, match="from 0 to 2,000"):
        _constant_lag_radius(0.1, 0.0, 1.0, 10**6)


def cycle_radius(pull: float, beta: float, interval: int, lag: int) -> float:
    """Largest |multiplier| of a cycle of `interval` steps; its frozen force is that of `lag` steps before it begins."""
    size = lag + interval + 2
    columns = []
    for start in np.eye(size):
        past = list(start)
        for _ in range(interval):
            past = [(1 + beta) * past[0] - beta * past[1] - pull * start[lag], *past[:-1]]
        columns.append(past)
    return float(np.abs(np.linalg.eigvals(np.array(columns).T)).max())


def test_with_both_a_lag_and_several_steps_the_rule_holds_at_the_oldest_gradient() -> None:
    settings = 0
    for beta, pull in ((b, k) for b in (0.0, 0.5, 0.9) for k in np.geomspace(0.005, 0.3, 6)):
        for interval, lag in ((2, 1), (4, 2), (8, 1), (3, 8), (12, 4)):
            if lag + interval - 1 < constant_lag.rule(1.0, beta, float(pull)):
                settings += 1
                assert cycle_radius(pull, beta, interval, lag) < 1
    assert settings > 40


def rule_at(lag: int, interval: int = 1, se: float = math.nan) -> stability.Stability:
    curvature = Estimate(0.0959, se, 1)
    return stability.check(stability.UpdateRule(0.1, 0.9, interval, "sgd", step=0.1, curvature=curvature, lag=lag))


def test_the_check_takes_the_threshold_that_applies() -> None:
    """N* = 38, K* = 12 and the rule's 10 of one setting."""
    assert (rule_at(0, 20).applies, rule_at(0, 20).limit, rule_at(0, 38).verdict) == (
        "refreshes", 38, "stable, near the threshold",
    )  # fmt: skip
    assert (rule_at(12).applies, rule_at(12).limit, rule_at(12).verdict) == (
        "constant lag", 12, "stable, near the threshold",
    )  # fmt: skip
    assert [rule_at(lag).verdict for lag in (6, 13)] == ["stable", "unstable"]
    assert (rule_at(4, 3).applies, rule_at(4, 3).limit, rule_at(4, 9).verdict) == ("published rule", 10, "cannot tell")
    assert rule_at(13, se=0.02).verdict == "cannot tell"
    assert "a constant lag blows up beyond 12" in stability_answer._sentence(rule_at(13))
    assert "neither N* nor K* applies" in stability_answer._sentence(rule_at(4, 9))
    assert stability_answer._numbers(rule_at(13))["published_rule"] == pytest.approx(10.43, abs=0.01)


def test_the_lag_is_the_logged_staleness() -> None:
    """Versions of other trainers are of several optimiser steps each; our own record counts steps."""
    table = {"staleness/mean": np.array([math.nan, 4.0, 4.0, 5.0])}
    for engine, interval, lag in (("grposcope", 2, 4), ("verl", 2, 8), ("verl", 1, 4)):
        run = Run(Meta(Path("a"), engine, "a", "finished"), {}, table, Groups.of([], [], []), no_evaluations())
        assert stability._logged_lag(run, interval) == lag
