"""The first line of a verdict: how it is made shorter."""

from __future__ import annotations

import pytest

from grposcope.core.estimate import Estimate
from grposcope.core.finding import Finding
from grposcope.instruments.diagnosis import first_line
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
