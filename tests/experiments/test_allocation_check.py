"""What the optimal draw saves on gradients that it was not made from."""

from __future__ import annotations

import numpy as np
import pytest
from allocators import check

from grposcope.maths import moments


def rewards_of(p: np.ndarray, group: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random((len(p), group)) < p[:, None]).astype(float)


def drawn(p: np.ndarray, group: int = 16, dimensions: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """A probe's Gram matrix and rewards: means of scores differ by reward, E‖s‖² and the separation are free of p."""
    rng = np.random.default_rng(1)
    rewards = rewards_of(p, group)
    apart = rng.normal(size=(len(p), 1, dimensions)) / np.sqrt(dimensions)
    scores = rng.normal(size=(len(p), group, dimensions)) * np.sqrt(1.5 / dimensions)
    scores = scores + (rewards - p[:, None])[:, :, None] * apart
    flat = scores.reshape(-1, dimensions)
    return flat @ flat.T, rewards


@pytest.mark.slow
def test_what_is_promised_is_checked_on_rollouts_that_the_draw_has_not_seen() -> None:
    """It comes true where both halves are of the same prompts, and not where they are of others."""
    p = np.where(np.random.default_rng(0).random(150) < 0.6, 0.01, 0.5)
    gram, rewards = drawn(p)
    checked = check.of_gram(gram, rewards, 60)
    assert checked is not None
    low, high = checked.interval
    assert 0 < low <= checked.predicted <= high
    other = np.random.default_rng(1).permutation(len(p))
    rows = np.arange(rewards.size).reshape(rewards.shape)
    rows[:, 1::2] = rows[other][:, 1::2]  # the second half of each group is another prompt's
    mixed = check.of_gram(gram[np.ix_(rows.ravel(), rows.ravel())], rewards.ravel()[rows], 60)
    assert mixed is not None
    assert mixed.interval[1] < mixed.predicted
    assert mixed.saving < 0


def test_second_moments_are_those_of_the_pairs_in_a_group() -> None:
    """Of 2 rollouts there is one pair; of 3 there are three, each of which shares a rollout with the two others."""
    gram, rewards = drawn(np.full(20, 0.5), 8)
    each, which = moments.from_gram(gram, rewards, 10).per_prompt, np.arange(4, 20)
    found = [check._second(each, which, np.full(16, size)) for size in (2, 3)]
    assert found[0] == pytest.approx(each.both[which])
    assert found[1] == pytest.approx(each.both[which] / 3 + 2 * each.one[which] / 3)


def test_it_is_none_where_it_lacks_rollouts() -> None:
    gram, rewards = drawn(np.full(40, 0.5), 6)
    assert check.of_gram(gram, rewards) is None
    gram, rewards = drawn(np.full(40, 0.5), 8)
    rewards[:30, 2] = np.nan
    assert check.of_gram(gram, rewards) is None


def test_groups_of_one_success_each_are_nan() -> None:
    """No pair of rollouts tells how large gradients are then, so that no draw has an error to be compared."""
    rewards = np.zeros((40, 8))
    rewards[:20, 0] = 1
    scores = np.random.default_rng(0).normal(size=(rewards.size, 12))
    checked = check.of_gram(scores @ scores.T, rewards, 20)
    assert checked is not None
    assert np.isnan(checked.saving)
