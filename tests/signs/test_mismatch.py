"""The parts that tell the causes of mismatch apart, on series whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import synthetic_series as made
from scipy.stats import spearmanr

from grposcope.faults.judge import diagnose
from grposcope.signs import mismatch
from grposcope.signs.quantities import MetricSeries, Quantities


def test_two_levels_explain_all_of_a_step() -> None:
    assert mismatch.two_levels(np.repeat([1.0, 3.0], [12, 18])) == pytest.approx(1)
    assert mismatch.two_levels(np.ones(20)) == 0
    assert mismatch.two_levels(np.arange(200.0)) == pytest.approx(0.75, abs=1e-3)  # of a straight line: 3/4


def test_straight_has_the_exponent_of_a_power() -> None:
    x = np.arange(1.0, 50)
    assert mismatch.straight(np.log(x), np.log(2 * x**1.7)) == (pytest.approx(1.7), pytest.approx(1))
    assert mismatch.straight(x, np.ones(49)) == (0.0, 0.0)


def test_mean_ratio_is_that_of_the_tokens_from_any_two() -> None:
    """Of drawn log ratios: mean ρ, k1 and k3 give the same answer, whichever of them is logged."""
    drawn = np.random.default_rng(0).normal(-0.05, 0.2, size=10_000)
    ratio, k1, k3 = np.exp(drawn).mean(), -drawn.mean(), (np.exp(drawn) - 1 - drawn).mean()
    logged = {"importance/ratio": ratio, "mismatch/k1": k1, "mismatch/k3": k3}
    for left_out in logged:
        run = made.run({name: np.full(40, value) for name, value in logged.items() if name != left_out})
        assert mismatch.mean_ratio(Quantities(run)) == (pytest.approx(ratio), pytest.approx(k1)), left_out
    assert mismatch.mean_ratio(Quantities(made.run({"mismatch/k3": np.full(40, k3)}))) is None


@pytest.mark.parametrize(("mass", "cause"), [(0.7, mismatch.TRUNCATED), (0.99, mismatch.NUMERICS)])
def test_a_sampler_that_cuts_mass_off_has_the_log_of_it_as_mean_log_ratio(mass: float, cause: str) -> None:
    k1 = np.full(40, -math.log(mass))
    run = Quantities(made.run({"mismatch/k1": k1, "mismatch/k3": mass - 1 + k1}))
    series = run.column("mismatch/k1")
    assert series is not None
    assert mismatch.signature(run, series, 0.1).fault == cause


def test_staleness_that_is_constant_or_moves_apart_from_mismatch_does_not_explain_it() -> None:
    steps = np.arange(1.0, 101)
    sizes = MetricSeries("mismatch/k3", steps, 1e-3 * 50 ** (steps / 100))
    lag = MetricSeries("staleness/mean", steps, 1 + steps / 20)
    assert mismatch.follows_staleness(sizes, lag)
    assert not mismatch.follows_staleness(sizes, MetricSeries("staleness/mean", steps, np.ones(100)))
    falling = MetricSeries("mismatch/k3", steps, sizes.values[::-1].copy())
    assert not mismatch.follows_staleness(falling, lag)


def test_at_lag_0_growth_says_that_the_lag_does_not_explain_it() -> None:
    steps = np.arange(1.0, 121)
    table = {"mismatch/k3": 1e-3 * 80 ** (steps / 120), "staleness/mean": np.zeros(120)}
    run = Quantities(made.run(table))
    series = run.column("mismatch/k3")
    assert series is not None
    found = mismatch.signature(run, series, 0.01)
    assert found.fault == mismatch.UNEXPLAINED
    assert "staleness/mean stays at 0 versions" in found.because
    del table["staleness/mean"]
    assert "does not measure staleness" in mismatch.signature(Quantities(made.run(table)), series, 0.01).because


def test_the_rank_correlation_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for levels in (1000, 4):
        x = rng.integers(levels, size=60).astype(float)
        y = x + rng.integers(levels, size=60)
        assert mismatch.spearman(x, y) == pytest.approx(spearmanr(x, y).statistic)
    assert mismatch.spearman(x, np.ones(60)) == 0


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ([1e-7, 0.05, 0.06, 0.1, 0.12, 0.17], "weights never arrived"),
        ([-4e-9, 0.07, 0.03, 0.05, 0.05, 0.09], "weights never arrived"),
        ([0.2, 0.19, 0.22, 0.28, 0.2, 0.23], "sampler mismatch"),
        ([1e-4, 2e-4, 1e-4, 3e-4, 1e-4, 2e-4], ""),
        ([1e-7, 0.05, 1e-4, 0.1, 0.12, 0.17], ""),
        ([1e-7, 0.05, 0.06], ""),
    ],
)
def test_a_distance_beyond_its_limit_is_told_on_a_few_rows(values: list[float], fault: str) -> None:
    """The first row says whether updates make it; one row within the limit, or three rows, say nothing."""
    table = {
        "step": np.arange(1.0, len(values) + 1),
        "mismatch/k3": np.array(values),
        "reward": np.full(len(values), 0.4),
    }
    present = [own for own in diagnose(made.run(table)) if own.present]
    assert [own.fault for own in present if own.fault in ("weights never arrived", "sampler mismatch")] == [
        fault
    ] * bool(fault)
    if fault:
        assert f"{min(values[1:]) if values[0] < 0.01 else min(values):.3g}" in present[0].because
