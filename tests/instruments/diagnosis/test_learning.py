"""Intervals that cover, differences that are right about as often as they claim, and what became of a run in words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import synthetic_series as made

from grposcope.core.estimate import Estimate
from grposcope.core.run import Evaluations, Run
from grposcope.instruments.diagnosis.learning import Learning, of_run
from grposcope.maths.intervals import interval, wilson
from grposcope.signs import run_outcome
from grposcope.signs.heldout import difference
from grposcope.signs.outcome import Fate, direction
from grposcope.signs.quantities import Quantities


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
    verdicts = [difference(evaluation(rng, 0.4, 200), evaluation(rng, 0.4, 200))[0] for _ in range(1000)]
    assert 0.9 < verdicts.count("none") / 1000 < 0.98


def test_clear_changes_are_seen() -> None:
    assert difference(Estimate(0.3, 0.02, 200), Estimate(0.8, 0.02, 200))[0] == "up"
    assert difference(Estimate(0.8, 0.02, 200), Estimate(0.3, 0.02, 200))[0] == "down"
    assert difference(Estimate(0.0, 0.0, 200), Estimate(1.0, 0.0, 200))[0] == "up"


@pytest.mark.parametrize(("first", "last"), [((0.0, 0.0), (0.0, 0.0)), ((0.25, 0.16), (0.5, 0.19))])
def test_few_problems_cannot_tell(first: tuple[float, float], last: tuple[float, float]) -> None:
    assert difference(Estimate(*first, 8), Estimate(*last, 8)) == ("unknown", "8 problems are too few")


def test_without_problems_there_is_no_interval() -> None:
    assert all(math.isnan(end) for end in interval(Estimate(math.nan, math.nan, 0)))
    assert difference(Estimate(math.nan, math.nan, 0), Estimate(math.nan, math.nan, 0))[0] == "unknown"


def learned(reward: np.ndarray, *evaluations: tuple[int, Estimate]) -> Learning:
    """What is said of a run with these rewards (n,) and evaluations of pass@1."""
    run = made.run({"reward": reward})
    rows = [(step, "pass@1", one.value, one.se, one.n, one.flag) for step, one in evaluations]
    return of_run(Run(run.meta, run.config, run.table, run.groups, Evaluations.of_rows(rows)))


def by_reward(reward: np.ndarray) -> str:
    """Where the training reward (n,) says that a run went."""
    return run_outcome.of_reward(Quantities(made.run({"reward": reward}))).direction


START, END = (0, Estimate(0.3, 0.02, 200)), (100, Estimate(0.8, 0.02, 200))


def test_every_fate_has_a_direction() -> None:
    fates: dict[str, tuple[Fate, ...]] = {
        "up": ("learned", "stalled"),
        "down": ("lost", "fell"),
        "none": ("solved", "flat"),
        "unknown": ("cannot tell",),
    }
    for where, of in fates.items():
        assert {direction(fate) for fate in of} == {where}


def test_two_evaluations_decide_and_the_reward_does_not() -> None:
    said = learned(np.linspace(1, 0, 100), START, END)
    assert (said.outcome.heldout, said.verdict, said.changed) == (True, "up", "rose")
    assert said.sentence == "Held-out accuracy rose from 30% to 80% over 100 steps, more than chance explains."
    assert said.details == (
        "95% intervals: 26.1% to 33.9% at the first evaluation, 76.1% to 83.9% at the last, over 200 problems. "
        "The change is +50.0 points, with a standard error of 2.8.",
    )


def test_evaluations_that_end_early_do_not_decide() -> None:
    said = learned(np.linspace(1, 0, 101), START, (50, END[1]))
    assert (said.outcome.heldout, said.verdict, said.changed) == (False, "down", "reward fell")


def test_few_problems_are_no_proof() -> None:
    """A standard error of 0 where none of eight problems was solved is none."""
    few = learned(np.full(101, 0.4), (0, Estimate(0.0, 0.0, 8)), (100, Estimate(0.25, 0.1, 8)))
    assert few.verdict != "up"
    many = learned(np.full(101, 0.4), (0, Estimate(0.0, 0.0, 200)), (100, Estimate(1.0, 0.0, 200)))
    assert many.verdict == "up"


def test_the_highest_evaluation_is_named_unless_it_is_the_last() -> None:
    evaluations = [(step, Estimate(value, 0.02, 200)) for step, value in ((0, 0.3), (50, 0.9), (100, 0.5))]
    said = learned(np.full(101, 0.4), *evaluations)
    assert said.clause == "held-out accuracy rose from 30% to 90% around step 50 and then fell to 50%"
    assert (said.verdict, said.changed) == ("down", "rose and fell")
    assert said.details[1:] == ()  # the clause has named it
    flat = learned(
        np.full(101, 0.4), *((step, Estimate(value, 0.05, 200)) for step, value in ((0, 0.3), (50, 0.34), (100, 0.31)))
    )
    assert flat.details[1:] == ("The highest single evaluation was 34.0%, at step 50.",)
    assert learned(np.full(51, 0.4), *evaluations[:2]).details[1:] == ()


def test_a_fall_from_the_first_evaluation_names_it_and_no_other_highest() -> None:
    evaluations = [(10 * i, Estimate(value, 0.02, 200)) for i, value in enumerate([0.9] + 9 * [0.3])]
    said = learned(np.full(91, 0.4), *evaluations)
    assert said.clause == "held-out accuracy fell from 90% to 30% over 91 steps, more than chance explains"
    assert said.outcome.change.value == pytest.approx(-0.6)


@pytest.mark.parametrize(
    ("slope", "verdict", "words"),
    [(0.4, "up", "rose from 0.3"), (-0.4, "down", "fell from 0.6"), (0.0, "none", "went from 0.494 to 0.5")],
)
def test_without_two_evaluations_the_reward_is_compared(slope: float, verdict: str, words: str) -> None:
    share = np.linspace(-0.5, 0.5, 200)
    reward = 0.5 + slope * share + np.random.default_rng(0).normal(0, 0.05, 200)
    said = learned(reward, (0, Estimate(0.3, 0.02, 200)))
    assert (said.outcome.heldout, said.verdict) == (False, verdict)
    assert words in said.sentence
    assert said.sentence.endswith("only held-out evaluations would show whether this holds on other problems.") == (
        verdict == "up"
    )
    assert (len(said.evaluations), said.details) == (1, ())


def test_a_reward_of_unknown_range_that_never_moved_is_said_so() -> None:
    said = learned(np.full(40, 5.0))
    assert said.verdict == "unknown"
    assert said.sentence.startswith("Training reward was 5 in every row over 40 steps")


@pytest.mark.slow
def test_rewards_without_trend_are_rarely_called_one() -> None:
    """Rises are tested at 5 %, falls at 1 %, with noise that wanders."""
    rng = np.random.default_rng(2)
    verdicts = []
    for _ in range(200):
        noise = rng.normal(0, 1, 100)
        for i in range(1, 100):
            noise[i] += 0.6 * noise[i - 1]
        verdicts.append(by_reward(noise))
    assert verdicts.count("up") <= 20
    assert verdicts.count("down") <= 20


@pytest.mark.parametrize("n", [1, 2, 9])
def test_few_steps_cannot_tell(n: int) -> None:
    said = learned(np.linspace(0, 1, n))
    assert said.verdict == "unknown"
    assert f"only {n} row{'s' * (n > 1)} of reward logged; at least 30 are needed" in said.sentence


def test_what_is_plain_needs_few_rows() -> None:
    rng = np.random.default_rng(0)
    assert learned(np.linspace(0, 1, 12) + 0.02 * rng.normal(size=12)).verdict == "up"
    assert learned(np.linspace(1, 0, 12) + 0.02 * rng.normal(size=12)).verdict == "down"
    assert learned(0.5 + 0.1 * rng.normal(size=12)).verdict == "unknown"


def test_without_reward_nothing_is_claimed() -> None:
    assert learned(np.full(2, math.nan)).sentence == "Cannot tell whether it learned: no reward is logged."
    assert "no optimiser step is recorded yet" in learned(np.empty(0)).sentence


def test_a_fall_to_nothing_within_a_few_steps_is_one() -> None:
    """Where 1 − p was rounded, p-values below 0 cancelled in their harmonic mean."""
    for seed in range(48):
        n = (60, 100, 150, 200)[seed % 4]
        level = np.interp(np.arange(n), [0, n // 2, n // 2 + 15], [0.95, 0.95, 0.0])
        noise = 0.01 * np.random.default_rng(seed).normal(size=n) * (level > 0)
        assert by_reward(np.clip(level + noise, 0, 1)) == "down"


def test_a_fall_from_the_first_rows_is_preceded_by_no_rise() -> None:
    """The level of the start is that of more rows than are high, so that the best rows are above it."""
    rows = np.arange(200)
    level = 0.06 + 0.36 * np.exp(-((rows / 3) ** 2)) + 0.005 * np.random.default_rng(4).normal(size=200)
    said = of_run(made.run({"reward": level, "reward_std": np.full(200, 0.3)}))
    assert said.sentence.startswith("Training reward fell from 0.3")
    assert "rose" not in said.sentence


def test_right_answers_that_become_fewer_outweigh_a_reward_that_does_not_fall() -> None:
    rng = np.random.default_rng(3)
    table = made.healthy()
    right = np.clip(0.9 - 0.5 * made.U + 0.02 * rng.normal(size=120), 0, 1)
    for name in ("accuracy", "train/pass@1", "component/correctness"):
        said = of_run(made.run({**table, name: right}))
        assert said.outcome.by_answers
        assert said.verdict == "down"
        assert said.clause.startswith(f"{name.removeprefix('component/')} fell from 0.8")
    for name in ("batch/solve_none", "component/format"):
        assert of_run(made.run({**table, name: right})).verdict == "up"
    assert of_run(made.run({**table, "accuracy": 1 - right})).verdict == "up"


def test_a_sum_of_parts_whose_range_is_not_logged_is_not_near_the_top_of_it() -> None:
    """Two parts of which one pays nothing; where the extremes are logged, or there is one part, the top is known."""
    noise = 0.01 * np.random.default_rng(0).normal(size=100)
    parts = {"component/accuracy": np.zeros(100), "component/soft_format": np.full(100, 0.5)}
    extremes = {"reward_min": np.zeros(100), "reward_max": np.ones(100)}
    summed, known, single = (
        of_run(made.run({"reward": 0.88 + noise, **beside})).clause
        for beside in (parts, {**parts, **extremes}, {"component/accuracy": 0.88 + noise})
    )
    assert "near the top" not in summed
    assert summed.endswith("over 100 steps, and how high the sum of its parts can be is not logged")
    assert known.startswith("training reward was near the top of its range from the start")
    assert single.startswith("training reward was near the top of its range from the start")
