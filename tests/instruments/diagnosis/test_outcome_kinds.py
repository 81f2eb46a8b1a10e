"""Kinds of runs that verdicts got wrong, each beside a twin that must not get the same word."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import synthetic_series as series

from grposcope.core.errors import UserError
from grposcope.core.run import Evaluations, Run
from grposcope.instruments.diagnosis import diagnose
from grposcope.instruments.diagnosis.verdict import Verdict, verdict
from grposcope.logs import read
from grposcope.signs import run_outcome

N = 200
U = np.arange(N) / N


def noise(size: float, seed: int = 0, n: int = N) -> np.ndarray:
    """White noise (n,) of this size."""
    return size * np.random.default_rng(seed).normal(size=n)


def said(run: Run) -> Verdict:
    """The verdict on a run."""
    return verdict(run, diagnose(run))


def grade(run: Run, mode: str) -> str:
    """Status and grade of a mode."""
    found = next(finding for finding in diagnose(run) if finding.fault == mode)
    return str(found.grade or found.status)


RISES = 1.2 + 0.6 * U + noise(0.05)
"""A reward that plainly rises, of no known range."""


def test_a_gain_is_healthy_though_only_the_reward_is_logged() -> None:
    judged = said(series.run({"reward": RISES}))
    assert judged.word == "healthy"
    assert judged.line.endswith("only the reward is logged: gaming cannot be excluded")


@pytest.mark.parametrize(
    ("beside", "word", "says"),
    [
        ({"accuracy": np.clip(0.16 - 0.3 * U, 0, 1) + np.abs(noise(0.001))}, "failing", "accuracy 0.1"),
        ({"judge_score": np.zeros(N)}, "warning", "judge_score is 0 in all 200 steps"),
        ({"accuracy": 0.1 + noise(0.03, 1)}, "warning", "while accuracy went 0."),
        ({"length": 300 * 0.02 ** np.clip(20 * (U - 0.5), 0, 1)}, "warning", "tokens"),
    ],
)
def test_a_twin_in_which_something_shows_gaming_is_not_healthy(
    beside: dict[str, np.ndarray], word: str, says: str
) -> None:
    judged = said(series.run({"reward": RISES, **beside}))
    assert judged.word == word
    assert says in judged.line


def test_a_small_gain_that_is_certain_is_one_and_a_doubtful_one_is_not() -> None:
    certain, doubtful = (said(series.run({"reward": 0.45 + 0.03 * U + noise(size)})) for size in (0.003, 0.06))
    assert (certain.word, doubtful.word) == ("healthy", "cannot tell")
    assert "reward 0.45 → 0.48" in certain.line


def test_right_answers_are_the_outcome_before_the_sum() -> None:
    parts = {"component/format": np.minimum(0.2 + 4 * U, 1.0), "component/correctness": 0.5 - 0.4 * U + noise(0.02)}
    run = series.run({"reward": 3 * parts["component/format"] + parts["component/correctness"], **parts})
    judged = said(run)
    assert judged.word == "failing"
    assert "correctness 0.4" in judged.line
    assert any("parts of the reward: format" in remark for remark in judged.remarks)
    rises = series.run({"reward": 2 - U + noise(0.02), "correctness": 0.2 + 0.5 * U + noise(0.02)})
    assert run_outcome.of_run(rises).direction == "up"


@pytest.mark.parametrize("name", ["answer_format", "tool_call_success", "mean_token_accuracy", "valid_accuracy"])
def test_what_pays_for_the_form_is_no_right_answer(name: str) -> None:
    run = series.run({"reward": RISES, name: 0.9 - 0.8 * U + noise(0.01)})
    assert run_outcome.of_run(run).name == "reward"


def test_users_say_which_column_is_the_outcome() -> None:
    table = {"reward": RISES, "solved_by_hand_f": 0.6 - 0.5 * U + noise(0.02)}
    assert said(series.run(table)).word == "healthy"
    assert said(series.run(table, outcome="solved_by_hand_f")).word == "failing"
    with pytest.raises(UserError, match=r"outcome=nothing.*has no such column"):
        diagnose(series.run(table, outcome="nothing"))


def test_a_reward_that_hardly_ever_pays_is_why_nothing_is_learned() -> None:
    rng = np.random.default_rng(2)
    rare, often = (rng.binomial(16, np.full(N, rate)) / 16 for rate in (0.005, 0.3))
    assert said(series.run({"reward": rare})).word == "failing"
    assert said(series.run({"reward": often})).word == "cannot tell"
    late = rng.binomial(16, np.where(U < 0.5, 0.005, 0.5)) / 16
    assert said(series.run({"reward": late})).word == "healthy"


def test_a_part_that_hardly_ever_pays_while_the_sum_rises_is_a_warning_unless_it_is_the_format() -> None:
    for name, word in (("f", "warning"), ("soft_format", "healthy")):
        part = np.random.default_rng(4).binomial(512, np.full(N, 0.002)) / 512
        other = 0.2 + 0.5 * U + noise(0.02)
        assert said(series.run({"reward": part + other, f"component/{name}": part, "component/g": other})).word == word


def test_dead_groups_follow_from_rewards_without_spread() -> None:
    reward, dead = 1.3 + noise(0.05), np.random.default_rng(5).random(N) < 0.9
    run = series.run({"reward": reward, "reward_std": np.where(dead, 0.0, 0.4)})
    judged = said(run)
    assert (judged.word, judged.fault) == ("failing", "starved")
    assert said(series.run({"reward": reward, "reward_std": np.full(N, 0.4)})).word == "cannot tell"


@pytest.mark.parametrize("key", ["frac_zero_std", "zero_advantage_group_ratio", "train/frac_reward_zero_std"])
def test_other_names_of_the_share_of_dead_groups_are_read(tmp_path: Path, key: str) -> None:
    path = tmp_path / "log.csv"
    lines = [f"step,reward,{key}", *(f"{i},{RISES[i]:.4f},{0.5 + 0.002 * i:.4f}" for i in range(N))]
    path.write_text("\n".join(lines))
    assert read(path).table["dead_fraction"][10] == pytest.approx(0.52)


def evaluated(first: float, last: float) -> Run:
    """A run whose reward rises, evaluated at its start and at its end alone."""
    run = series.run({"reward": RISES})
    held = Evaluations.of_rows([(1, "accuracy", first, np.nan, 0, ""), (N, "accuracy", last, np.nan, 0, "")])
    return Run(run.meta, run.config, run.table, run.groups, held)


def test_a_held_out_score_at_start_and_end_alone_is_the_outcome() -> None:
    judged = said(evaluated(0.52, 0.31))
    assert judged.word == "failing"
    assert "held-out accuracy 52% → 31%" in judged.line
    assert said(evaluated(0.52, 0.50)).word == "healthy"


def test_a_second_held_out_score_that_collapses_is_mentioned() -> None:
    run = series.run({"reward": RISES})
    steps, u = np.arange(10, N + 1, 10), np.arange(20) / 20
    for last, mentioned in ((0.1, True), (0.6, False)):
        scores = {"pass@1": 0.3 + 0.4 * u + noise(0.005, 1, 20), "other/accuracy": 0.6 + (last - 0.6) * u}
        rows = [(int(step), name, float(values[i] + 0.002 * (-1) ** i), np.nan, 0, "")
                for name, values in scores.items() for i, step in enumerate(steps)]  # fmt: skip
        judged = said(Run(run.meta, run.config, run.table, run.groups, Evaluations.of_rows(rows)))
        assert any("other/accuracy fell from 60% to" in remark for remark in judged.remarks) == mentioned


def average(values: np.ndarray, weight: float) -> np.ndarray:
    """The exponential average of values (n,), with this weight of the last one."""
    mean = np.full(len(values), values[:10].mean())
    for i in range(1, len(values)):
        mean[i] = (1 - weight) * mean[i - 1] + weight * values[i]
    return mean


def test_a_smoothed_reward_that_goes_nowhere_is_rarely_failing_and_one_that_falls_is() -> None:
    words = [said(series.run({"reward": average(1.7 + noise(0.4, seed), 0.1)})).word for seed in range(12)]
    assert words.count("failing") <= 1
    falls = average(1.7 - 1.2 * np.clip(4 * (U - 0.5), 0, 1) + noise(0.4), 0.1)
    assert said(series.run({"reward": falls})).word == "failing"


def test_shares_in_per_cent_are_shares() -> None:
    few, all_of_them = (
        series.run({"reward": 1.3 + noise(0.05), "length": 300 + noise(9), "truncated": cut})
        for cut in (1.2 + noise(0.1), np.full(N, 100.0))
    )
    assert grade(few, "length") == "excluded"
    assert grade(all_of_them, "length") == "failing"


def test_a_collapse_within_the_first_rows_is_one() -> None:
    table = {"reward": 1.3 + noise(0.05), "length": 400 * np.where(U < 0.06, 1.0, 0.04) * np.exp(noise(0.05))}
    assert grade(series.run(table), "length") in ("failing", "warning")
    table["length"] = 400 * np.where(U < 0.06, 1.0, 0.5) * np.exp(noise(0.05))
    assert grade(series.run(table), "length") == "excluded"


def test_a_hump_that_ends_well_above_its_start_is_a_warning_and_one_that_falls_back_fails() -> None:
    rise = 1.2 + 1.2 * np.minimum(2 * U, 1)
    ends = [
        said(series.run({"reward": rise - loss * np.clip(2 * U - 1, 0, 1) + noise(0.05)})).word for loss in (0.45, 1.1)
    ]
    assert ends == ["warning", "failing"]


def test_games_of_one_evaluation_are_averaged(tmp_path: Path) -> None:
    rng, lines = np.random.default_rng(0), ["log_type,step,final_reward,solved"]
    for step in range(1, N + 1):
        lines.append(f"train,{step},{rng.normal(10, 30):.3f},{int(rng.random() < 0.3)}")
        if step % 20 == 0:
            lines += [
                f"eval,{step},{rng.normal(10, 30):.3f},{int(rng.random() < 0.1 + 0.6 * step / N)}" for _ in range(25)
            ]
    path = tmp_path / "games.csv"
    path.write_text("\n".join(lines))
    run = read(path)
    assert set(run.evaluations.of("solved").n) == {25}
    assert "held-out solved" in said(run).line
    assert said(run).word == "healthy"


def averaged(rng: np.random.Generator, n: int, alpha: float, rise: float = 0.0) -> np.ndarray:
    """Exponential average (n,) of white noise about a level, or about a rise, from its first row or long before."""
    rows = 0.4 + 0.05 * rng.normal(size=n + 200) + rise * np.clip((np.arange(n + 200) - 200) / n, 0, 1)
    rows = rows if rng.random() < 0.5 else rows[200:]
    mean = [rows[0]]
    for row in rows[1:]:
        mean.append(alpha * mean[-1] + (1 - alpha) * row)
    return np.array(mean[-n:])


@pytest.mark.slow
def test_averaged_rewards_show_little() -> None:
    """A flat reward that a logger averaged is neither failing nor healthy; a plain rise still is."""
    words = {"flat": [], "rising": []}  # type: dict[str, list[str]]
    for seed in range(24):
        rng = np.random.default_rng([17, seed])
        n, alpha = int(rng.choice([60, 120, 250])), float(rng.choice([0.8, 0.9, 0.95, 0.98]))
        for kind, rise in (("flat", 0.0), ("rising", 0.4)):
            run = series.run(series.healthy(seed, n) | {"reward": averaged(rng, n, alpha, rise)})
            words[kind].append(verdict(run, diagnose(run)).word)
    assert sum(word != "cannot tell" for word in words["flat"]) <= 2, words
    assert words["rising"].count("healthy") >= 20, words


def test_a_gain_is_measured_by_the_spread_where_no_range_is_stated() -> None:
    """0.05 → 0.065 beside a spread of 0.1 within groups is a gain, though little of [0, 1]; beside 0.5 it is none."""
    rng = np.random.default_rng(3)
    reward = 0.05 + 0.015 * np.clip(np.arange(140) / 60, 0, 1) + 0.008 * rng.normal(size=140)
    words = [
        verdict(run, diagnose(run)).word
        for spread in (0.1, 0.5)
        for run in [series.run(series.healthy(0, 140) | {"reward": reward, "reward_std": np.full(140, spread)})]
    ]
    assert words == ["healthy", "cannot tell"]


def test_held_out_scores_that_decide_nothing_are_not_said_to_be_missing() -> None:
    table = series.healthy(0, 120)
    rows = [(60, "accuracy", 0.4, math.nan, 0, ""), (120, "accuracy", 0.41, math.nan, 0, "")]
    run = series.run(table)
    evaluated = Run(run.meta, run.config, run.table, run.groups, Evaluations.of_rows(rows))
    assert said(run).line.endswith("; held-out not logged")
    assert said(evaluated).line.endswith("; held-out undecided")
