"""Ranks in closed form, the two ways to get singular values, and the bounds of a spectrum known in part."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from grposcope.instruments.gradient import spectrum

close = 1e-9


@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_equal_values_have_every_rank_n(n: int) -> None:
    computed = spectrum.ranks(np.full(n, 3.0))
    for name in ("stable", "participation", "entropy", "entropy_sq", "threshold_0.1", "threshold_0.01"):
        assert computed[name] == pytest.approx(n, rel=close), name
    for q in spectrum.ENERGIES:
        assert computed[f"energy_{q}"] == math.ceil(q / 100 * n - 1e-9)


def test_two_values_in_closed_form() -> None:
    a, b = 3.0, 1.0
    computed = spectrum.ranks([b, a])
    p, q = a / (a + b), a * a / (a * a + b * b)
    assert computed["stable"] == pytest.approx((a * a + b * b) / a**2, rel=close)
    assert computed["participation"] == pytest.approx((a * a + b * b) ** 2 / (a**4 + b**4), rel=close)
    assert computed["entropy"] == pytest.approx(p**-p * (1 - p) ** -(1 - p), rel=close)
    assert computed["entropy_sq"] == pytest.approx(q**-q * (1 - q) ** -(1 - q), rel=close)
    assert [computed[f"energy_{e}"] for e in (90, 95, 99)] == [1, 2, 2]
    assert computed["threshold_0.1"] == 2


def test_geometric_spectrum_in_closed_form() -> None:
    """σ_i = r^i: Σσ² = 1/(1−r²), the energy left after k values is r^{2k}."""
    r = 0.8
    computed = spectrum.ranks(r ** np.arange(400))
    assert computed["stable"] == pytest.approx(1 / (1 - r**2), rel=close)
    assert computed["participation"] == pytest.approx((1 + r**2) / (1 - r**2), rel=close)
    for q in (90, 95, 99):
        assert computed[f"energy_{q}"] == math.ceil(math.log(1 - q / 100) / (2 * math.log(r)))
    for tau in (0.1, 0.01):
        assert computed[f"threshold_{tau}"] == 1 + math.floor(math.log(tau) / math.log(r))
    # geometric weights p_i = (1−x) x^i have entropy −ln(1−x) − x ln x/(1−x)
    for name, x in (("entropy", r), ("entropy_sq", r**2)):
        assert computed[name] == pytest.approx(math.exp(-math.log(1 - x) - x * math.log(x) / (1 - x)), rel=close)


@settings(deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20), st.floats(1e-30, 1e30))
def test_ranks_know_neither_scale_nor_order_nor_zeros(values: list[float], scale: float) -> None:
    one = spectrum.ranks(values)
    for other in ([v * scale for v in values], values[::-1], [*values, 0.0]):
        computed = spectrum.ranks(other)
        for name in ("stable", "participation", "entropy", "entropy_sq"):
            assert computed[name] == pytest.approx(one[name], rel=1e-9)
    assert 1 - 1e-9 <= one["stable"] <= one["participation"] + 1e-9
    assert one["participation"] <= one["entropy_sq"] * (1 + 1e-9) <= one["entropy"] * (1 + 2e-9)


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [math.nan, 1.0], [math.inf]])
def test_no_rank_of_nothing(values: list[float]) -> None:
    computed = spectrum.ranks(values)
    assert set(computed) == set(spectrum.NAMES)
    assert all(math.isnan(v) for v in computed.values())


def gradient_like(rows: int, columns: int, seed: int, decay: float = 1.0) -> Tensor:
    """A random matrix whose singular values fall like i^−decay."""
    random = torch.Generator().manual_seed(seed)
    left, _ = torch.linalg.qr(torch.randn(rows, rows, generator=random, dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(columns, columns, generator=random, dtype=torch.float64))
    n = min(rows, columns)
    return left[:, :n] @ torch.diag(torch.arange(1, n + 1, dtype=torch.float64) ** -decay) @ right[:, :n].T


@pytest.mark.parametrize("shape", [(30, 50), (50, 30), (40, 40), (1, 9)])
def test_exact_spectrum_is_that_of_the_svd(shape: tuple[int, int]) -> None:
    matrix = gradient_like(*shape, seed=1)
    computed = spectrum.exact(matrix)
    assert computed.complete
    assert computed.left_out == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(computed.values, torch.linalg.svdvals(matrix).numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(170, 260), (260, 170)])
@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0, 2.0])
def test_leading_values_and_every_rank_lie_within_the_bounds(shape: tuple[int, int], decay: float) -> None:
    matrix = gradient_like(*shape, seed=3, decay=decay)
    true = torch.linalg.svdvals(matrix).numpy()
    part = spectrum.leading(matrix, count=16)
    assert not part.complete
    assert (part.values <= true[:16] + 1e-12 * true[0]).all()  # but for rounding
    assert part.values[0] + part.slack[0] >= true[0] * (1 - 1e-12)
    if decay == 2:  # so steep that a round of iteration finds the first values
        assert (part.slack[:3] < 0.01 * part.values[:3]).all()
    if decay:  # equal values have no gap to converge over
        assert (part.values + part.slack >= true[:16] - 1e-12).all()
    assert part.left_out == pytest.approx(1 - (part.values**2).sum() / (true**2).sum(), abs=1e-9)
    full = spectrum.ranks(true)
    for name, (low, high) in part.bounds().items():
        if decay or name in ("stable", "participation", "entropy_sq"):
            assert low * (1 - 1e-9) <= full[name] <= high * (1 + 1e-9), name


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=6, max_size=40).filter(lambda v: max(v) > 0.01),
    st.integers(1, 5),
    st.floats(0, 0.2),
)
def test_bounds_enclose_every_spectrum_with_those_leading_values(values: list[float], known: int, give: float) -> None:
    true = np.sort(np.array(values))[::-1]
    lower = true[:known] * (1 - give)
    computed = spectrum._bounds(lower, true[:known] - lower, len(true), float(np.linalg.norm(true)))
    full = spectrum.ranks(true)
    for name, (low, high) in computed.items():
        if name != "entropy":
            assert low * (1 - 1e-9) - 1e-9 <= full[name] <= high * (1 + 1e-9) + 1e-9, name
    rest, total = true[known:], true.sum()
    if rest.size and known and give == 0 and rest[0] * full["entropy"] / total < 1:
        low, high = computed["entropy"]  # of σ itself, into which rounding of the energy enters by its root
        assert low * (1 - 1e-6) <= full["entropy"] <= high * (1 + 1e-6)


def test_the_rest_is_spread_over_values_known_too_low() -> None:
    """Ritz values 1 and 0.1 of a spectrum 1, 0.4, 0.4, 0.4: the upper bounds must allow for the error of the second."""
    true = np.array([1.0, 0.4, 0.4, 0.4])
    computed = spectrum._bounds(np.array([1.0, 0.1]), np.array([0.0, 0.3]), 4, float(np.linalg.norm(true)))
    for name in ("participation", "entropy_sq"):
        assert computed[name][1] == pytest.approx(spectrum.ranks(true)[name])


def test_bounds_close_when_nothing_is_left_out() -> None:
    values = np.array([3.0, 2.0, 1.0])
    computed = spectrum._bounds(values, np.zeros(3), 10, float(np.linalg.norm(values)))
    for name, value in spectrum.ranks(values).items():
        assert computed[name] == pytest.approx((value, value)), name


@pytest.mark.parametrize("count", [8, 40])
def test_a_factor_scales_the_spectrum_and_leaves_the_ranks(count: int) -> None:
    part = spectrum.leading(3 * gradient_like(170, 260, seed=5), count)
    larger = part.times(10.0)
    np.testing.assert_allclose(larger.values, 10 * part.values)
    np.testing.assert_allclose(larger.slack, 10 * part.slack)
    assert (larger.size, larger.frobenius) == (part.size, pytest.approx(10 * part.frobenius))
    assert larger.ranks() == pytest.approx(part.ranks())
    assert larger.bounds()["stable"] == pytest.approx(part.bounds()["stable"])


@pytest.mark.parametrize("shape", [(170, 260), (260, 170), (40, 60)])
def test_scaled_rows_need_not_be_made(shape: tuple[int, int]) -> None:
    matrix = gradient_like(*shape, seed=4)
    scale = torch.linspace(-1, 2, shape[0], dtype=torch.float64)
    scale[::7] = 0
    computed, wanted = spectrum.leading(matrix, 8, scale=scale), torch.linalg.svdvals(scale[:, None] * matrix).numpy()
    assert computed.size == min(int((scale != 0).sum()), shape[1])
    assert computed.frobenius == pytest.approx(float(np.linalg.norm(wanted)))
    assert (abs(computed.values - wanted[: len(computed.values)]) <= computed.slack + 1e-9).all()
    assert abs(computed.values[0] - wanted[0]) < 1e-3 * wanted[0]


def test_small_matrices_are_done_exactly() -> None:
    assert spectrum.leading(gradient_like(20, 190, seed=0), count=4).complete


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_a_matrix_without_a_spectrum_says_so(value: float) -> None:
    matrix = torch.full((180, 200), value)
    for computed in (spectrum.exact(matrix), spectrum.leading(matrix, count=4)):
        assert all(math.isnan(v) for v in computed.ranks().values())


@pytest.mark.parametrize("shape", [(300, 400), (400, 300)])
def test_a_matrix_in_16_bits_has_the_spectrum_of_its_numbers(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spectrum, "PIECE", 8 * 300 * 70)  # some rows at a time
    random = torch.Generator().manual_seed(0)
    matrix = (torch.randn(shape, generator=random) @ torch.diag(0.9 ** torch.arange(shape[1]))).bfloat16()
    scale = torch.rand(shape[0], generator=random)
    scale[::7] = 0.0
    for weights in (None, scale):
        half, full = (spectrum.leading(one, 16, scale=weights) for one in (matrix, matrix.float()))
        assert half.values == pytest.approx(full.values, rel=1e-5)
        assert half.frobenius == pytest.approx(full.frobenius, rel=1e-5)
