"""What the catalogue of faults finds in the whole run, and what an autopilot does about each, or why it cannot.

`diagnose` weighs the rows so far at scheduled looks (`faults.looks`) and an autopilot looks after every step, so they
may differ; they never do so without a word: of each fault that is failing at one of those looks it is said which
decision is about it, or what kept it from one and what a person does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from grposcope.core.answer import Word
from grposcope.core.finding import Finding
from grposcope.core.run import Run
from grposcope.core.text import visible
from grposcope.faults.judge import diagnose
from grposcope.faults.looks import first_rows, scheduled
from grposcope.instruments import has
from grposcope.instruments.autopilot.alarm import FAULTS, monitor_of
from grposcope.instruments.autopilot.events import Story
from grposcope.instruments.autopilot.pilot import Decision
from grposcope.instruments.autopilot.policy import AutopilotPolicy
from grposcope.instruments.autopilot.replay import ACCURACIES
from grposcope.signs.quantities import LEAST

ALSO = {"reward hacking": "heldout", "dead after a fall": "dead"}
"""Faults that a monitor sees a sign of, besides the one that it watches for."""


@dataclass(frozen=True)
class JudgedWhole:
    """What is known of the whole run. word, line, do: of the verdict, empty where nothing can judge. failing: the
    findings that are failing, in the order of what to look at first. before: those that were failing at a scheduled
    look and are not in the whole run. looks: fault -> the step of the first scheduled look at which it was failing."""

    word: Word = "told"
    line: str = ""
    do: str = ""
    failing: tuple[Finding, ...] = ()
    before: tuple[Finding, ...] = ()
    looks: Mapping[str, int] = field(default_factory=dict)


def of_run(run: Run) -> JudgedWhole:
    """The verdict on a run, and what is failing in it."""
    if not has("diagnosis"):
        return JudgedWhole()
    from grposcope.instruments.diagnosis.verdict import findings_of, verdict

    findings = findings_of(run)
    judged = verdict(run, findings)
    failing = tuple(finding for finding in findings if finding.present and finding.grade == "failing")
    seen: dict[str, Finding] = {}
    for rows in scheduled(run.steps):
        for finding in diagnose(first_rows(run, rows)):
            raised = rows >= LEAST or finding.basis == "fact"
            if raised and finding.present and finding.grade == "failing":
                seen.setdefault(finding.fault, replace(finding, seen=int(run.table["step"][rows - 1])))
    now = {finding.fault for finding in failing}
    before = tuple(finding for fault, finding in seen.items() if fault not in now)
    steps = {fault: finding.seen or 0 for fault, finding in seen.items()}
    return JudgedWhole(judged.word, visible(str(judged), 400), judged.do, failing, before, steps)


def word(seen: JudgedWhole, decisions: Sequence[Decision]) -> Word:
    """How bad a run is, never better than its verdict; a warning where there is something to do all the same."""
    if seen.word in ("failing", "warning"):
        return seen.word
    return "warning" if any(one.setting != "group" for one in decisions) else "told"


def sentences(run: Run, seen: JudgedWhole, story: Story, policy: AutopilotPolicy, would: bool) -> Iterator[str]:
    """The verdict where something is wrong, and of each failing fault what is done about it, or why nothing is.

    would: whether the decisions are what would have been done, not what was.
    """
    if seen.word in ("failing", "warning") and (seen.failing or not story.decisions):
        yield f"grposcope diagnose says of the whole run: {seen.line}."
        if seen.word == "failing" and not seen.failing:
            yield "No fault is named for that, so that an autopilot has nothing to act on."
        yield from _each(seen.failing, seen, run, story, policy, would)
    if seen.before:
        yield "Failing at a look while the run went on, and not in the whole of it:"
        yield from _each(seen.before, seen, run, story, policy, would)


def _each(
    findings: Sequence[Finding], seen: JudgedWhole, run: Run, story: Story, policy: AutopilotPolicy, would: bool
) -> Iterator[str]:
    """A sentence for each set of faults of which the same is said."""
    reasons: dict[str, list[str]] = {}
    for finding in findings:
        since = "" if finding.since is None else f" {finding.since}"
        alarm = f" (alarm at step {seen.looks[finding.fault]:,})" if finding.fault in seen.looks else ""
        said = _done_about(finding, run, story, policy, would)
        reasons.setdefault(said, []).append(f"{finding.fault}{since}{alarm}")
    for reason, faults in reasons.items():
        named = " and ".join(faults)
        yield f"{named[:1].upper()}{named[1:]}: {reason}."


def left_to_others(finding: Finding, run: Run, story: Story, policy: AutopilotPolicy) -> str:
    """What a person does about an alarm on which an autopilot decided nothing, and why it did not, in sentences."""
    remedy = f"{finding.remedy[:1].upper()}{finding.remedy[1:].rstrip('.')}. " if finding.remedy else ""
    reason = _done_about(finding, run, replace(story, decisions=[]), policy, True)
    return f"{remedy}{reason[:1].upper()}{reason[1:]}."


def decided_by(alarm: Finding, story: Story) -> bool:
    """Whether a decision about the fault of an alarm was made no later than the alarm was raised."""
    return any(each.step <= (alarm.seen or 0) for each in _about(alarm, story))


def _about(finding: Finding, story: Story) -> list[Decision]:
    monitor = monitor_of(finding.fault) or ALSO.get(finding.fault, "")
    return [each for each in story.decisions if monitor and each.fault == FAULTS[monitor]]


def _done_about(finding: Finding, run: Run, story: Story, policy: AutopilotPolicy, would: bool) -> str:
    """What an autopilot did or would do about a fault that is failing, or why nothing, as a clause."""
    monitor = monitor_of(finding.fault) or ALSO.get(finding.fault, "")
    about = _about(finding, story)
    if about:
        acts = (
            "an autopilot would react" if would else "the autopilot acted" if about[0].done else "the autopilot advised"
        )
        return f"{acts} at step {about[0].step:,}"
    if not monitor:
        return "an autopilot has no monitor and no action for this fault"
    if monitor not in policy.watched:
        return f"the policy leaves its monitor out; add {monitor} to its monitors"
    lacking = _lacking(monitor, run)
    if lacking:
        return f"an autopilot cannot act on that, because {lacking}"
    return _unsure(monitor, finding, run, story)


def _lacking(monitor: str, run: Run) -> str:
    """What a monitor would need and the run does not have, as a clause; empty where it has all."""
    groups, evaluations = run.groups, run.evaluations
    if monitor == "heldout":
        if not len(evaluations):
            return "the log has no held-out scores"
        if not evaluations.n.any():
            return "the log does not say on how many problems its held-out scores are"
        if not any(name in evaluations.metrics for name in ACCURACIES):
            return f"its monitor reads held-out scores that are called {', '.join(ACCURACIES)}, and the log has none"
    if monitor == "cut" and (not len(groups) or groups.truncated is None):
        return "the log does not say which completions were cut, only their share"
    if monitor == "dead" and not len(groups):
        return "the log has no rewards of single rollouts, from which dead groups are counted"
    if monitor == "not_finite" and "grad_norm" not in run.table:
        return "its monitor looks at gradient norms, and none are logged"
    return ""


def _unsure(monitor: str, finding: Finding, run: Run, story: Story) -> str:
    """Why a monitor that has all that it needs did not speak, as a clause."""
    last = int(run.table["step"][-1]) if run.steps else 0
    if any(each.action == "stop" and each.done for each in story.decisions):
        return "the run was ended before its monitor was sure"
    if monitor == "heldout" and finding.onset is not None:
        late = int(np.unique(run.evaluations.step[run.evaluations.step > finding.onset]).size)
        times = f"{late} evaluation{'s' * (late != 1)}"
        return f"it is shown only in hindsight, at step {last:,}: {times} after its onset are too few to bet on"
    if monitor == "not_finite":
        return "its monitor waits for gradients that are not finite in a row, and that did not happen"
    return f"it is shown only in hindsight, at step {last:,}: looked at after every step, the evidence is not enough"
