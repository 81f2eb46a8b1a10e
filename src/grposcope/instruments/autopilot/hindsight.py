"""What the catalogue of faults finds in the whole run, and what an autopilot does about each, or why it cannot.

`diagnose` weighs the whole run once and an autopilot looks after every step, so they may differ; they never do so
without a word: of each fault that is failing it is said which decision is about it, or what kept it from one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.answer import Word
from grposcope.core.finding import Finding
from grposcope.core.run import Run
from grposcope.core.text import visible
from grposcope.instruments import has
from grposcope.instruments.autopilot.alarm import FAULTS, monitor_of
from grposcope.instruments.autopilot.events import Story
from grposcope.instruments.autopilot.pilot import Decision
from grposcope.instruments.autopilot.policy import AutopilotPolicy
from grposcope.instruments.autopilot.replay import ACCURACIES

ALSO = {"reward hacking": "heldout", "dead after a fall": "dead"}
"""Faults that a monitor sees a sign of, besides the one that it watches for."""


@dataclass(frozen=True)
class JudgedWhole:
    """What is known of the whole run. word, line, do: of the verdict, empty where nothing can judge. failing: the
    findings that are failing, in the order of what to look at first."""

    word: Word = "told"
    line: str = ""
    do: str = ""
    failing: tuple[Finding, ...] = ()


def of_run(run: Run) -> JudgedWhole:
    """The verdict on a run, and what is failing in it."""
    if not has("diagnosis"):
        return JudgedWhole()
    from grposcope.instruments.diagnosis.verdict import findings_of, verdict

    findings = findings_of(run)
    judged = verdict(run, findings)
    failing = tuple(finding for finding in findings if finding.present and finding.grade == "failing")
    return JudgedWhole(judged.word, visible(str(judged), 400), judged.do, failing)


def word(seen: JudgedWhole, decisions: Sequence[Decision]) -> Word:
    """How bad a run is, never better than its verdict; a warning where there is something to do all the same."""
    if seen.word in ("failing", "warning"):
        return seen.word
    return "warning" if decisions else "told"


def sentences(run: Run, seen: JudgedWhole, story: Story, policy: AutopilotPolicy, would: bool) -> Iterator[str]:
    """The verdict where something is wrong, and of each failing fault what is done about it, or why nothing is.

    would: whether the decisions are what would have been done, not what was.
    """
    if seen.word not in ("failing", "warning"):
        return
    if not seen.failing and story.decisions:
        return
    yield f"grposcope diagnose says of the whole run: {seen.line}."
    if seen.word == "failing" and not seen.failing and not story.decisions:
        yield "No fault is named for that, so that an autopilot has nothing to act on."
    reasons: dict[str, list[str]] = {}
    for finding in seen.failing:
        since = "" if finding.since is None else f" {finding.since}"
        reasons.setdefault(done_about(finding, run, story, policy, would), []).append(f"{finding.fault}{since}")
    for reason, faults in reasons.items():
        named = " and ".join(faults)
        yield f"{named[:1].upper()}{named[1:]}: {reason}."


def done_about(finding: Finding, run: Run, story: Story, policy: AutopilotPolicy, would: bool) -> str:
    """What an autopilot did or would do about a fault that is failing, or why nothing, as a clause."""
    monitor = monitor_of(finding.fault) or ALSO.get(finding.fault, "")
    about = [each for each in story.decisions if monitor and each.fault == FAULTS[monitor]]
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
