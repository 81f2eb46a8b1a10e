"""Sparsity measures in closed form, sampled measures within their errors, updates that change a bfloat16 weight."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from grposcope.instruments.gradient.layers import (
    EntryNorms,
    _EntrySample,
    _hoyer,
    _LayerEntries,
    _moved_in_bfloat16,
    measures,
)


@pytest.mark.parametrize("n", [2, 10, 1000])
def test_extremes(n: int) -> None:
    equal, single = torch.full((n,), 0.3), torch.zeros(n)
    single[n // 2] = 5
    assert measures(equal)["gini"] == pytest.approx(0, abs=1e-6)
    assert _hoyer(equal) == pytest.approx(0, abs=1e-6)
    assert measures(single)["gini"] == pytest.approx(1 - 1 / n)
    assert _hoyer(single) == pytest.approx(1)
    assert measures(single)["top_1"] == pytest.approx(1)
    assert measures(equal)["top_20"] == pytest.approx(math.ceil(n / 5) / n)


def test_closed_forms() -> None:
    """x_i = i has Gini (n − 1)/(3n); exponential sizes ½, and Hoyer 1 − √½ in the limit."""
    n = 50
    x = torch.arange(1, n + 1)
    assert measures(x)["gini"] == pytest.approx((n - 1) / (3 * n))
    quantiles = -torch.log1p(-(torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000)
    assert measures(quantiles)["gini"] == pytest.approx(0.5, abs=1e-3)
    assert _hoyer(quantiles) == pytest.approx(1 - math.sqrt(0.5), abs=3e-3)
    # share of Σx² above the q-quantile t = −ln q of an exponential: e^{−t}(1 + t + t²/2)
    t = -math.log(0.05)
    assert measures(quantiles)["top_5"] == pytest.approx(0.05 * (1 + t + t * t / 2), abs=1e-3)


@settings(deadline=None)
@given(st.lists(st.floats(0, 10), min_size=2, max_size=12).filter(lambda v: sum(v) > 0.1))
def test_gini_is_the_mean_difference(values: list[float]) -> None:
    n, mean = len(values), sum(values) / len(values)
    slow = sum(abs(a - b) for a in values for b in values) / (2 * n * n * mean)
    assert measures(torch.tensor(values, dtype=torch.float64))["gini"] == pytest.approx(slow, abs=1e-9)


def test_of_nothing_is_nan() -> None:
    for sizes in (torch.zeros(5), torch.zeros(0)):
        assert all(math.isnan(v) for v in measures(sizes).values())


def test_updates_smaller_than_half_the_spacing_are_not_seen() -> None:
    """bfloat16 keeps 8 bits: between 1 and 2 the spacing is 2⁻⁷."""
    weights = torch.full((4,), 1.5)
    step = torch.tensor([0.49, 0.51, -0.51, 0.0]) * 2**-7
    assert _moved_in_bfloat16(weights, step) == 0.5


def entries_of(sample: _EntrySample, gradient: Tensor, weights: Tensor) -> _LayerEntries:
    """The sampled entries of the next layer, its norms from pieces of two rows."""
    pieces = [EntryNorms.of(rows) for rows in gradient.reshape(-1, gradient.shape[-1]).split(2)]
    norms = EntryNorms.together(pieces)
    before = sum(layer.entries for layer in sample.layers)
    return sample.take(gradient, before, norms, sample.sampled(weights, before))


def test_a_sample_of_everything_is_exact_and_one_of_part_says_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    layers = [torch.randn(30, 40, generator=random), torch.randn(7, generator=random) * 3]
    whole = _EntrySample(1207, learning_rate=1e-2)
    for layer in layers:
        whole.add(entries_of(whole, layer, layer.abs()))
    everything = torch.cat([layer.flatten() for layer in layers])
    measured = whole.measures()
    for name, value in measures(everything).items():
        assert measured[name].value == pytest.approx(value, rel=1e-5), name
        assert measured[name].se == 0
    step = torch.cat([layer.flatten() for layer in layers])
    assert measured["visible_sgd"].value == _moved_in_bfloat16(step.abs(), 1e-2 * step)
    assert measured["visible_adam"].value == _moved_in_bfloat16(step.abs(), 1e-2 * step.sign())

    monkeypatch.setattr("grposcope.instruments.gradient.layers.SAMPLE", 4096)
    big = torch.randn(200_000, generator=random)
    part = _EntrySample(len(big))
    for piece in big.split(33_333):
        part.add(entries_of(part, piece, piece))
    sampled, exact = part.measures(), measures(big)
    assert sampled["gini"].n == pytest.approx(len(big) / part.stride, abs=1)
    assert 3500 < sampled["gini"].n <= 4100
    assert sampled["hoyer"].value == pytest.approx(exact["hoyer"], rel=1e-5)
    for name in ("gini", "top_5", "below_0.1"):
        assert 0 < sampled[name].se < 0.02
        assert abs(sampled[name].value - exact[name]) < 4 * sampled[name].se, name


def test_standard_errors_of_a_sample_are_as_large_as_its_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of the Gini index in 40 gradients, in standard errors: about 1 in the root mean square."""
    monkeypatch.setattr("grposcope.instruments.gradient.layers.SAMPLE", 2048)
    random, errors = torch.Generator().manual_seed(0), []
    for _ in range(40):
        gradient = torch.randn(300, 100, generator=random) ** 3
        sample = _EntrySample(gradient.numel())
        sample.add(entries_of(sample, gradient, gradient))
        measured = sample.measures()["gini"]
        errors.append((measured.value - measures(gradient.abs())["gini"]) / measured.se)
    assert 0.7 < math.sqrt(sum(error**2 for error in errors) / len(errors)) < 1.4


def test_a_sample_meets_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 128th entry of a matrix with 576 columns lies in nine columns; a sample must not come from those alone."""
    monkeypatch.setattr("grposcope.instruments.gradient.layers.SAMPLE", 16384)
    gradient = torch.ones(128 * 16384 // 576, 576)
    gradient[:, ::64] = 10.0
    sample = _EntrySample(gradient.numel())
    sample.add(entries_of(sample, gradient, gradient))
    measured, exact = sample.measures(), measures(gradient)
    for name in ("gini", "top_5", "top_20"):
        assert abs(measured[name].value - exact[name]) < 4 * measured[name].se + 1e-3, name
