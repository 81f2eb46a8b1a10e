"""Which held-out score is looked at, and what of the training it should follow."""

from __future__ import annotations

import math

import numpy as np
import pytest
import synthetic_series as made
from synthetic_series import U

from grposcope.core.estimate import Estimate
from grposcope.core.run import Evaluations, Run
from grposcope.signs import outcome_tests
from grposcope.signs.heldout import HeldOut, heldout_scores, of_run, scores, with_errors
from grposcope.signs.quantities import Quantities
from grposcope.signs.thresholds import STILL


def scored(table: dict[str, np.ndarray], **values: np.ndarray) -> list[HeldOut]:
    """What is held out of a run with these columns, whose evaluations have these names, __ standing for /."""
    run = made.run(table)
    rows = [
        (10 * i, name.replace("__", "/"), float(value), math.nan, 0, "")
        for name, series in values.items()
        for i, value in enumerate(series, 1)
    ]
    return heldout_scores(Quantities(Run(run.meta, run.config, run.table, run.groups, Evaluations.of_rows(rows))))


def followed(held: HeldOut) -> str:
    """The name of what it should follow, empty if nothing compares."""
    return "" if held.follows is None else held.follows.name


@pytest.mark.parametrize(
    ("name", "is_score"),
    [
        ("reward", True), ("val-core/minerva_math/reward/mean@1", True), ("val-core/grade_school/acc/mean@8", True),
        ("val-aux/gsm8k/acc/best@4/mean", False), ("reward_std", False), ("completions/mean_length", False),
        ("component/format", False), ("component/accuracy_reward", True), ("num_samples", False),
    ],
)  # fmt: skip
def test_scores_are_told_by_the_words_of_their_names(name: str, is_score: bool) -> None:
    held = scored(made.healthy(), **{name: np.linspace(0.2, 0.6, 8)})
    assert [h.score.name for h in held] == [name] * is_score


def test_a_score_follows_what_measures_the_same() -> None:
    table = made.healthy()
    table["component/format"], table["component/correctness"] = 0.5 * U, table["reward"] - 0.5 * U
    low = np.linspace(0.2, 0.4, 8)
    right, reward = scored(table, reward=3 * low, component__correctness=low)
    assert [held.score.name for held in (right, reward)] == ["component/correctness", "reward"]
    assert [followed(held) for held in (right, reward)] == ["component/correctness", "reward"]
    (accuracy,) = scored(table, accuracy=low)
    assert followed(accuracy) == "component/correctness"


def test_a_constant_bonus_does_not_matter_and_another_scale_does() -> None:
    table, low = made.healthy(), np.linspace(0.2, 0.4, 8)
    plain, bonus = (scored(table | {"reward": table["reward"] + b}, accuracy=low)[0] for b in (0.0, 0.6))
    assert followed(plain) == followed(bonus) == "reward"
    assert plain.room == bonus.room == 1.0
    assert scored(table | {"reward": 9 * table["reward"] - 4}, accuracy=low)[0].follows is None
    assert scored(table | {"reward": 9 * table["reward"] - 4}, reward=9 * low - 4)[0].follows is not None


def test_a_score_that_is_always_0_says_less_than_one_that_moves() -> None:
    """A data set that is too hard beside the one that is trained on, whatever their names."""
    names = ("val-core/aime24/reward/mean@1", "val-core/gsm8k/reward/mean@1")
    hard, moves = np.zeros(8), np.linspace(0.2, 0.6, 8)
    for first, second in ((hard, moves), (moves, hard)):
        held = scored(made.healthy(), **dict(zip(names, (first, second), strict=True)))
        assert held[0].score.values.any()
    assert scored(made.healthy(), **{names[0]: hard})[0].score.name == names[0]


def test_a_score_near_its_ceiling_has_little_room() -> None:
    table = made.healthy()
    (held,) = scored(table, accuracy=np.linspace(0.93, 0.95, 8))
    left = 1 - float(table["reward"][:18].mean())
    assert held.room == pytest.approx(0.07 / left, rel=0.05)


def test_a_score_that_stays_at_its_top_says_less_than_one_that_moves() -> None:
    """Of names that are equally good; a better name goes first all the same."""
    top, moving = np.full(8, 0.97), np.linspace(0.5, 0.3, 8)
    evaluated = {"val-core__a__acc__mean@1": top, "val-core__b__acc__mean@1": moving}
    assert scored(made.healthy(), **evaluated)[0].score.name == "val-core/b/acc/mean@1"
    longer = evaluated | {"val-core__a__acc__mean@1": np.full(12, 0.97)}
    assert scored(made.healthy(), **longer)[0].score.name == "val-core/b/acc/mean@1"
    assert scored(made.healthy(), accuracy=top, other_score=moving)[0].score.name == "accuracy"
    rows = [(10 * i, f"val-core/{name}/acc/mean@1", value, math.nan, 0, "")
            for name, values in (("a", top), ("b", moving)) for i, value in enumerate(values, 1)]  # fmt: skip
    run = made.run(made.healthy())
    whole = Run(run.meta, run.config, run.table, run.groups, Evaluations.of_rows(rows))
    assert of_run(whole)[0] == "val-core/b/acc/mean@1", "the same for whoever asks"


def test_a_jump_of_the_level_is_not_taken_for_noise() -> None:
    values = [0.5, 0.52, 0.49, 0.51, 0.5, 0.53, 0.03, 0.02, 0.04, 0.02, 0.05]
    rows = with_errors((k, Estimate(value, math.nan, 0)) for k, value in enumerate(values))
    assert 0.005 < rows[-1][1].se < 0.03
    noisy = with_errors((k, Estimate(value, math.nan, 0)) for k, value in enumerate(values[:5] * 2))
    assert 0.01 < noisy[-1][1].se < 0.03


def test_no_share_of_dead_groups_is_a_score() -> None:
    assert scores({"dead_fraction": [0.5, 0.5], "reward": [0.1, 0.2]}) == ["reward"]


@pytest.mark.parametrize("known", [True, False])
def test_a_fall_in_the_last_two_evaluations_is_the_last_level(known: bool) -> None:
    rng, steps = np.random.default_rng(5), 10 * np.arange(1, 31.0)
    curve = np.linspace(0.2, 0.6, 30)
    rises, falls = (rng.binomial(500, p) / 500 for p in (curve, np.concatenate([curve[:-2], [0.3, 0.3]])))
    for values, last, fate in ((rises, rises[-6:], "learned"), (falls, falls[-2:], "lost")):
        errors = np.sqrt(values * (1 - values) / 500) if known else np.full(30, np.nan)
        outcome = outcome_tests.of_evaluations(steps, values, errors, (0.0, 1.0), STILL, "accuracy")
        assert (outcome.fate, outcome.end.value) == (fate, pytest.approx(last.mean()))
        assert outcome.sudden == (fate == "lost")


def test_level_evaluations_hardly_ever_fall_suddenly() -> None:
    rng, fallen = np.random.default_rng(6), 0
    for _ in range(400):
        values = 0.5 + 0.02 * rng.standard_normal(int(rng.integers(8, 60)))
        errors = np.full(len(values), 0.02)
        steps = np.arange(len(values), dtype=float)
        fallen += outcome_tests.of_evaluations(steps, values, errors, (0.0, 1.0), STILL, "accuracy").sudden
    assert fallen <= 4  # designed for one in a thousand


def test_one_bad_evaluation_at_the_end_is_no_level() -> None:
    values = np.concatenate([np.linspace(0.2, 0.6, 29), [0.1]])
    outcome = outcome_tests.of_evaluations(np.arange(30.0), values, np.full(30, 0.02), (0.0, 1.0), STILL, "accuracy")
    assert outcome.end.value == pytest.approx(values[-6:].mean())
    assert not outcome.sudden
