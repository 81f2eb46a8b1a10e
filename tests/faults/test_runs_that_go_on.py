"""A run that goes on has not failed by what sound runs begin with and outgrow, nor by what may come back."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic_series as made

from grposcope.core.run import Run
from grposcope.faults.judge import diagnose
from grposcope.faults.looks import first_rows
from grposcope.signs import run_outcome
from grposcope.watch.alarms import Alarms

ROWS = 260


def grades(run: Run, status: str = "running") -> dict[str, str]:
    """Fault -> grade, of what is present."""
    return {
        finding.fault: str(finding.grade) for finding in diagnose(first_rows(run, run.steps, status)) if finding.present
    }


def starved(all_dead: bool = False) -> Run:
    """A reward that stays near its least, and nine groups of ten dead, or all of them."""
    table = made.healthy(n=ROWS)
    rng = np.random.default_rng(3)
    table["reward"] = 0.03 + 0.004 * made.ar1(rng, ROWS, 0.2)
    table["dead_fraction"] = np.ones(ROWS) if all_dead else np.clip(0.92 + 0.02 * made.ar1(rng, ROWS, 0.2), 0, 0.98)
    return made.run(table)


@pytest.mark.parametrize(("rows", "status", "grade"), [
    (70, "running", "warning"), (70, "finished", "failing"), (70, "unknown", "failing"), (199, "running", "warning"),
    (200, "running", "failing"),
])  # fmt: skip
def test_few_live_groups_from_the_first_rows_fail_a_run_that_goes_on_once_they_last(
    rows: int, status: str, grade: str
) -> None:
    assert grades(first_rows(starved(), rows), status)["starved"] == grade


def test_a_run_in_which_nothing_can_be_learned_has_failed_at_once() -> None:
    assert grades(first_rows(starved(all_dead=True), 70))["starved"] == "failing"


def test_groups_that_die_later_fail_a_run_that_goes_on() -> None:
    table = made.healthy(n=ROWS)
    table["dead_fraction"][60:] = np.clip(0.95 + table["dead_fraction"][60:] / 4, 0, 0.99)
    table["reward"][:] = 0.2 + 0.01 * made.ar1(np.random.default_rng(1), ROWS, 0.2)
    assert grades(first_rows(made.run(table), 100))["starved"] == "failing"


@pytest.mark.parametrize(("left", "status", "grade"), [
    (0.45, "running", "warning"), (0.45, "finished", "failing"), (0.25, "running", "failing"),
])  # fmt: skip
def test_a_reward_that_lost_a_part_of_its_gain_may_return(left: float, status: str, grade: str) -> None:
    """From 0.3 it rose to 0.7, and fell to `left`."""
    level = np.interp(np.arange(120), [0, 60, 70, 120], [0.3, 0.7, left, left])
    table = made.healthy() | {"reward": level + 0.02 * made.ar1(np.random.default_rng(2), 120, 0.2)}
    assert grades(made.run(table), status)["reward decline"] == grade


@pytest.mark.parametrize(("status", "grade"), [("running", "warning"), ("finished", "failing")])
def test_what_swings_comes_back(status: str, grade: str) -> None:
    rng = np.random.default_rng(5)
    level = 0.5 + 0.3 * np.sin(2 * np.pi * np.arange(ROWS) / 13)
    table = {"reward": level + 0.05 * rng.normal(size=ROWS)}
    assert grades(made.run(table), status)["oscillation"] == grade


def test_the_last_look_is_at_a_run_that_is_over() -> None:
    run = first_rows(starved(), 70)
    alarms = Alarms()
    assert {alarm.grade for alarm in alarms.look(run) if alarm.fault == "starved"} == {"warning"}
    assert {alarm.grade for alarm in alarms.look(run, last=True) if alarm.fault == "starved"} == {"failing"}


def test_a_fall_that_is_not_plain_to_see_is_a_warning_while_the_run_goes_on() -> None:
    rng = np.random.default_rng(4)
    run = made.run({"reward": 0.66 - 0.16 * made.U + 0.05 * rng.normal(size=120)})
    assert run_outcome.of_run(run).state == "down"
    assert (grades(run)["reward decline"], grades(run, "finished")["reward decline"]) == ("warning", "failing")
