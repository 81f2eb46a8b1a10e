"""The table of words, cell by cell: what stands in it, and that a made-up run of each state gets its words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import synthetic_series as series

from grposcope.core.estimate import Estimate
from grposcope.core.run import Run
from grposcope.instruments.diagnosis import diagnose, first_line
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.signs import run_outcome, words
from grposcope.signs.outcome import Outcome, State

N = 200
U = np.arange(N) / N

EXPECTED = """
up        | healthy     | warning | failing | beside
small     | healthy     | warning | failing | instead
stalled   | healthy     | warning | failing | instead
top       | healthy     | warning | failing | beside
proxy     | warning     | warning | failing | instead
hump      | warning     | warning | failing | instead, at most a warning
lost      | failing     | failing | failing | instead
down      | warning     | warning | failing | instead
level     | cannot tell | warning | failing | instead
undecided | cannot tell | warning | failing | instead, at most a warning
"""
"""State | first word without a fault, with a warning, with a failing one | how a fault that a test shows is graded."""

CELLS = [tuple(cell.strip() for cell in line.split("|")) for line in EXPECTED.strip().splitlines()]


def test_every_state_has_a_row_of_each_table() -> None:
    states = {state for state, *_ in CELLS}
    assert states == set(words.MEANING) == set(words.WORDS) == set(words.GRADED) == set(words.SAYS)
    assert all(set(row) == set(words.LOGGED) for row in words.SAYS.values())


@pytest.mark.parametrize(("state", "alone", "warned", "failed", "graded"), CELLS)
def test_first_words_and_grades(state: State, alone: str, warned: str, failed: str, graded: str) -> None:
    said = [words.word(state, worst) for worst in ("none", "warning", "failing")]
    assert said == [alone, warned, failed]
    assert words.weighed(state, "shown") == graded
    assert words.weighed(state, "fact") == graded.partition(",")[0]


LEVEL = Estimate(0.3, 0.01, N)


@pytest.mark.parametrize("logged", words.LOGGED)
@pytest.mark.parametrize("state", words.WORDS)
def test_a_first_line_says_what_is_not_logged_and_is_short(state: State, logged: words.Logged) -> None:
    made: dict[str, Outcome] = {
        "up": Outcome("learned"), "small": Outcome("learned", small=True), "stalled": Outcome("stalled"),
        "top": Outcome("solved"), "proxy": Outcome("learned", proxy=True, answers=("accuracy", LEVEL, LEVEL)),
        "hump": Outcome("lost", above=True), "lost": Outcome("lost"), "down": Outcome("fell"),
        "level": Outcome("flat"), "undecided": Outcome("cannot tell"),
    }  # fmt: skip
    outcome = replace(made[state], name="reward", start=LEVEL, best=LEVEL, end=Estimate(0.5, 0.01, N), before=LEVEL)
    assert outcome.state == state
    word = words.word(state, "none")
    line = first_line.of_outcome(word, outcome, N, logged, ("held-out", "groups", "entropy", "lengths"))
    assert line.startswith(f"{word}: reward 0.3 → 0.5 in 200 steps")
    assert len(line) <= first_line.MOST
    said = {
        "reward only": "only the reward is logged",
        "few": "not logged: held-out, groups",
        "failures": "held-out not",
    }
    gained = state in ("up", "small", "stalled", "top")
    assert (said.get(logged, "|") in line) == ((gained and logged != "held-out") or (state, logged) in (
        ("level", "few"), ("level", "reward only"),
    ))  # fmt: skip
    assert ("gaming cannot be excluded" in line) == (gained and logged == "reward only")
    assert ("accuracy stayed 0.3 → 0.3" in line) == (state == "proxy")


def made(level: np.ndarray, noise: float = 0.03, **beside: np.ndarray) -> Run:
    """A run with this mean reward and nothing else but the columns `beside`."""
    return series.run({"reward": level + noise * np.random.default_rng(0).normal(size=N), **beside})


RUNS: dict[str, Run] = {
    "up": made(1.2 + 0.6 * U),
    "small": made(0.45 + 0.04 * U, 0.003),
    "stalled": made(0.1 + 0.2 * np.minimum(3 * U, 1)),
    "top": made(0.93 + 0 * U, 0.01),
    "lost": made(0.3 + 0.5 * np.sin(np.pi * np.minimum(1.2 * U, 1))),
    "hump": made(1.2 + 1.2 * np.minimum(2 * U, 1) - 0.45 * np.clip(2 * U - 1, 0, 1), 0.05),
    "down": made(0.5 - 0.1 * U, 0.01),
    "level": made(0.4 + 0 * U, 0.01),
    "proxy": made(1.2 + 0.6 * U, accuracy=0.1 + 0.03 * np.random.default_rng(1).normal(size=N)),
    "undecided": series.run({"reward": 2 + np.random.default_rng(3).normal(size=40)}),
}
"""A run of each state."""


@pytest.mark.parametrize("state", RUNS)
def test_a_run_of_each_state_is_told_as_the_table_says(state: State) -> None:
    run = RUNS[state]
    outcome = run_outcome.of_run(run)
    assert outcome.state == state
    findings = diagnose(run)
    grades = {finding.grade for finding in findings}
    worst = "failing" if "failing" in grades else "warning" if "warning" in grades else "none"
    judged = verdict(run, findings)
    assert judged.word == words.word(state, worst)
    if worst == "none" and state not in ("hump", "lost", "down"):
        logged = "few" if state == "proxy" else "reward only"
        tail = words.tails(state, logged)[0].partition("{")[0]
        assert tail in judged.line
