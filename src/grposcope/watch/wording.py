"""What is said of an alarm and of a verdict to whoever watches a run: a line, an alert, and whether it is bad
enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from grposcope.instruments.diagnosis.findings import GRADES, Finding
from grposcope.instruments.diagnosis.verdict import Verdict, conclusion, flagged_modes
from grposcope.watch.alarms import Alarm, Wanted, at_least
from grposcope.watch.alerts import Alert


def exceeds(verdict: Verdict, findings: Sequence[Finding], wanted: Wanted) -> bool:
    """Whether a mode that is wanted is flagged, or the verdict or any flagged mode is of the wanted grade or worse."""
    grades = [finding.grade for finding in findings if finding.grade is not None]
    grades += [grade for grade in GRADES if grade == verdict.word]
    too_bad = any(at_least(grade, wanted.grade) for grade in grades) if wanted.grade is not None else False
    return too_bad or bool(wanted.modes.intersection(flagged_modes(findings)))


def alarm_line(alarm: Alarm) -> str:
    """An alarm in one line."""
    what = conclusion(alarm.grade, alarm.mode, alarm.onset)
    return f"step {alarm.step:,}: {what}, {_why_and_what_to_do(alarm)}"


def alarm_alert(alarm: Alarm, source: str) -> Alert:
    """What the receivers of alerts are told of an alarm in the run `source`."""
    title = conclusion(alarm.grade, alarm.mode, alarm.onset)
    text = f"step {alarm.step:,}, {_why_and_what_to_do(alarm)}"
    document = {"text": f"{source}: {alarm_line(alarm)}", "run": source, **asdict(alarm)}
    return Alert(source, title, text, alarm.grade, alarm.mode, alarm.step, document)


def _why_and_what_to_do(alarm: Alarm) -> str:
    return f"because {alarm.because}; what to do: {alarm.advice}"


def verdict_alert(verdict: Verdict, findings: Sequence[Finding], source: str, step: int = 0, mode: str = "") -> Alert:
    """What the receivers of alerts are told of the verdict on a run `source` as a whole, at `step`.

    mode: a name under which the verdict itself is raised as an alarm, where no rule is flagged.
    """
    text = "; ".join((verdict.line, *verdict.clauses[:2]))
    document = {"text": f"{source}: {text}", "source": source, "grade": verdict.word,
                "flagged": flagged_modes(findings)}  # fmt: skip
    return Alert(source, verdict.line, "; ".join(verdict.clauses), verdict.word, mode, step, document)
