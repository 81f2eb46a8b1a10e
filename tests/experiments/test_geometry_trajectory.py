"""Sketched gradients: right on average, with an error that falls as the sketch grows, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from geometry_trajectory import Trajectory

from grposcope.instruments.gradient import spectrum


def gradients(steps: int, seed: int = 0) -> list[dict[str, torch.Tensor]]:
    """Gradients of two layers that wander in three directions, rows of a layer nearly parallel."""
    random = torch.Generator().manual_seed(seed)
    base = [{"a": torch.outer(torch.randn(40, generator=random), torch.randn(50, generator=random)),
             "b": torch.randn(700, generator=random)} for _ in range(3)]  # fmt: skip
    mix = torch.randn(steps, 3, generator=random) * torch.tensor([3.0, 1.0, 0.3])
    return [{n: sum(m[k] * base[k][n] for k in range(3)) for n in "ab"} for m in mix]  # type: ignore[misc]


def exact_gram(steps: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    rows = torch.stack([torch.cat([g.flatten() for g in one.values()]) for one in steps]).double()
    return rows @ rows.mT


def filled(size: int, seed: int, steps: list[dict[str, torch.Tensor]], window: int = 64) -> Trajectory:
    kept = Trajectory(window, size, seed)
    for one in steps:
        kept.add(one.items())
    return kept


def test_inner_products_are_unbiased_and_their_error_falls_like_the_root() -> None:
    steps = gradients(4)
    true = exact_gram(steps)
    scale = (true.diagonal()[:, None] * true.diagonal()).sqrt()
    spread = {}
    for size in (64, 1024):
        errors = torch.stack([(filled(size, seed, steps).gram() - true) / scale for seed in range(60)])
        se = errors.std(0) / 60**0.5
        assert (errors.mean(0).abs() < 4.5 * se + 1e-9).all()
        spread[size] = float(errors.square().mean().sqrt())
        assert spread[size] < 2 * (2 / size) ** 0.5
    assert spread[1024] < spread[64] / 2.5  # 1/√16 = ¼, with room for chance


def test_spectrum_is_that_of_the_whole_gradients() -> None:
    steps = gradients(12)
    true = spectrum.from_gram(exact_gram(steps))
    sketched = filled(8192, 0, steps).spectrum()
    np.testing.assert_allclose(sketched.values[:3], true.values[:3], rtol=0.1)
    assert sketched.ranks()["stable"] == pytest.approx(true.ranks()["stable"], rel=0.1)
    unit = filled(8192, 0, steps).spectrum(unit=True)
    assert unit.frobenius == pytest.approx(12**0.5)


def test_only_the_window_is_kept_and_steps_are_sketched_alike() -> None:
    steps = gradients(9)
    kept = filled(256, 0, steps, window=4)
    assert kept.gram().shape == (4, 4)
    again = Trajectory(4, 256, 0)
    again.add(steps[-1].items())
    torch.testing.assert_close(again.gram()[0, 0], kept.gram()[-1, -1])
