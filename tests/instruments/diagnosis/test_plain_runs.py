"""The made-up runs of plain_runs are what they claim to be, and benchmarks/plain.py scores verdicts as it says."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import plain
import plain_runs
import plain_world as worlds
import pytest
from plain_world import Plain

SEEDS = range(3)

WORDS = {"failing", "warning", "healthy", "cannot tell", "no failure found", "refused"}


def reward(made: Plain) -> np.ndarray:
    """The reward as a share of its range."""
    return np.asarray((made.run.table["reward"] - made.ends[0]) / made.scale)


@pytest.mark.parametrize("name", plain_runs.KINDS)
def test_a_kind_depends_on_its_seed_alone(name: str) -> None:
    first, again, other = (plain_runs.of_seed(name, seed) for seed in (3, 3, 4))
    assert first.run.table.keys() == again.run.table.keys()
    for key, column in first.run.table.items():
        np.testing.assert_array_equal(column, again.run.table[key])
    assert replace(first, run=again.run) == replace(again, run=again.run)
    assert first.now != other.now or first.run.steps != other.run.steps


@pytest.mark.parametrize("name", plain_runs.KINDS)
def test_rows_grades_and_dates_are_those_that_are_stated(name: str) -> None:
    fate, make = plain_runs.KINDS[name]
    low, high = plain_runs.ROWS[fate][make]
    for seed in SEEDS:
        made = plain_runs.of_seed(name, seed)
        assert low <= made.run.steps <= high
        assert set(made.words) <= WORDS
        steps = made.run.table["step"]
        assert made.began is None or steps[0] <= made.began[0] <= made.began[1] <= steps[-1]
        assert fate in ("null", "cannot tell") or fate in made.words


@pytest.mark.parametrize("name", [name for name in plain_runs.KINDS if name not in ("groups_counted", "dying_steps")])
def test_columns_agree_with_one_another(name: str) -> None:
    for seed in SEEDS:
        table = plain_runs.of_seed(name, seed).run.table
        for key in ("truncated", "dead_fraction"):
            assert key not in table or (np.nanmin(table[key]) >= 0 and np.nanmax(table[key]) <= 1)
        if {"reward_std", "dead_fraction"} <= table.keys():
            seen = np.isfinite(table["reward_std"])
            np.testing.assert_array_equal(table["reward_std"][seen] == 0, table["dead_fraction"][seen] == 1)
        if {"reward_min", "reward_max"} <= table.keys() and name not in ("wandering", "rounded_top"):
            finite = np.isfinite(table["reward"]) & np.isfinite(table["reward_min"])
            inside = (table["reward_min"] <= table["reward"] + 1e-9) & (table["reward"] <= table["reward_max"] + 1e-9)
            assert inside[finite].all()


def test_the_spread_and_the_dead_groups_are_those_of_the_rollouts() -> None:
    w = worlds.world(np.random.default_rng(0), 40, low=-1.0, high=1.0, parts=1, prompts=8, group=4)
    rewards = worlds.rollouts(w, np.full(40, 0.4), 0.3)
    columns = worlds.reward_columns(rewards)
    assert set(np.unique(rewards)) == {-1.0, 1.0}
    assert columns["dead_fraction"][5] == np.mean([len(set(group)) == 1 for group in rewards[5].tolist()])
    assert columns["reward_std"][5] == pytest.approx(np.mean([np.std(group, ddof=1) for group in rewards[5]]))
    copied = worlds.reward_columns(worlds.rollouts(w, np.full(40, 0.4), np.arange(40) >= 20))["dead_fraction"]
    assert copied[:20].mean() < 0.5 < copied[20:].min() == 1


def test_mean_rates_are_those_asked_for() -> None:
    w = worlds.world(np.random.default_rng(1), 400, prompts=64, group=8, spread=1.5, wander=0.0, low=0.0, high=1.0)
    for rate in (0.0, 0.03, 0.5, 0.97, 1.0):
        mean = worlds.rollouts(w, np.full(400, rate)).mean()
        assert mean == rate if rate in (0.0, 1.0) else mean == pytest.approx(rate, abs=0.015)


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_facts_are_exact(seed: int) -> None:
    cut = plain_runs.of_seed("all_cut", seed).run.table
    assert (cut["truncated"] == 1).all()
    assert np.ptp(cut["length"]) == 0
    never = plain_runs.of_seed("never_a_right_one", seed).run.table
    assert np.ptp(never["reward"]) == 0
    assert (never["dead_fraction"] == 1).all()
    made = plain_runs.of_seed("constant_from", seed)
    assert made.began is not None
    after = made.run.table["step"] >= made.began[0]
    assert np.ptp(made.run.table["reward"][after]) == 0 < np.ptp(made.run.table["reward"][~after])
    assert after.mean() >= 0.32
    broken = plain_runs.of_seed("right_never_paid", seed).run.table
    parts = {name: column for name, column in broken.items() if name.startswith("component/")}
    assert min(column.max() for column in parts.values()) == 0
    np.testing.assert_allclose(sum(parts.values()), broken["reward"])
    top = plain_runs.of_seed("rounded_top", seed).run.table["reward"]
    assert 0 < np.ptp(top) < 5e-5


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_are_lost_from_the_stated_step_on(seed: int) -> None:
    for name, keys in (("numbers_gone", ("loss", "grad_norm", "kl", "entropy")), ("reward_gone", ("reward",))):
        made = plain_runs.of_seed(name, seed)
        table = {key: made.run.table[key] for key in keys}
        wrong = np.flatnonzero(~np.all([np.isfinite(column) for column in table.values()], axis=0))
        assert made.began == (made.run.table["step"][wrong[0]],) * 2
        assert any(made.run.nonfinite.get(key, 0) for key in keys)


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [("quick_fall", 0.95, 0.0), ("dead_and_entropy_up", 0.88, 0.01), ("drifts_down", 0.85, 0.5)],
)
def test_falls_have_their_levels_and_dates(name: str, first: float, last: float) -> None:
    for seed in SEEDS:
        made = plain_runs.of_seed(name, seed)
        steps, level = made.run.table["step"], reward(made)
        tenth = max(len(steps) // 10, 1)
        assert made.began is not None
        before = steps < made.began[0] if made.began[0] > steps[0] else np.arange(len(steps)) < tenth
        assert level[before].mean() == pytest.approx(first, abs=0.1)
        assert level[-tenth:].mean() == pytest.approx(last, abs=0.12)


def test_a_quick_fall_takes_fifteen_rows_at_most() -> None:
    for seed in range(20):
        made = plain_runs.of_seed("quick_fall", seed)
        assert made.began is not None
        steps = made.run.table["step"]
        assert made.began[1] - made.began[0] <= 15 * steps[0]
        assert np.ptp(made.run.table["reward"][steps >= made.began[1]]) == 0


@pytest.mark.parametrize("name", [make.__name__ for make in plain_runs.ROWS["null"]])
def test_nulls_go_nowhere_on_average(name: str) -> None:
    slopes = []
    for seed in range(60):
        level = reward(plain_runs.of_seed(name, seed))
        half = len(level) // 2
        slopes.append(level[half:].mean() - level[:half].mean())
    assert abs(np.mean(slopes)) < 4 * np.std(slopes) / math.sqrt(len(slopes))
    assert 0.1 > np.std(slopes) > 0


@pytest.mark.parametrize("name", ["slow_starter", "moved_far", "late_sigmoid", "warmed_up", "dip_and_recovery"])
def test_those_that_learn_gain_a_quarter_of_the_range(name: str) -> None:
    for seed in SEEDS:
        level = reward(plain_runs.of_seed(name, seed))
        tenth = max(len(level) // 10, 1)
        assert level[-tenth:].mean() - level[:tenth].mean() > 0.25


def test_the_held_out_score_loses_over_a_quarter_of_its_gain_while_the_reward_rises() -> None:
    for seed in SEEDS:
        made = plain_runs.of_seed("held_out_lost", seed)
        held, level = made.run.evaluations.value, reward(made)
        gain = held.max() - held[0]
        assert held.max() - held[-1] > 0.25 * gain > 0
        assert level[-5:].mean() > level[:5].mean() + 0.25


def test_what_is_evaluated_apart_is_no_column_and_what_is_on_every_row_is_there() -> None:
    apart, named = (plain_runs.of_seed(name, 0) for name in ("evaluated_apart", "well_formed_but_falling"))
    assert 0 < len(apart.run.evaluations) < apart.run.steps / 3
    assert named.run.steps == len(named.run.table["reward"])


def said(line: str, word: str = "failing", **changed: object) -> plain.Score:
    """The score of a first line on a run that fell from 0.95 to 0.1 at step 50 of 100."""
    rng = np.random.default_rng(0)
    w = worlds.world(rng, 100, low=0.0, high=1.0, parts=1, stride=1)
    table = {"reward": np.where(np.arange(100) < 50, 0.95, 0.1)}
    made = worlds.plain(w, table, ("failing",), must=(r"→",), named=("reward",), false=("easier",), began=(49, 49))
    made = replace(made, **changed)
    return plain.score(made, lambda run: (word, line, line))


def test_a_verdict_is_scored_by_its_grade_words_level_and_date() -> None:
    good = said("failing: reward 0.95 → 0.10 in 100 steps, since step 52")
    assert (good.right, good.graded, good.false, good.jargon, good.dated) == (True, True, (), (), True)
    assert said("failing: reward 0.95 → 0.10, since step 80").dated is False
    assert said("failing: reward 0.95 → 10 %").false == ()
    assert said("failing: reward 0.95 → 0.70").false == ("level",)
    assert said("failing: reward 0.95 → 0.10; take easier prompts").false == ("easier",)
    unsaid = said("failing: the reward fell")
    assert (unsaid.right, unsaid.graded) == (False, True)
    assert not said("healthy: reward 0.95 → 0.10", "healthy").graded
    assert said("failing: starved (p = 0.03), cannot tell: kl and 2 more").jargon == ("starved", "p =", "l and 2 more")
    assert said("failing: reward 0.95 → 0.10", began=None).dated is None


def test_an_exception_is_a_wrong_verdict() -> None:
    def breaks(run: object) -> tuple[str, str, str]:
        raise ZeroDivisionError("division by zero")

    found = plain.score(plain_runs.of_seed("flat", 0), breaks)
    assert (found.word, found.right, found.false) == ("error", False, ("error",))
