"""Association within groups: moments and p-values by enumeration, its size on nulls, and what it leaves out."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from grposcope.maths import within_groups


def enumerated(columns: np.ndarray, reward: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Scores (F, M) of every column under all permutations of rewards inside groups."""
    places = [np.flatnonzero(group == own) for own in np.unique(group)]
    scores = []
    for orders in product(*(list(permutations(own)) for own in places)):
        moved = reward.copy()
        for own, order in zip(places, orders, strict=True):
            moved[own] = reward[list(order)]
        centred = moved - np.array([reward[group == own].mean() for own in group])
        scores.append(columns.T @ centred)
    return np.array(scores).T


@pytest.fixture
def tiny() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    group = np.repeat([0, 1, 2], [4, 3, 4])
    columns = np.column_stack([rng.integers(2, size=11), rng.normal(size=11), rng.integers(2, size=11)])
    return columns.astype(np.float32), rng.integers(2, size=11).astype(float) + np.arange(11) % 2, group


def test_moments_are_those_of_all_permutations(tiny: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    columns, reward, group = tiny
    every = enumerated(columns.astype(float), reward, group)
    found = within_groups.association(columns, reward, group, group, 99, np.random.default_rng(0), least=0)
    np.testing.assert_allclose(every.mean(1), 0, atol=1e-6)
    centred = reward - np.array([reward[group == own].mean() for own in group])
    np.testing.assert_allclose(found.z, (columns.T @ centred) / every.std(1), rtol=1e-4, atol=1e-6)


def test_p_values_are_shares_of_all_permutations(tiny: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    columns, reward, group = tiny
    every = enumerated(columns.astype(float), reward, group)
    z = np.abs(every / every.std(1)[:, None])
    found = within_groups.association(columns, reward, group, group, 4000, np.random.default_rng(1), least=0)
    exact = [(z.max(0) >= abs(own) - 1e-5).mean() for own in found.z]
    np.testing.assert_allclose(found.p, exact, atol=0.03)


def test_permutations_stay_in_their_groups() -> None:
    sizes = np.array([2, 3, 2])
    values = np.array([1.0, 2, 10, 20, 30, 100, 200])
    drawn = within_groups._permuted(values, sizes, 50, np.random.default_rng(0))
    for first, last in ((0, 2), (2, 5), (5, 7)):
        np.testing.assert_array_equal(np.sort(drawn[first:last], axis=0), np.tile(values[first:last, None], 50))
    assert len(np.unique(drawn, axis=1).T) > 10


def test_dead_groups_and_rows_without_a_reward_do_not_count() -> None:
    rng = np.random.default_rng(2)
    columns = rng.normal(size=(24, 3)).astype(np.float32)
    group, reward = np.repeat(np.arange(6), 4), np.tile([0.0, 1, 1, 0], 6)
    some = within_groups.association(columns[:16], reward[:16], group[:16], group[:16], 9, rng, least=0)
    reward[16:20], reward[20:] = 1.0, np.nan
    found = within_groups.association(columns, reward, group, group, 9, rng, least=0)
    assert (found.live, found.rows) == (4, 16)
    np.testing.assert_allclose(found.z, some.z, rtol=1e-5)


def test_nothing_varies() -> None:
    same, group = np.ones((8, 2), np.float32), np.repeat([0, 1], 4)
    found = within_groups.association(same, np.ones(8), group, group, 9, np.random.default_rng(0))
    assert (found.live, found.z.tolist(), found.p.tolist()) == (0, [0, 0], [1, 1])


def test_what_pays_in_one_prompt_is_no_habit() -> None:
    """A column that varies in one prompt of twenty has no z, however much it goes with the reward there."""
    group = np.repeat(np.arange(20), 8)
    reward = np.tile([0.0, 1] * 4, 20)
    own = np.where(group == 7, reward, 0)
    found = within_groups.association(np.column_stack([own, reward]).astype(np.float32), reward, group, group, 99,
                                      np.random.default_rng(0))  # fmt: skip
    assert found.z[0] == 0
    assert found.z[1] > 5


def test_clustered_errors_are_those_of_independent_prompts() -> None:
    rng = np.random.default_rng(4)
    slopes, errors = [], []
    for _ in range(200):
        group = np.repeat(np.arange(40), 4)
        prompt = group // 2
        column = rng.normal(size=160)
        reward = 0.3 * column + rng.normal(size=160) + rng.normal(size=20)[prompt]
        slope, error, _ = within_groups.clustered(column, reward, group, prompt)
        slopes.append(slope)
        errors.append(error)
    assert np.mean(slopes) == pytest.approx(0.3, abs=0.03)
    assert np.mean(errors) == pytest.approx(np.std(slopes), rel=0.2)


def test_groups_are_divided_by_value() -> None:
    divided = within_groups.divided(np.array([0, 0, 1, 1]), np.array([0.0, 1, 1, 1]))
    assert len(set(divided.tolist())) == 3
    assert divided[2] == divided[3]
    assert len(np.unique(within_groups.divided(np.zeros(50, int), np.arange(50.0)))) == 5


@pytest.mark.slow
def test_size_on_nulls() -> None:
    """Rewards that have nothing to do with 300 columns: at most 3 % have any p below 0.03, within chance."""
    rng = np.random.default_rng(5)
    columns = (rng.random((512, 300)) < np.clip(rng.beta(0.5, 4, 300), 0.01, 0.9)).astype(np.float32)
    group = np.repeat(np.arange(64), 8)
    alarms = 0
    for _ in range(400):
        reward = (rng.random(512) < rng.beta(1, 1.5, 64)[group]).astype(float)
        alarms += within_groups.association(columns, reward, group, group, 199, rng).p.min() <= 0.03
    assert 3 <= alarms <= 22  # 99 % of 400 × 0.03


@pytest.mark.parametrize(("prompts", "counts"), [(2, False), (3, True), (6, True)])
def test_in_how_many_prompts_a_column_has_to_vary(prompts: int, counts: bool) -> None:
    """In about three: what is rare varies in few of the groups of some hundred rollouts."""
    column, group = np.zeros(64), np.repeat(np.arange(8), 8)
    column[np.arange(prompts) * 8] = 1.0
    reward = np.tile([1.0, 0, 0, 0, 0, 1, 1, 0], 8)
    found = within_groups.association(column[:, None].astype(np.float32), reward, group, group, 99,
                                      np.random.default_rng(0))  # fmt: skip
    assert (found.z[0] > 0) == counts
