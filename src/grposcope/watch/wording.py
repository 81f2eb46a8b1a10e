"""What is said of an alarm and of a verdict to whoever watches a run: a line, an alert, and whether it is bad
enough."""

from __future__ import annotations

from collections.abc import Sequence

from grposcope.core.finding import GRADES, Finding, document
from grposcope.instruments.diagnosis.verdict import Verdict, conclusion, present_faults
from grposcope.watch.advice import Advice
from grposcope.watch.alarms import Wanted, at_least
from grposcope.watch.alerts import Alert


def exceeds(verdict: Verdict, findings: Sequence[Finding], wanted: Wanted) -> bool:
    """Whether a mode that is wanted is flagged, or the verdict or any flagged mode is of the wanted grade or worse."""
    grades = [finding.grade for finding in findings if finding.grade is not None]
    grades += [grade for grade in GRADES if grade == verdict.word]
    too_bad = any(at_least(grade, wanted.grade) for grade in grades) if wanted.grade is not None else False
    return too_bad or bool(wanted.modes.intersection(present_faults(findings)))


def alarm_line(alarm: Finding) -> str:
    """An alarm in one line."""
    what = conclusion(str(alarm.grade), alarm.fault, alarm.since)
    return f"step {alarm.seen or 0:,}: {what}, {_why_and_what_to_do(alarm)}"


def alarm_alert(alarm: Finding, source: str) -> Alert:
    """What the receivers of alerts are told of an alarm in the run `source`."""
    title = conclusion(str(alarm.grade), alarm.fault, alarm.since)
    text = f"step {alarm.seen or 0:,}, {_why_and_what_to_do(alarm)}"
    content = {"text": f"{source}: {alarm_line(alarm)}", "run": source, **document(alarm)}
    return Alert(source, title, text, str(alarm.grade), alarm.fault, alarm.seen or 0, content)


def advice_alert(advice: Advice, source: str) -> Alert:
    """What the receivers of alerts are told of what an autopilot would do about the run `source`."""
    finding = advice.finding
    content = {"text": f"{source}: {advice}", "run": source, **advice.document()}
    text = f"{finding.brief}: {finding.because}"
    return Alert(source, f"advice: {advice.do}", text, str(finding.grade), finding.fault, finding.seen or 0, content)


def _why_and_what_to_do(alarm: Finding) -> str:
    return f"because {alarm.because}; what to do: {alarm.remedy}"


def verdict_alert(verdict: Verdict, findings: Sequence[Finding], source: str, step: int = 0, mode: str = "") -> Alert:
    """What the receivers of alerts are told of the verdict on a run `source` as a whole, at `step`.

    mode: a name under which the verdict itself is raised as an alarm, where no rule is flagged.
    """
    text = "; ".join((verdict.line, *verdict.clauses[:2]))
    content = {"text": f"{source}: {text}", "source": source, "grade": verdict.word,
                "present": present_faults(findings)}  # fmt: skip
    return Alert(source, verdict.line, "; ".join(verdict.clauses), verdict.word, mode, step, content)
