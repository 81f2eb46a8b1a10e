"""What is said of findings: the verdict and its clauses, descriptions, alarms."""

from __future__ import annotations

import math

import numpy as np

import synthetic_series as made
from grposcope.diagnosis import Evidence, Finding, diagnose
from grposcope.diagnosis.alarms import Alarm, wanted
from grposcope.diagnosis.findings import GRADES
from grposcope.facts.diagnosis import alarm_alert, alarm_line, describe, exceeds, flagged_modes, verdict


def finding(mode: str, status: str, *evidence: Evidence) -> Finding:
    grade = None if status not in GRADES else status
    status = "flagged" if grade else status
    return Finding(mode, status, "it fell", evidence, "do it", "", 0.01, 0.02, 0.98, 1234, ("kl",), grade=grade)  # type: ignore[arg-type]


def test_the_sentence_is_the_conclusion_and_its_clauses() -> None:
    run = made.run(made.healthy())
    findings = [finding("length", "failing"), finding("kl blow-up", "warning"), finding("starved", "cannot tell")]
    said = verdict(run, findings)
    assert (said.word, said.conclusion) == ("failing", "failing: length, since step 1,234")
    assert said.clauses[0] == "because it fell"
    assert said.clauses[1].startswith("training reward rose from ")
    assert said.clauses[2:] == ("do: do it (and 1 more)",)
    assert str(said).startswith("failing: length, since step 1,234, because it fell; training reward rose from ")
    assert flagged_modes(findings) == ["length", "kl blow-up"]
    assert str(verdict(run, [finding("no learning", "warning")])).startswith("warning: no learning, since")


def test_what_stands_beside_healthy_learning_is_a_note() -> None:
    said = verdict(made.run(made.healthy()), [finding("entropy collapse", "note")])
    assert said.word == "healthy"
    assert str(said).startswith("healthy: training reward rose from ")
    assert str(said).endswith("; note: entropy collapse: it fell")


def test_a_grade_is_exceeded_by_findings_and_by_the_verdict() -> None:
    run = made.run(made.healthy())
    for grade, exceeded in (
        ("failing", [True, True, True]),
        ("warning", [False, True, True]),
        ("note", [False, False, True]),
    ):
        findings = [finding("length", grade)]
        said = [exceeds(verdict(run, findings), findings, wanted([limit])) for limit in GRADES]
        assert said == exceeded
    assert not any(exceeds(verdict(run, []), [], wanted([limit])) for limit in GRADES)
    assert exceeds(verdict(run, findings), findings, wanted(["failing", "length"]))
    assert not exceeds(verdict(run, findings), findings, wanted(["starved"]))


def test_without_a_flag_the_reward_decides_and_what_is_untold_is_named() -> None:
    table = made.healthy()
    healthy = verdict(made.run(table), [finding("starved", "cannot tell"), finding("length", "ok")])
    assert healthy.conclusion.startswith("healthy: training reward rose from ")
    assert healthy.clauses == ("cannot tell: starved",)
    many = [finding(mode, "cannot tell") for mode in ("starved", "length", "saturated", "oscillation", "zero loss")]
    assert verdict(made.run(table), many).clauses == ("cannot tell: starved, length, saturated and 2 more",)
    table["reward"] = np.full(120, 0.4) + 0.01 * made.ar1(np.random.default_rng(0), 120, 0.0)
    flat = verdict(made.run(table), [finding("starved", "cannot tell")])
    assert flat.conclusion.startswith("cannot tell: training reward stayed at 0.")
    assert flat.clauses == ("not enough is logged for: starved",)
    short = made.run({name: column[:12] for name, column in table.items()})
    assert str(verdict(short, diagnose(short))) == "cannot tell: 12 rows of reward are fewer than 30"


def test_a_finding_in_words() -> None:
    numbers = (Evidence("kl, last tenth", 0.51234, 0.0123, "limit 0.5"), Evidence("spikes", 3.0, math.nan))
    described = describe(finding("kl blow-up", "cannot tell", *numbers))
    assert described.evidence == ("kl, last tenth 0.5123 ± 0.012 (limit 0.5)", "spikes 3")
    assert list(described.to_log) == ["kl"]
    assert "TRL" in described.to_log["kl"]


def test_an_alarm_in_words() -> None:
    alarm = Alarm("length", "warning", 2000, 1500, 0.99, "it grew", "cut it")
    assert alarm_line(alarm) == "step 2,000: warning: length, since step 1,500, because it grew; do: cut it"
    alert = alarm_alert(alarm, "RUN")
    assert (alert.title, alert.grade, alert.mode, alert.step) == (
        "warning: length, since step 1,500",
        "warning",
        "length",
        2000,
    )
    assert alert.text == "step 2,000, because it grew; do: cut it"
    message = alert.document
    assert message["text"] == f"RUN: {alarm_line(alarm)}"
    assert (message["mode"], message["step"], message["onset"]) == ("length", 2000, 1500)
