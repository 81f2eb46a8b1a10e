"""Intervals that cover, and verdicts that are right about as often as they claim."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.facts.intervals import interval, wilson
from grposcope.facts.learning import change, of_curves, of_reward
from grposcope.records import Estimate


def evaluation(rng: np.random.Generator, p: float, n: int) -> Estimate:
    """Mean over n problems of 4 completions each, problems of different difficulty."""
    chances = rng.beta(3 * p, 3 * (1 - p), n) if 0 < p < 1 else np.full(n, p)
    return Estimate.mean((rng.binomial(4, chances) / 4).tolist())


@pytest.mark.parametrize(("p", "n"), [(0.3, 200), (0.9, 100), (0.5, 8), (0.05, 8), (0.0, 8), (1.0, 40)])
def test_intervals_cover(p: float, n: int) -> None:
    rng = np.random.default_rng(0)
    inside = [low <= p <= high for low, high in (interval(evaluation(rng, p, n)) for _ in range(1000))]
    assert np.mean(inside) > 0.93


def test_wilson_solves_its_equation() -> None:
    """Both ends are shares from which the observation is 1.96 standard deviations away."""
    for share, n in ((0.3, 17), (0.0, 8), (0.99, 1000)):
        for end in wilson(share, n):
            assert end in (0.0, 1.0) or abs(share - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / n))


def test_equal_policies_are_rarely_told_apart() -> None:
    rng = np.random.default_rng(1)
    verdicts = [change(evaluation(rng, 0.4, 200), evaluation(rng, 0.4, 200)).verdict for _ in range(1000)]
    assert 0.9 < verdicts.count("none") / 1000 < 0.98


def test_clear_changes_are_seen() -> None:
    assert change(Estimate(0.3, 0.02, 200), Estimate(0.8, 0.02, 200)).verdict == "up"
    assert change(Estimate(0.8, 0.02, 200), Estimate(0.3, 0.02, 200)).verdict == "down"
    assert change(Estimate(0.0, 0.0, 200), Estimate(1.0, 0.0, 200)).verdict == "up"


@pytest.mark.parametrize(("first", "last"), [((0.0, 0.0), (0.0, 0.0)), ((0.25, 0.16), (0.5, 0.19))])
def test_few_problems_cannot_tell(first: tuple[float, float], last: tuple[float, float]) -> None:
    found = change(Estimate(*first, 8), Estimate(*last, 8))
    assert found.verdict == "unknown"
    assert found.difference.flag == "8 problems are too few"


def test_without_problems_there_is_no_interval() -> None:
    assert all(math.isnan(end) for end in interval(Estimate(math.nan, math.nan, 0)))
    assert change(Estimate(math.nan, math.nan, 0), Estimate(math.nan, math.nan, 0)).verdict == "unknown"


def test_two_evaluations_decide_and_the_reward_does_not() -> None:
    falling = np.linspace(1, 0, 100)
    learning = of_curves([(0, Estimate(0.3, 0.02, 200)), (100, Estimate(0.8, 0.02, 200))], falling, 100)
    assert (learning.basis, learning.verdict) == ("held-out accuracy", "up")
    assert learning.sentence == "Held-out accuracy rose from 30% to 80% over 100 steps, more than chance explains."
    assert "The difference is +50.0 points, from +44.5 to +55.5." in learning.details[0]


def test_the_highest_evaluation_is_named_unless_it_is_the_last() -> None:
    evaluations = [(step, Estimate(value, 0.02, 200)) for step, value in ((0, 0.3), (50, 0.9), (100, 0.5))]
    learning = of_curves(evaluations, [], 100)
    assert learning.best == evaluations[1]
    assert learning.details[1:] == ("The highest evaluation was 90.0%, after step 50.",)
    assert of_curves(evaluations[:2], [], 50).details[1:] == ()


@pytest.mark.parametrize(
    ("slope", "verdict", "words"),
    [(0.4, "up", "rose from 0.3"), (-0.4, "down", "fell from 0.6"), (0.0, "none", "no more than noise explains")],
)
def test_without_two_evaluations_the_reward_is_compared(slope: float, verdict: str, words: str) -> None:
    share = np.linspace(-0.5, 0.5, 200)
    reward = 0.5 + slope * share + np.random.default_rng(0).normal(0, 0.05, 200)
    learning = of_curves([(0, Estimate(0.3, 0.02, 200))], reward, 200)
    assert (learning.basis, learning.verdict) == ("training reward", verdict)
    assert words in learning.sentence
    assert learning.sentence.endswith("without a second held-out evaluation, whether it learned cannot be told.")
    assert len(learning.evaluations) == 1


def test_a_reward_that_never_moved_is_said_so() -> None:
    learning = of_reward(np.zeros(40), 40)
    assert learning.verdict == "none"
    assert learning.sentence.startswith("Training reward was 0 in every row over 40 steps; without")


def test_rewards_without_trend_are_rarely_called_one() -> None:
    """Each side is tested at 5 %, with noise that wanders."""
    rng = np.random.default_rng(2)
    verdicts = []
    for _ in range(200):
        noise = rng.normal(0, 1, 100)
        for i in range(1, 100):
            noise[i] += 0.6 * noise[i - 1]
        verdicts.append(of_reward(noise, 100).verdict)
    assert verdicts.count("up") <= 20
    assert verdicts.count("down") <= 20


@pytest.mark.parametrize("n", [1, 2, 29])
def test_few_steps_cannot_tell(n: int) -> None:
    learning = of_reward(np.linspace(0, 1, n), n)
    assert learning.verdict == "unknown"
    assert f"over {n} step" in learning.sentence
    assert f"but {n} reward{'s are' if n > 1 else ' is'} too few to tell a change from noise" in learning.sentence


def test_without_reward_nothing_is_claimed() -> None:
    assert "no reward is recorded" in of_reward([math.nan, math.nan], 2).sentence
    assert of_reward([], 0).sentence == "No optimiser step is recorded yet."
