"""The first line of a verdict: how it is made shorter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import synthetic_series as made

from grposcope.core.estimate import Estimate
from grposcope.core.finding import Finding
from grposcope.instruments.diagnosis import first_line
from grposcope.signs import run_outcome
from grposcope.signs.outcome import Outcome

START, END = Estimate(0.4, 0.01, 9), Estimate(0.45, 0.01, 9)
OUTCOME = Outcome("stalled", "pass@1", heldout=True, start=START, end=END, best=END, before=START, last=60)


def line(cause: str) -> str:
    """The line of a run of 60 steps for a cause that is certain."""
    proved = Finding("constant reward", "present", "fact", cause, cause, grade="failing")
    return first_line.of_finding("failing", OUTCOME, proved, 60)


def test_what_fits_is_said_whole() -> None:
    assert line("x" * 50) == f"failing: {'x' * 50}; held-out accuracy 40% → 45% in 60 steps"


def test_the_levels_stay_longer_than_the_length_of_the_run() -> None:
    assert line("x" * 65) == f"failing: {'x' * 65}; held-out accuracy 40% → 45%"


def test_a_cause_without_room_for_the_levels_stands_alone() -> None:
    assert line("x" * 90) == f"failing: {'x' * 90}"
    assert line("x" * 200) == f"failing: {'x' * 100}…"


def test_a_long_name_of_a_score_loses_whole_parts() -> None:
    assert first_line.short("val-aux/aime_2024/reward/mean@32") == "…/aime_2024/reward/mean@32"
    assert first_line.short("val-core/gsm8k/acc/mean@1") == "val-core/gsm8k/acc/mean@1"
    assert first_line.short("x" * 40) == "…" + "x" * (first_line.NAME - 1)


@pytest.mark.parametrize(
    ("last", "says"),
    [(0.047, "stayed 0.047 → 0.047"), (0.0019, "fell 0.047 → 0.0019"), (0.04, "went 0.047 → 0.04")],
)
def test_right_answers_stay_only_where_they_do(last: float, says: str) -> None:
    answers = ("component/accuracy_reward", Estimate(0.047, 0.01, 9), Estimate(last, 0.01, 9))
    outcome = Outcome("learned", "reward", start=START, end=END, best=END, before=START, proxy=True, answers=answers)
    assert f" accuracy_reward {says}" in first_line.of_outcome("warning", outcome, 80, "failures", ()).replace(
        "component/", " "
    )


def test_the_steps_of_a_fall_reach_back_to_the_last_evaluation_above_it() -> None:
    """Evaluations every 20 steps, of which that at step 120 is the last high one, and noise between them."""
    scores = np.array([0.3, 0.5, 0.62, 0.66, 0.68, 0.67, 0.34, 0.1, 0.04, 0.05, 0.04, 0.03])
    reward = np.where(np.arange(240) < 130, 0.65, 0.05) + 0.01 * made.ar1(np.random.default_rng(0), 240, 0.0)
    outcome = run_outcome.of_run(made.run({"reward": reward}, scores))
    assert outcome.high == 120
    assert "68% → 4" in first_line.levels(replace(outcome, sudden=False), 240)
    assert first_line.levels(replace(outcome, sudden=False), 240).endswith(", down since step 120")
