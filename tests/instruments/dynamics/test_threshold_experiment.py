"""What `experiments/dynamics_threshold.py` computes: second moments of many directions, curvatures, its networks."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np
import pytest
from places import ROOT

from grposcope.instruments.dynamics import sampled_refresh


@pytest.fixture
def threshold(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    return importlib.import_module("dynamics_threshold")


@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("interval", [1, 5])
def test_second_moments_of_many_directions(threshold: ModuleType, momentum: float, interval: int) -> None:
    """Against the spectral radius of the mean of M ⊗ M, each map by stepping through its cycle."""
    rng, d, lr = np.random.default_rng(3), 3, 0.3
    factors = rng.normal(size=(40, d, 2))
    samples = factors @ factors.transpose(0, 2, 1) / 2
    total = 0.0
    for one in samples:
        state = np.eye(2 * d)
        force = -one @ state[:d]
        for _ in range(interval):
            state[d:] = momentum * state[d:] + force
            state[:d] = state[:d] + lr * state[d:]
        total = total + np.kron(state, state) / len(samples)
    exact = np.abs(np.linalg.eigvals(total)).max() ** 0.5
    mean, tensor = samples.mean(0), np.einsum("bij,bkl->ijkl", samples, samples) / len(samples)
    assert threshold.second_moment(lr, momentum, interval, mean, tensor) == pytest.approx(exact, rel=1e-3)


def test_one_direction_is_the_formula_of_the_package(threshold: ModuleType) -> None:
    mean, tensor = np.full((1, 1), 0.7), np.full((1, 1, 1, 1), 0.49 * (1 + 0.6**2))
    for momentum, interval in ((0.0, 4), (0.5, 9), (0.9, 6)):
        ours = threshold.second_moment(0.1, momentum, interval, mean, tensor)
        assert ours == pytest.approx(sampled_refresh._growth(0.1, momentum, 0.7, interval, 0.6), rel=1e-3)


def test_sampled_curvatures_average_to_the_fisher_matrix(threshold: ModuleType) -> None:
    world = threshold.World(threshold.SETTINGS["D"], 0)
    scores = world.scores()
    samples = threshold.pool(world.here, scores, world.setting.kl, 3, np.random.default_rng(0))
    exact = world.setting.kl * np.einsum("pk,pki,pkj->ij", world.here, scores, scores)
    error = np.abs(samples.mean(0) - exact) / (samples.std(0) / len(samples) ** 0.5 + 1e-12)
    assert error.max() < 5


def test_gradients_of_the_network(threshold: ModuleType) -> None:
    rng = np.random.default_rng(0)
    network = threshold.Network(rng, 8)
    theta, weights = network.start + 0.1, rng.normal(size=(1, 4, 8))
    ours = network.pull(theta[None], weights)[0]
    for k in (0, 77, 143, 144, 250, 335):
        step = 1e-6 * np.eye(len(theta))[k]
        slope = ((network.logits((theta + step)[None]) - network.logits((theta - step)[None])) * weights).sum() / 2e-6
        assert ours[k] == pytest.approx(slope, rel=1e-6, abs=1e-8)
