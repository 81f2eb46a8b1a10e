"""Forecasts of success rates: chances of dead groups, forgetting, and what is learned of rates that are known."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from closeness import within_ulps
from scipy.integrate import quad
from scipy.stats import beta

from grposcope.core.errors import UserError
from grposcope.lab.allocation.beta import Rates
from grposcope.lab.allocation.forecast import Forecaster, _log_chance
from grposcope.lab.allocation.forecast import _features as features

CASES = [(0.7, 2.0), (3.0, 3.0), (12.0, 0.9)]


@pytest.mark.parametrize(("a", "b"), CASES)
def test_chances_equal_integrals_over_the_density(a: float, b: float) -> None:
    rates = Rates(np.array([a]), np.array([b]))

    def mean(value: Callable[[float], float]) -> float:
        return float(quad(lambda p: value(p) * beta.pdf(p, a, b), 0, 1, limit=200)[0])

    for group in (2, 5):
        expected = mean(lambda p, g=group: p**g + (1 - p) ** g)  # type: ignore[misc]
        assert rates.dead(group)[0] == pytest.approx(expected, rel=1e-5)
    chance = _log_chance(np.array([2.0]), np.array([5.0]), rates.a, rates.b)[0]
    assert np.exp(chance) == pytest.approx(mean(lambda p: p**2 * (1 - p) ** 3), rel=1e-5)


def test_chances_of_dead_groups_take_a_size_per_problem() -> None:
    rates = Rates(np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 1.0]))
    each = rates.dead(np.array([2, 7, 4]))
    alone = [rates.take(np.array([i])).dead(g)[0] for i, g in enumerate((2, 7, 4))]
    assert within_ulps(each, alone, 16)


def simulated(forecaster: Forecaster, truth: Callable[[int], np.ndarray], rng: np.random.Generator) -> None:
    """Let it learn from 120 batches of 8 rollouts on 32 problems drawn at random."""
    for t in range(120):
        which = rng.choice(len(forecaster.problems), 32, replace=False)
        forecaster.learn(which, rng.binomial(8, truth(t)[which]), np.full(32, 8.0))


def drifting(n: int, rng: np.random.Generator) -> tuple[np.ndarray, Callable[[int], np.ndarray]]:
    """Difficulty (n,) and true rates over time: the level rises, difficulty explains some, problems their own share."""
    difficulty, own = rng.normal(size=n), rng.normal(size=n)

    def truth(t: int) -> np.ndarray:
        return np.asarray(1 / (1 + np.exp(-(-1.5 + 0.02 * t - 0.8 * difficulty + 0.8 * own))))

    return difficulty, truth


def test_a_problem_never_seen_is_forecast_from_its_features() -> None:
    rng = np.random.default_rng(1)
    difficulty, truth = drifting(400, rng)
    forecaster = Forecaster([str(i) for i in range(400)], difficulty, np.full(400, 12))
    for t in range(40):
        which = rng.choice(200, 32, replace=False)  # the first half alone
        forecaster.learn(which, rng.binomial(8, truth(t)[which]), np.full(32, 8))
    unseen = np.arange(200, 400)
    error = np.mean((forecaster.rates(unseen).mean - truth(40)[unseen]) ** 2)
    assert error < 0.8 * np.var(truth(40)[unseen])  # that of the best single number for all of them
    seen, fresh = (r.a + r.b for r in (forecaster.rates(np.arange(200)), forecaster.rates(unseen)))
    assert seen.mean() > fresh.mean() + 1  # it knows more of what it saw


@pytest.mark.parametrize(("period", "short"), [(1000, False), (6, True)])
def test_the_half_life_is_learned_from_how_fast_rates_drift(period: int, short: bool) -> None:
    rng = np.random.default_rng(2)
    n = 40
    levels = rng.uniform(0.05, 0.95, (400 // period + 2, n))
    forecaster = Forecaster([str(i) for i in range(n)], np.full(n, np.nan), np.full(n, 12))
    simulated(forecaster, lambda t: levels[t // period], rng)
    assert (forecaster.half_life <= 8) == short


def test_state_goes_through_json_bit_for_bit() -> None:
    rng = np.random.default_rng(3)
    difficulty, truth = drifting(50, rng)
    ids = [str(i) for i in range(50)]
    whole, first = (Forecaster(ids, difficulty, np.full(50, 12)) for _ in range(2))
    batches = [(w := rng.choice(50, 16), rng.binomial(8, truth(t)[w]), np.full(16, 8)) for t in range(20)]
    for batch in batches:
        whole.learn(*batch)
    for batch in batches[:11]:
        first.learn(*batch)
    again = Forecaster(ids, difficulty, np.full(50, 12))
    again.restore(json.loads(json.dumps(first.state())))
    for batch in batches[11:]:
        again.learn(*batch)
    assert json.dumps(again.state()) == json.dumps(whole.state())
    with pytest.raises(UserError, match="other problems"):
        Forecaster(ids[::-1], difficulty, np.full(50, 12)).restore(first.state())


def test_a_checkpoint_of_earlier_versions_is_gone_on_from() -> None:
    """They kept the weights of two further forecasts beside these."""
    known, again = (Forecaster(["a", "b"], [1.0, 2.0], [3, 3]) for _ in range(2))
    known.learn(np.array([0, 1]), [1.0, 2.0], [4.0, 4.0])
    state = known.state()
    state["weights"] |= {"base": [[0.1], [[2.0]]], "difficulty": [[0.1, 0.2], [[2.0, 0.0], [0.0, 2.0]]]}
    again.restore(state)
    assert again.rates(np.array([0, 1])).mean.tolist() == known.rates(np.array([0, 1])).mean.tolist()


def test_replaying_a_record_teaches_the_same_as_the_batches_did() -> None:
    ids = [str(i) for i in range(6)]
    live, replayed = (Forecaster(ids, np.arange(6), np.full(6, 12)) for _ in range(2))
    live.learn(np.array([0, 3]), [2, 8], [8, 8])
    live.learn(np.array([5]), [0], [8])
    steps = np.array([1, 1, 1, 4])
    count = replayed.replay(steps, ["0", "3", "none", "5"], np.array([2.0, 8, 1, 0]), np.full(4, 8.0))
    assert count == 3
    assert replayed.state() == live.state()
    with pytest.raises(UserError, match="other problems"):
        replayed.replay(steps, ["a", "b", "c", "d"], np.zeros(4), np.ones(4))


def test_rewards_outside_of_0_to_1_are_refused() -> None:
    with pytest.raises(UserError, match="outside 0"):
        Forecaster(["a"], [1.0], [3]).learn(np.array([0]), [9], [8])


def test_features_leave_out_what_is_unknown_or_does_not_vary() -> None:
    assert features([np.nan, 1.0, 2.0], [5, 5, 5]).shape == (3, 1)
    assert features([1.0, 2.0, 3.0], [5, 5, 5]).shape == (3, 3)
    assert features([1.0, 2.0, 2.0], [5, 5, 9]).shape == (3, 3)


def test_a_reward_outside_of_0_to_1_is_refused_where_the_sum_of_its_group_is_possible() -> None:
    known = Forecaster(["a", "b"], [1.0, 2.0], [3, 3])
    for rewards in ([[-1.0, 1.0, 1.0, 1.0]], [[2.0, 0.0, 0.0, 0.0]], [[np.inf, 0.0, 0.0, 0.0]]):
        with pytest.raises(UserError, match="outside 0"):
            known.learn_groups(np.array([0]), rewards)
    assert known.batches == 0
    known.learn_groups(np.array([0]), [[1.0, 0.0, np.nan, 1.0]])
    other = Forecaster(["a", "b"], [1.0, 2.0], [3, 3])
    other.learn(np.array([0]), [2.0], [3.0])
    assert known.state() == other.state()
