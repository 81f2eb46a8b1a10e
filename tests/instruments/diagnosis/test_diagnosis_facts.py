"""What is said of findings: the verdict and its clauses, descriptions, alarms."""

from __future__ import annotations

import math

import numpy as np
import synthetic_series as made

from grposcope.core.finding import GRADES, Finding, Sign, at
from grposcope.instruments.diagnosis import answer, diagnose
from grposcope.instruments.diagnosis.verdict import present_faults, verdict
from grposcope.watch.alarms import wanted
from grposcope.watch.wording import alarm_alert, alarm_line, exceeds


def finding(mode: str, status: str, *evidence: Sign) -> Finding:
    grade = None if status not in GRADES else status
    status = "present" if grade else status
    return Finding(
        mode, status, because="it fell", evidence=evidence, remedy="do it", p=0.01, adjusted=0.02, since=at(1234),  # type: ignore[arg-type]
        missing=("kl",), grade=grade,  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_sentence_is_the_conclusion_and_its_clauses() -> None:
    run = made.run(made.healthy())
    findings = [finding("length", "failing"), finding("kl blow-up", "warning"), finding("starved", "cannot tell")]
    said = verdict(run, findings)
    assert (said.word, said.fault) == ("failing", "length")
    assert said.line == str(said) == "failing: reward 0.32 → 0.66 in 120 steps; length since step 1,234"
    assert said.clauses[:2] == ("what to do: do it. 1 more problem found", "because it fell")
    assert said.clauses[2].startswith("training reward rose from ")
    assert present_faults(findings) == ["length", "kl blow-up"]
    assert verdict(run, [finding("no learning", "warning")]).line.endswith("in 120 steps, no gain")


def test_what_stands_beside_healthy_learning_is_a_note() -> None:
    said = verdict(made.run(made.healthy()), [finding("entropy collapse", "note")])
    assert said.word == "healthy"
    assert str(said) == "healthy: reward 0.32 → 0.66 in 120 steps; held-out not logged"
    assert said.clauses[-1] == "note: entropy collapse: it fell"


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
    healthy = verdict(made.run(table), [finding("starved", "cannot tell"), finding("length", "excluded")])
    assert healthy.word == "healthy"
    assert healthy.clauses[0].startswith("training reward rose from ")
    assert healthy.clauses[1:] == ("cannot tell: starved",)
    many = [finding(mode, "cannot tell") for mode in ("starved", "length", "saturated", "oscillation", "zero loss")]
    assert verdict(made.run(table), many).clauses[1:] == ("cannot tell: starved, length, saturated and 2 more",)
    table |= {
        "lr": np.full(120, 2e-6),
        "reward": np.full(120, 0.4) + 0.01 * made.ar1(np.random.default_rng(0), 120, 0.0),
    }
    flat = verdict(made.run(table), [finding("starved", "cannot tell")])
    assert flat.line == "cannot tell: reward 0.4 → 0.4 in 120 steps, no gain shown and no cause found"
    holds = "gradient, weights, learning rate, grader, room, groups and horizon pass"
    ladder = f"checks of a run without a gain: {holds}; not answerable: sampler (-v says what to log)"
    assert "(the log does not answer: Do the moved weights draw the rollouts?)" in flat.remedy
    assert flat.clauses[2:] == (ladder, "the log has too little data for: starved")
    short = made.run({name: column[:12] for name, column in table.items()})
    assert str(verdict(short, diagnose(short))) == "cannot tell: reward 0.4 → 0.39 in 12 steps, too short to judge"


def test_findings_in_words() -> None:
    numbers = (Sign("kl, last tenth", 0.51234, 0.0123, "limit 0.5"), Sign("spikes", 3.0, math.nan))
    findings = [finding("kl blow-up", "failing", *numbers), finding("starved", "cannot tell")]
    said = answer.of_run(made.run(made.healthy()), findings)
    assert said.sentence == "Failing: reward 0.32 → 0.66 in 120 steps; kl blow-up since step 1,234"
    assert (said.do, said.text[0]) == ("do it", "Because it fell.")
    flagged, evidence, rest, _ = said.tables
    assert flagged.rows == [("kl blow-up", "✗ failing", "1,234", "0.980", "0.01", "it fell")]
    assert [row[1:] for row in evidence.rows] == [
        ("kl, last tenth", "0.512", "0.012", "limit 0.5"),
        ("spikes", "3", "", ""),
    ]
    assert rest.rows == [("starved", "? cannot tell", "it fell")]
    (missing,) = said.missing
    assert missing.startswith("Not logged: kl.")


def test_an_alarm_in_words() -> None:
    alarm = Finding(
        "length",
        "present",
        because="it grew",
        remedy="cut it",
        adjusted=0.01,
        grade="warning",
        since=at(1500),
        seen=2000,
    )
    assert alarm_line(alarm) == "step 2,000: warning: length, since step 1,500, because it grew; what to do: cut it"
    alert = alarm_alert(alarm, "RUN")
    assert (alert.title, alert.grade, alert.fault, alert.step) == (
        "warning: length, since step 1,500",
        "warning",
        "length",
        2000,
    )
    assert alert.text == "step 2,000, because it grew; what to do: cut it"
    message = alert.document
    assert message["text"] == f"RUN: {alarm_line(alarm)}"
    assert (message["fault"], message["seen"], message["since"]["step"]) == ("length", 2000, 1500)
