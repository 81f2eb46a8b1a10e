"""Second moments of the cycle map: against enumeration of a κ that takes two values, a scan, and simulated runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from grposcope.cli import main
from grposcope.core.errors import UserError
from grposcope.instruments.dynamics import refresh, sampled_refresh

GRID = [(lr, beta, nu) for lr in (0.01, 0.09, 0.5) for beta in (0.0, 0.5, 0.9) for nu in (0.0, 0.3, 0.8, 1.5)]


@pytest.mark.parametrize(("lr", "momentum", "variation"), GRID)
@pytest.mark.parametrize("interval", [1, 3, 17])
def test_second_moments_by_enumeration(lr: float, momentum: float, variation: float, interval: int) -> None:
    sides = [refresh.cycle_map(lr, momentum, 0.7, interval)]
    slope = sides[0] - refresh.cycle_map(lr, momentum, 0.35, interval)
    pair = [sides[0] + 2 * sign * variation * slope for sign in (1, -1)]  # κ (1 ± ν), also where that is below 0
    exact = sum(np.kron(m, m) for m in pair) / 2
    ours = sampled_refresh._second_moment_map(lr, momentum, 0.7, interval, variation)
    np.testing.assert_allclose(ours, exact, rtol=1e-9, atol=1e-12)
    assert sampled_refresh._growth(lr, momentum, 0.7, interval, variation) == pytest.approx(
        np.abs(np.linalg.eigvals(exact)).max() ** 0.5, rel=1e-6
    )
    if variation < 1:
        for sign, m in zip((1, -1), pair, strict=True):
            np.testing.assert_allclose(m, refresh.cycle_map(lr, momentum, 0.7 * (1 + sign * variation), interval))


@pytest.mark.parametrize(("lr", "momentum", "variation"), GRID)
def test_threshold_against_a_scan(lr: float, momentum: float, variation: float) -> None:
    last = sampled_refresh.threshold(lr, momentum, 0.7, variation)
    scan = range(1, int(refresh.threshold(lr, momentum, 0.7)) + 20)
    stable = [n for n in scan if sampled_refresh._growth(lr, momentum, 0.7, n, variation) < 1]
    assert stable == list(range(1, int(last) + 1))
    if variation == 0:
        assert last == refresh.threshold(lr, momentum, 0.7)


@pytest.mark.parametrize("variation", [0.2, 0.7, 1.3])
def test_without_momentum_it_is_divided_by_one_plus_the_square(variation: float) -> None:
    bound = 2 / (0.001 * 0.7) / (1 + variation**2)
    assert sampled_refresh.threshold(0.001, 0.0, 0.7, variation) == np.ceil(bound) - 1


def test_simulated_squares_grow_beyond_it_and_not_before() -> None:
    lr, momentum, variation, rng = 0.1, 0.5, 0.6, np.random.default_rng(0)
    last = int(sampled_refresh.threshold(lr, momentum, 0.7, variation))
    assert last + 3 < refresh.threshold(lr, momentum, 0.7)  # the mean alone would allow it
    for interval in (last - 3, last + 3):
        state = np.tile([1.0, 0.0], (200_000, 1))
        sizes = []
        for _ in range(12):
            kappa = 0.7 * (1 + variation * rng.choice([-1.0, 1.0], size=len(state)))
            maps = refresh.cycle_map(lr, momentum, kappa, interval)
            state = np.einsum("nij,nj->ni", maps, state)
            sizes.append(float((state[:, 0] ** 2).mean()))
        rate = (sizes[-1] / sizes[3]) ** (1 / 16)
        predicted = sampled_refresh._growth(lr, momentum, 0.7, interval, variation)
        assert rate == pytest.approx(predicted, rel=0.04)
        assert (rate > 1) == (interval > last)


@pytest.mark.parametrize("variation", [-0.1, float("nan"), float("inf")])
def test_a_variation_that_cannot_be_is_refused(variation: float) -> None:
    with pytest.raises(UserError, match="variation"):
        sampled_refresh.threshold(0.1, 0.0, 0.7, variation)


def test_the_command_says_what_sampled_rollouts_allow(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["stability", "--lr", "0.1", "--momentum", "0.9", "--curvature", "0.0959", "--interval", "16"]
    assert main([*given, "--curvature-variation", "0.6"]) == 0
    said = capsys.readouterr().out
    last = sampled_refresh.threshold(0.1, 0.9, 0.0959, 0.6)
    assert "varying by 60% from batch to batch" in said
    assert f"in root mean square up to an interval of {last:g}." in said
    assert main([*given, "--curvature-variation", "0.6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["threshold_sampled"] == last < 38
    for refused in ("-1", "nan"):
        assert main([*given, "--curvature-variation", refused]) == 2
    assert "variation" in capsys.readouterr().err
    assert main([*given, "--json"]) == 0
    assert "threshold_sampled" not in json.loads(capsys.readouterr().out)
