"""Changes over steps with groups as units, and when a level is left."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from grposcope.maths import group_steps, passage


def split_z(means: np.ndarray, of_step: np.ndarray) -> float:
    """The largest |z| of a split by a loop over all."""
    scaled = (means - means.mean()) / means.std()
    z = []
    for step in np.unique(of_step)[:-1]:
        later = of_step > step
        count, last = len(later), later.sum()
        z.append(scaled[later].sum() / np.sqrt(last * (count - last) / count))
    return max(z, key=abs)


def test_splits_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(0)
    step = np.repeat(np.arange(10), 12)
    group = np.arange(120) // 4
    columns = rng.normal(size=(120, 3)).astype(np.float32)
    columns[step > 5, 1] += 2
    found = group_steps.changes(columns, step, group, 99, rng)
    assert found is not None
    means = columns.reshape(30, 4, 3).mean(1)
    np.testing.assert_allclose(found.z, [split_z(means[:, own], np.arange(30) // 3) for own in range(3)], rtol=1e-4)
    assert found.at[1] == 5
    assert found.p[1] == pytest.approx(0.01, abs=0.02)
    assert found.after[1] - found.before[1] == pytest.approx(2, abs=0.5)


def test_one_odd_step_is_told_apart() -> None:
    rng = np.random.default_rng(1)
    step, group = np.repeat(np.arange(20), 16), np.arange(320) // 4
    columns = rng.normal(size=(320, 50)).astype(np.float32)
    columns[step == 7, 3] += 4
    found = group_steps.changes(columns, step, group, 99, rng)
    assert found is not None
    assert (found.odd_step[3], found.odd_p[3] <= 0.02) == (7, True)
    assert abs(found.odd_z[3]) > abs(found.z[3])


def test_few_steps_cannot_be_told() -> None:
    columns = np.zeros((24, 2), np.float32)
    assert (
        group_steps.changes(columns, np.repeat([1, 2, 3], 8), np.arange(24) // 2, 9, np.random.default_rng(0)) is None
    )


def test_groups_are_the_units() -> None:
    """Groups that share their prompt alone are no change: with rollouts as units nearly every data set would be one."""
    rng = np.random.default_rng(2)
    alarms = 0
    for _ in range(40):
        group = np.arange(640) // 8
        columns = np.repeat(rng.normal(size=(80, 30)), 8, axis=0).astype(np.float32)
        found = group_steps.changes(columns, group // 4, group, 99, rng)
        assert found is not None
        alarms += min(found.p.min(), 1) <= 0.03
    assert alarms <= 5


def test_the_isotonic_fit_is_scipys() -> None:
    rng = np.random.default_rng(3)
    values, weights = rng.normal(size=40) + np.arange(40) / 20, rng.integers(1, 9, 40).astype(float)
    np.testing.assert_allclose(passage._isotonic(values, weights), isotonic_regression(values, weights=weights).x)


def test_a_passage_is_where_a_quarter_of_the_way_is_passed() -> None:
    rng = np.random.default_rng(4)
    of_step = np.repeat(np.arange(1, 101), 8)
    share = np.where(of_step < 40, 0.1, 0.9)
    found = passage.passage(rng.binomial(8, share) / 8, of_step, 100, rng)
    assert found.low <= found.step <= found.high
    assert found.step == 40
    assert found.early == pytest.approx(0.1, abs=0.05)
    fallen = passage.passage(1 - rng.binomial(8, share) / 8, of_step, 100, rng)
    assert fallen.step == 40


@pytest.mark.slow
def test_intervals_of_passages_hold_the_true_step() -> None:
    rng, held = np.random.default_rng(5), 0
    of_step = np.repeat(np.arange(1, 81), 8)
    for _ in range(200):
        onset = int(rng.integers(20, 60))
        share = 0.05 + 0.9 / (1 + 3 * np.exp(-(of_step - onset) * 4 / rng.uniform(2, 20)))
        found = passage.passage(rng.binomial(8, share) / 8, of_step, 200, rng)
        held += found.low <= onset <= found.high
    assert held >= 178
