"""Alarms: the level that each look spends, what is news, and where they go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.core.finding import Finding, Grade, at
from grposcope.core.run import Meta, Run, no_evaluations, no_groups
from grposcope.watch import alarms
from grposcope.watch.alarms import Alarms, Wanted, wanted
from grposcope.watch.wording import alarm_line


def run(rows: int) -> Run:
    table = {"step": np.arange(1.0, rows + 1), "reward": np.ones(rows)}
    return Run(Meta(Path("x"), "made up", "x", "running"), {}, table, no_groups(), no_evaluations())


def finding(mode: str, flagged: bool, onset: int | None = None, p: float = 1e-9, grade: Grade = "failing") -> Finding:
    return Finding(
        mode, "present" if flagged else "excluded", because="why", remedy="do", p=p, adjusted=p, since=at(onset),
        grade=grade if flagged else None,
    )  # fmt: skip


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `diagnose` returns, and the levels it was asked for."""
    said: dict[str, Any] = {"findings": (), "levels": []}

    def diagnose(_: Run, level: float) -> tuple[Finding, ...]:
        said["levels"].append(level)
        return tuple(said["findings"])

    monkeypatch.setattr(alarms, "diagnose", diagnose)
    return said


def test_between_scheduled_looks_an_alarm_has_to_be_surer(judge: dict[str, Any]) -> None:
    """The diagnosis is asked for at the whole level at every look, and what it finds is shown; an alarm needs more."""
    watched = Alarms()
    judge["findings"] = [finding("length", True, 20, p=0.01)]
    watched.look(run(31))  # the first look passes those at 10, 20 and 30
    assert [alarm.fault for alarm in watched.raised] == ["length"]
    judge["findings"] += [finding("non-finite", True, 20, p=0.0), finding("kl blow-up", True, 20, p=0.01)]
    assert [alarm.fault for alarm in watched.look(run(40))] == ["non-finite"]
    assert [shown.fault for shown in watched.findings] == ["length", "non-finite", "kl blow-up"]
    assert [alarm.fault for alarm in watched.look(run(45))] == ["kl blow-up"]
    judge["findings"] += [finding("starved", True, 20, p=1e-5)]
    assert [alarm.fault for alarm in watched.look(run(46))] == ["starved"]
    assert set(judge["levels"]) == {0.05}


def test_a_resumed_run_was_looked_at_before(judge: dict[str, Any]) -> None:
    judge["findings"] = [finding("length", True, 20, p=0.01)]
    assert [len(Alarms(rows=rows).look(run(48))) for rows in (0, 44, 45, 47)] == [1, 1, 0, 0]


def test_what_is_news(judge: dict[str, Any]) -> None:
    watched, seen = Alarms(), []
    looks = [
        (30, True, 10),  # new
        (40, True, 12),  # the same, its onset wanders
        (50, False, None),
        (60, True, 25),  # flagged again, but for what began before the alarm
        (70, False, None),
        (80, True, 65),  # began after it
        (90, True, 85),  # still flagged, its onset wanders past the alarm
    ]
    for rows, flagged, onset in looks:
        judge["findings"] = [finding("length", flagged, onset)]
        seen += [(alarm.seen, alarm.onset) for alarm in watched.look(run(rows))]
    assert seen == [(30, 10), (80, 65)]
    assert watched.raised[0] == replace(finding("length", True, 10), seen=30)
    assert alarm_line(watched.raised[0]) == "step 30: failing: length, since step 10, because why; what to do: do"


def test_a_run_that_goes_back_is_judged_anew(judge: dict[str, Any]) -> None:
    watched = Alarms()
    judge["findings"] = [finding("length", True, 10)]
    assert len(watched.look(run(50))) == 1
    assert not watched.due(54)
    assert watched.due(56)
    assert watched.due(35)
    assert len(watched.look(run(35))) == 1
    assert len(watched.raised) == 1


def test_minor_modes_are_raised_if_asked_for(judge: dict[str, Any]) -> None:
    judge["findings"] = [finding("no learning", True), finding("length", True)]
    assert [alarm.fault for alarm in Alarms().look(run(50))] == ["length"]
    assert [alarm.fault for alarm in Alarms(minor={"no learning"}).look(run(50))] == ["no learning", "length"]


def test_nothing_to_judge() -> None:
    watched = Alarms()
    assert not watched.due(0)
    assert watched.look(run(0)) == []


def test_a_note_that_becomes_a_failure_is_news(judge: dict[str, Any]) -> None:
    """Whatever its onset; and a failure that becomes a note again is none."""
    watched, grades = Alarms(), ("note", "note", "failing", "failing", "note", "warning")
    seen = []
    for rows, grade in zip(range(30, 90, 10), grades, strict=True):
        judge["findings"] = [finding("length", True, 10, grade=grade)]  # type: ignore[arg-type]
        seen += [(alarm.seen, alarm.grade) for alarm in watched.look(run(rows))]
    assert seen == [(30, "note"), (50, "failing")]


def test_modes_and_grades_by_name() -> None:
    assert not wanted([])
    assert wanted(["no learning"]) == Wanted(frozenset({"no learning"}))
    assert wanted(["failing", "note", "length"]) == Wanted(frozenset({"length"}), "note")
    with pytest.raises(UserError, match=r"^'lenght' is neither a grade nor a fault; give failing, warning, note, or"):
        wanted(["lenght"])


def test_a_grade_covers_the_worse_ones_but_no_minor_mode() -> None:
    warned = wanted(["warning", "zero loss"])
    assert warned.covers("length", "failing")
    assert warned.covers("length", "warning")
    assert not warned.covers("length", "note")
    assert not warned.covers("no learning", "warning")
    assert warned.covers("zero loss", "note")
