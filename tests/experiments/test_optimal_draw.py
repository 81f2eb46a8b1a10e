"""The optimal draw: its formula by Monte Carlo, its fixed point by numerical optimisation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from allocators import theory
from allocators.norms import Norms, fitted, spread_over, spread_power
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import beta

from grposcope.instruments.group_size import planning
from grposcope.lab.allocation.beta import Rates
from grposcope.maths.moments import Statistics

P = np.array([0.01, 0.05, 0.2, 0.5, 0.8, 0.92])
"""Success rates of a toy: problem x has two answers and the logit θ_x + φ, φ common, so s = (r − p)(e_x + e_0)."""
SHARE = np.full(len(P), 1 / len(P))


def gradients() -> np.ndarray:
    """g_x of the toy, (problems, problems + 1)."""
    v = P * (1 - P)
    return np.hstack([v[:, None], np.diag(v)])


def second(groups: np.ndarray) -> np.ndarray:
    """a_x(G) exactly: E‖ĝ‖² of the leave-one-out gradient K(G−K)/(G(G−1)) (e_x + e_0), over K."""
    out = np.empty((len(P), len(groups)))
    for i, p in enumerate(P):
        for j, g in enumerate(groups):
            k = np.arange(g + 1)
            chance = np.array([math.comb(g, int(n)) * p**n * (1 - p) ** (g - n) for n in k])
            out[i, j] = 2 * chance @ (k * (g - k) / (g * (g - 1))) ** 2
    return out


def mean_squared() -> float:
    return float((gradients().mean(0) ** 2).sum())


SIZES = np.array([2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64])


def test_error_times_rollouts_is_the_formula_by_monte_carlo() -> None:
    """Few-sided check of N·MSE = (A − ‖g‖²) Σ q G: draws with replacement, weights 1/q, own group sizes."""
    rng = np.random.default_rng(0)
    q, sizes, draws = np.array([0.1, 0.1, 0.2, 0.3, 0.2, 0.1]), np.array([4, 6, 3, 2, 5, 8]), 400_000
    a = np.array([second(np.array([g]))[i, 0] for i, g in enumerate(sizes)])
    predicted = theory.noise(a, SHARE, q, sizes, mean_squared())
    x = rng.choice(len(P), draws, p=q)
    k = rng.binomial(sizes[x], P[x])
    step = k * (sizes[x] - k) / (sizes[x] * (sizes[x] - 1)) * SHARE[x] / q[x]
    directions = np.hstack([np.ones((len(P), 1)), np.eye(len(P))])
    squares = ((step[:, None] * directions[x] - gradients().mean(0)) ** 2).sum(1)
    measured, error = squares.mean() * float(q @ sizes), squares.std() / math.sqrt(draws) * float(q @ sizes)
    assert abs(measured - predicted) < 4 * error
    assert error < 0.01 * predicted


def test_the_fixed_point_is_the_numerical_optimum_over_draws_and_sizes() -> None:
    found = theory.own_sizes(second(SIZES), SIZES, SHARE, mean_squared())
    table = second(SIZES)

    def value(z: np.ndarray, which: np.ndarray) -> float:
        q = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        return theory.noise(table[np.arange(len(P)), which], SHARE, q, SIZES[which], mean_squared())

    which = np.searchsorted(SIZES, found.sizes)
    numeric = minimize(value, np.zeros(len(P)), args=(which,), method="L-BFGS-B")
    assert found.noise == pytest.approx(numeric.fun, rel=1e-5)
    for x, change in itertools.product(range(len(P)), (-1, 1)):  # no other size of any problem is better, q adapted
        other = which.copy()
        other[x] = np.clip(other[x] + change, 0, len(SIZES) - 1)
        assert minimize(value, np.log(found.chances), args=(other,), method="L-BFGS-B").fun >= found.noise * (1 - 1e-9)


def test_own_sizes_beat_one_size_which_beats_uniform_draws_and_hard_problems_get_larger_groups() -> None:
    given = second(SIZES), SIZES, SHARE, mean_squared()
    own, one, plain = theory.own_sizes(*given), theory.one_size(*given), theory.uniform(*given)
    assert own.noise <= one.noise < plain.noise
    assert own.noise < 0.95 * plain.noise


def test_equal_problems_give_back_the_universal_group_size() -> None:
    """Draws are uniform then, and G* = 1 + √(Δ/V_p)."""
    sigma1, delta, squared, mean = 2.0, 3.0, 0.5, 0.1
    sizes = np.arange(2, 60)
    a = np.tile(squared + sigma1 / sizes + delta / (sizes * (sizes - 1)), (7, 1))
    share = np.full(7, 1 / 7)
    draw = theory.own_sizes(a, sizes, share, mean)
    assert draw.chances == pytest.approx(share)
    one = np.ones(1)
    # both, one, none with Σ₁ = 4(one − none), Δ = 2(both − 2 one + none)
    shared_one = squared + sigma1 / 4
    both = delta / 2 + 2 * shared_one - squared
    statistics = Statistics(both * one, shared_one * one, squared * one, mean * one, *(one,) * 6)
    assert draw.sizes[0] == planning._whole(statistics, float(planning.optimum(statistics, 0, 1)[0]), 0, 1)


def test_the_floor_bounds_weights_and_costs_little() -> None:
    given = second(SIZES), SIZES, SHARE, mean_squared()
    free, held = theory.own_sizes(*given), theory.own_sizes(*given, floor=0.2)
    assert (SHARE / held.chances).max() <= 1 / 0.2 + 1e-9 < (SHARE / free.chances).max()
    assert free.noise < held.noise < 1.1 * free.noise


def test_systematic_draws_have_the_expected_counts_and_at_most_one_draw_below_1() -> None:
    expected = np.array([0.3, 1.7, 0.05, 0.95, 2.0])
    starts = (np.arange(1000) + 0.5) / 1000
    counts = np.array([theory.systematic(expected, float(u)) for u in starts])
    assert counts.sum(1).tolist() == [5] * 1000
    assert counts.mean(0) == pytest.approx(expected, abs=2e-3)
    assert (counts >= np.floor(expected)).all()
    assert (counts <= np.ceil(expected)).all()


def test_second_moments_of_norms_are_exact_where_the_score_does_not_tell_the_reward() -> None:
    """A sharp posterior at p = ½ of the toy: ‖s‖² = ½ for both answers, ‖μ₊ − μ₋‖² = 2."""
    sharp = Rates(np.array([5e8]), np.array([5e8]))
    sizes = np.array([2, 4, 16])
    norms = Norms(separation=2.0, fisher=0.5)
    assert norms.second_moments(sharp, sizes)[0] == pytest.approx(second(sizes)[3], rel=1e-5)
    assert norms.squared(sharp)[0] == pytest.approx((gradients()[3] ** 2).sum(), rel=1e-5)


def test_norms_are_found_again_from_what_a_probe_measures() -> None:
    rng = np.random.default_rng(1)
    p = rng.beta(1, 1, 400)
    sharp = Rates(p * 1e6, (1 - p) * 1e6)
    true = Norms(separation=3.0, separation_power=-0.5, fisher=2.0, fisher_power=0.0, alignment=0.4)
    measured = (true.squared(sharp), true.noise(sharp))
    noisy = [values + rng.normal(0, 0.3 * values.std(), 400) for values in measured]
    found = fitted(sharp, *noisy, true.mean_squared(sharp))
    assert (found.separation_power, found.fisher_power) == (true.separation_power, true.fisher_power)
    assert found.separation == pytest.approx(true.separation, rel=0.1)
    assert found.alignment == pytest.approx(true.alignment, rel=0.1)


@pytest.mark.parametrize(("a", "b"), [(0.7, 2.0), (3.0, 3.0), (12.0, 0.9)])
@pytest.mark.parametrize("k", [0.5, 1.0, 2.0])
def test_moments_of_the_spread_equal_integrals_over_the_density(a: float, b: float, k: float) -> None:
    expected = quad(lambda p: (p * (1 - p)) ** k * beta.pdf(p, a, b), 0, 1, limit=200)[0]
    assert spread_power(Rates(np.array([a]), np.array([b])), k)[0] == pytest.approx(expected, rel=1e-5)


def test_the_spread_of_success_rates_is_found_without_the_bias_of_small_groups() -> None:
    p = np.random.default_rng(3).beta(0.8, 2.0, 20_000)
    k = np.random.default_rng(4).binomial(4, p).astype(float)
    assert spread_over(k, np.full(20_000, 4.0)) == pytest.approx((0.8, 2.0), rel=0.1)
