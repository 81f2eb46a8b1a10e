"""The cycle map against step-by-step recursion, and its thresholds against a scan over intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.instruments.dynamics import refresh

GRID = [(lr, beta) for lr in (0.003, 0.05, 0.4, 1.3) for beta in (0.0, 0.3, 0.9, 0.99)]


def cycle(lr: float, momentum: float, curvature: float, interval: int, x: float, v: float) -> tuple[float, float]:
    force = -curvature * x
    for _ in range(interval):
        v = momentum * v + force
        x += lr * v
    return x, v


@pytest.mark.parametrize(("lr", "momentum"), GRID)
@pytest.mark.parametrize("interval", [1, 2, 7, 60])
def test_cycle_map_is_the_recursion(lr: float, momentum: float, interval: int) -> None:
    columns = np.array([cycle(lr, momentum, 0.7, interval, *start) for start in ((1.0, 0.0), (0.0, 1.0))]).T
    one_cycle = refresh.cycle_map(lr, momentum, 0.7, interval)
    np.testing.assert_allclose(one_cycle, columns, rtol=1e-9, atol=1e-11)
    eigenvalues = np.linalg.eigvals(one_cycle)
    ours = refresh._multipliers(lr, momentum, 0.7, interval)
    assert np.sort(np.abs(ours)) == pytest.approx(np.sort(np.abs(eigenvalues)), rel=1e-7, abs=1e-9)
    assert refresh.spectral_radius(lr, momentum, 0.7, interval) == pytest.approx(np.abs(eigenvalues).max(), rel=1e-7)


@pytest.mark.parametrize(("lr", "momentum"), GRID)
@pytest.mark.parametrize("curvature", [0.02, 0.3, 1.7])
def test_threshold_and_onset_against_a_scan(lr: float, momentum: float, curvature: float) -> None:
    last = refresh.threshold(lr, momentum, curvature)
    scan = np.arange(1, 2 * int(last) + 50)
    eigenvalues = np.linalg.eigvals(refresh.cycle_map(lr, momentum, curvature, scan))
    stable = np.abs(eigenvalues).max(-1) < 1
    assert last == stable.sum()
    assert stable[: int(last)].all()  # the stable intervals are 1 … N*
    largest = eigenvalues[np.arange(len(scan)), np.abs(eigenvalues).argmax(-1)]
    turns = (np.abs(largest.imag) > 1e-9) | (largest.real < -1e-12)
    first = int(refresh.onset(lr, momentum, curvature))
    assert turns.any()
    assert scan[turns.argmax()] == first
    assert turns[first - 1 :].all()


def test_published_thresholds() -> None:
    """Measured on a 4-arm bandit with κ = 0.0959: the first unstable intervals are 209, 42, 39 and 6."""
    settings = {(0.1, 0.0): 209, (0.5, 0.0): 42, (0.1, 0.9): 39, (0.5, 0.9): 6}
    for (lr, momentum), first_unstable in settings.items():
        assert refresh.threshold(lr, momentum, 0.0959) == first_unstable - 1


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_closed_forms(momentum: float) -> None:
    k = 1e-4
    approximation = 2 * (1 - momentum) / k + 2 * momentum / (1 - momentum)
    assert refresh.threshold(k, momentum, 1.0) == pytest.approx(approximation, abs=1.01)
    assert refresh.naive_threshold(k, momentum, 1.0) == pytest.approx(2 * (1 - momentum) / k)
    assert refresh.naive_threshold(k, momentum, 0.5) == pytest.approx(4 * (1 - momentum) / k)
    assert refresh.threshold(1e-17, momentum, 1.0) == refresh.onset(1e-17, momentum, 1.0) == math.inf
    assert refresh.threshold(2 * (1 + momentum) * 1.0001, momentum, 1.0) == 0
    assert refresh.threshold(2 * (1 + momentum) * 0.9999, momentum, 1.0) >= 1
    if not momentum:
        assert refresh.onset(1.0001 * k, 0.0, 1.0) == 10000


def test_naive_rule_is_up_to_two_times_too_small() -> None:
    lrs = np.geomspace(1e-4, 0.02, 60)
    ratios = [refresh.threshold(lr, 0.9, 1.0) / refresh.naive_threshold(lr, 0.9, 1.0) for lr in lrs]
    assert min(ratios) > 0.99
    assert 1.7 < max(ratios) < 2.05


def test_importance_ratio_modes() -> None:
    assert refresh.threshold(0.1, 0.9, 1.0, "unclipped") == math.inf
    assert refresh.threshold(5.0, 0.9, 1.0, "unclipped") == 0
    assert math.isnan(refresh.threshold(0.1, 0.9, 1.0, "clipped"))
    free = refresh.margin(0.1, 0.9, 1.0, 1000, "unclipped")
    assert free.stable
    assert free.share == 0
    assert free.radius == pytest.approx(float(refresh.spectral_radius(0.1, 0.9, 1.0, 1)))
    unknown = refresh.margin(0.1, 0.9, 1.0, 10, "clipped")
    assert unknown.stable is None
    assert unknown.flag


def test_margin() -> None:
    found = refresh.margin(0.1, 0.0, 0.101, 50)
    assert found.threshold == 198
    assert found.share == pytest.approx(50 / 198)
    assert found.stable
    assert found.onset == 100
    assert found.period == math.inf
    assert not refresh.margin(0.1, 0.0, 0.101, 199).stable
    assert refresh.margin(0.1, 0.0, 0.101, 150).period == pytest.approx(300)  # sign flips every cycle
    assert refresh.margin(0.01, 0.9, 0.5, 1).period == pytest.approx(
        2 * math.pi / np.abs(np.angle(np.linalg.eigvals(refresh.cycle_map(0.01, 0.9, 0.5, 1)))).max()
    )


@pytest.mark.parametrize("interval", [0, -3, 1.5, math.nan])
def test_bad_intervals(interval: float) -> None:
    with pytest.raises(UserError, match="interval"):
        refresh.margin(0.1, 0.9, 0.5, interval)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="interval"):
        refresh.cycle_map(0.1, 0.9, 0.5, interval)


def test_bad_settings_of_a_map() -> None:
    with pytest.raises(UserError, match="momentum"):
        refresh.cycle_map(0.1, [0.5, 1.0], 0.5, 1)
    with pytest.raises(UserError, match="above 0"):
        refresh.spectral_radius(0.1, 0.5, 0.0, 1)
    with pytest.raises(UserError, match="curvature"):
        refresh.threshold(0.1, 0.5, -1.0)
    with pytest.raises(UserError, match="ratio"):
        refresh.margin(0.1, 0.9, 0.5, 1, "half")  # type: ignore[arg-type]
