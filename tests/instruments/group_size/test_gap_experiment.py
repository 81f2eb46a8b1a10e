"""What `experiments/ustat_gap.py` compares simulations with: covariances, best constants, the other objective."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np
import pytest
from places import ROOT


@pytest.fixture
def gap(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    return importlib.import_module("ustat_gap")


@pytest.mark.parametrize("method", ["group", "oracle", "reinforce", "best"])
def test_noise_and_mean_of_a_step(gap: ModuleType, method: str) -> None:
    world, runs = gap.World(1), 200_000
    drawn = world.sampled(np.tile(world.best + 0.3, (runs, 1)), method, 2, np.random.default_rng(0))
    exact = world.noise(world.best + 0.3, method, 2)
    found = np.cov(drawn.T)
    assert np.abs(found - exact).max() < 0.02 * np.trace(exact)
    assert np.trace(found) == pytest.approx(np.trace(exact), rel=0.02)
    error = np.abs(drawn.mean(0) - world.policy.gradient(world.best + 0.3)) / (drawn.std(0) / runs**0.5)
    assert error.max() < 4


def test_the_best_constants_have_the_least_limit(gap: ModuleType) -> None:
    world = gap.World(0)

    def limit(constants: np.ndarray) -> float:
        _, sigma, _ = world.parts(world.best, constants)
        return float(np.trace(world.weight @ sigma))

    least = limit(world.constants)
    for k in range(3):
        for side in (-0.01, 0.01):
            assert limit(world.constants + side * np.eye(3)[k]) > least
    p = world.policy.chances(world.best)
    value = (p * world.policy.rewards).sum(1)
    assert limit(value) == pytest.approx(float(np.trace(world.weight @ world.parts(world.best)[1])))
    assert limit(value) > 1.01 * least  # the value is not the best


def test_standardized_advantages_climb_the_field_that_they_are_said_to(gap: ModuleType) -> None:
    world, runs = gap.World(2), 200_000
    at = world.best + 0.4
    drawn = world.sampled(np.tile(at, (runs, 1)), "standard", 8, np.random.default_rng(1))
    error = np.abs(drawn.mean(0) - world.standardized(at, 8)) / (drawn.std(0) / runs**0.5)
    assert error.max() < 4
    end = world.root(lambda t: world.standardized(t, 8), world.best)
    assert np.abs(world.standardized(end, 8)).max() < 1e-9
    assert world.policy.objective(world.best) - world.policy.objective(end) > 1e-6
