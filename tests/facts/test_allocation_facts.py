"""What allocation would save: more where prompts differ, nothing where they are alike, and when it cannot be told."""

from __future__ import annotations

import numpy as np
import pytest

from grposcope.allocation.beta import spread_over
from grposcope.facts import allocation, allocation_check
from grposcope.facts.allocation import Saving
from grposcope.ustat import moments


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


def probed(p: np.ndarray, group: int = 16) -> Saving:
    gram, rewards = drawn(p, group)
    return allocation.of_probe(moments.from_gram(gram, rewards, 100), rewards, 60)


def test_what_is_promised_is_checked_on_rollouts_that_the_draw_has_not_seen() -> None:
    """It comes true where both halves are of the same prompts, and not where they are of others."""
    p = np.where(np.random.default_rng(0).random(150) < 0.6, 0.01, 0.5)
    gram, rewards = drawn(p)
    checked = allocation_check.of_gram(gram, rewards, 60)
    low, high = checked.interval
    assert 0 < low <= checked.predicted <= high
    other = np.random.default_rng(1).permutation(len(p))
    rows = np.arange(rewards.size).reshape(rewards.shape)
    rows[:, 1::2] = rows[other][:, 1::2]  # the second half of each group is another prompt's
    mixed = allocation_check.of_gram(gram[np.ix_(rows.ravel(), rows.ravel())], rewards.ravel()[rows], 60)
    assert mixed.interval[1] < mixed.predicted
    assert mixed.saving < 0
    assert "does not hold" in mixed.sentence()


def test_second_moments_are_those_of_the_pairs_in_a_group() -> None:
    """Of 2 rollouts there is one pair; of 3 there are three, each of which shares a rollout with the two others."""
    gram, rewards = drawn(np.full(20, 0.5), 8)
    each, which = moments.from_gram(gram, rewards, 10).per_prompt, np.arange(4, 20)
    found = [allocation_check._second(each, which, np.full(16, size)) for size in (2, 3)]
    assert found[0] == pytest.approx(each.both[which])
    assert found[1] == pytest.approx(each.both[which] / 3 + 2 * each.one[which] / 3)


def test_the_check_says_what_it_lacks() -> None:
    gram, rewards = drawn(np.full(40, 0.5), 6)
    assert "8 rollouts" in allocation_check.of_gram(gram, rewards).sentence()
    gram, rewards = drawn(np.full(40, 0.5), 8)
    rewards[:30, 2] = np.nan
    assert "16 whole groups" in allocation_check.of_gram(gram, rewards).sentence()


def test_it_saves_where_prompts_differ_and_not_where_they_are_alike() -> None:
    rng = np.random.default_rng(0)
    mixed, alike = probed(np.where(rng.random(120) < 0.6, 0.01, 0.5)), probed(np.full(120, 0.5))
    assert mixed.own > 0.2
    assert mixed.own_interval[0] > 0.1
    assert alike.own < 0.05
    assert mixed.own >= mixed.one - 1e-9
    assert mixed.known > alike.known
    assert "save" in mixed.sentence()


def test_a_record_says_so_too_with_a_wider_interval() -> None:
    rng = np.random.default_rng(0)
    p = np.where(rng.random(300) < 0.6, 0.01, 0.5)
    saving = allocation.of_rewards(rewards_of(p, 8), list(range(300)))
    low, high = saving.own_interval
    assert low < saving.own < high
    assert not saving.measured
    assert "measures them, and checks this promise" in saving.sentence()


def test_the_spread_of_success_rates_is_found_without_the_bias_of_small_groups() -> None:
    p = np.random.default_rng(3).beta(0.8, 2.0, 20_000)
    k = np.random.default_rng(4).binomial(4, p).astype(float)
    assert spread_over(k, np.full(20_000, 4.0)) == pytest.approx((0.8, 2.0), rel=0.1)


@pytest.mark.parametrize(
    ("rewards", "reason"),
    [
        (np.zeros((40, 4)), "all groups are dead"),
        (np.arange(160.0).reshape(40, 4), "more than two values"),
        (rewards_of(np.full(3, 0.5), 8), "16 groups"),
    ],
)
def test_when_it_cannot_be_told(rewards: np.ndarray, reason: str) -> None:
    saving = allocation.of_rewards(rewards, list(range(len(rewards))))
    assert reason in saving.reason
    assert saving.sentence().startswith("Cannot tell")


def test_a_probe_with_few_informative_groups_cannot_tell() -> None:
    assert "only those show how large gradients are" in probed(np.full(40, 0.03), 6).reason
