"""The counted advantage formulas equal those of the objectives, rollout by rollout."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from grposcope.instruments.dynamics import count_advantages
from grposcope.lab.objectives import advantages as reference

SETTINGS: list[tuple[str, dict[str, float]]] = [
    *((name, {}) for name in count_advantages.FORMULAS),
    ("standardized", {"ddof": 0, "eps": 0.0}),
    ("batch_standardized", {"ddof": 0, "eps": 1e-2}),
    ("whitened", {"ddof": 0, "eps": 0.0}),
    ("mean_normalized", {"eps": 0.1}),
]


def drawn(seed: int, contexts: int, outcomes: int, runs: int, group: int) -> np.ndarray:
    """Which outcome each rollout got, (C, G, R); the last runs are dead groups."""
    picked = np.random.default_rng(seed).integers(0, outcomes, (contexts, group, runs))
    picked[..., -2:] = 1
    return picked


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
@pytest.mark.parametrize("group", [2, 5])
@pytest.mark.parametrize("per_run", [False, True])
def test_equal_to_the_objectives(name: str, settings: dict[str, float], group: int, per_run: bool) -> None:
    contexts, outcomes, runs = 3, 4, 6
    values = np.random.default_rng(1).random((contexts, outcomes, runs if per_run else 1))
    values[:, 2] = values[:, 0]  # two outcomes that pay the same
    picked = drawn(group, contexts, outcomes, runs, group)
    counts = (picked[:, None] == np.arange(outcomes)[:, None, None]).sum(2).astype(float)
    ours = count_advantages.formula(name, **settings)(values, counts, group)
    spread = np.broadcast_to(values, counts.shape)
    for run in range(runs):
        rewards = torch.tensor(np.take_along_axis(spread[..., run], picked[..., run], 1))  # (C, G)
        expected = getattr(reference, name)(rewards, **settings).numpy()
        found = np.take_along_axis(ours[..., run], picked[..., run], 1)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in count_advantages.FORMULAS if n != "none"])
@pytest.mark.parametrize("value", [0.1, 1 / 3, 7.7])
def test_dead_groups_are_exactly_zero(name: str, value: float) -> None:
    counts = np.array([[[3.0], [4.0]]])
    given = count_advantages.formula(name)(np.full((1, 2, 1), value), counts, 7)
    assert (given == 0).all()
    if name != "mean_normalized":
        assert (count_advantages.formula(name)(np.full((1, 2, 1), value), counts, 7) == 0).all()


def test_names_that_sum_to_zero_do() -> None:
    random = np.random.default_rng(2)
    values, counts = random.random((2, 4, 50)), random.multinomial(6, [0.25] * 4, (2, 50)).swapaxes(1, 2).astype(float)
    for name in count_advantages.FORMULAS:
        total = np.abs((counts * count_advantages.formula(name)(values, counts, 6)).sum(1)).max()
        assert (total < 1e-10) == count_advantages.FORMULAS[name].sums_to_zero
