"""The story of a run: what an autopilot did or would have done, on what evidence, and what became of it.

What the catalogue of faults finds in the whole run, and what an autopilot does about each, or why it cannot.

`diagnose` weighs the rows so far at scheduled looks (`faults.looks`) and an autopilot looks after every step, so they
may differ; they never do so without a word: of each fault that is failing at one of those looks it is said which
decision is about it, or what kept it from one and what a person does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from grposcope.core.answer import Answer, Table, Word
from grposcope.core.finding import Finding
from grposcope.core.finding import document as document_of
from grposcope.core.run import Run
from grposcope.core.text import visible
from grposcope.faults.judge import diagnose
from grposcope.faults.looks import first_rows, scheduled
from grposcope.instruments import has
from grposcope.instruments.autopilot import INSTRUMENT, AdviceSettings, events, wording
from grposcope.instruments.autopilot.alarm import FAULTS, monitor_of
from grposcope.instruments.autopilot.events import Story
from grposcope.instruments.autopilot.pilot import Decision, decision_document
from grposcope.instruments.autopilot.policy import AutopilotPolicy, parse
from grposcope.instruments.autopilot.replay import ACCURACIES, replay
from grposcope.signs.quantities import LEAST


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """The story of one run that was trained with an autopilot."""
    found = _section(runs)
    return [] if found is None else [found]


def _section(runs: Sequence[Run]) -> Answer | None:
    """The recorded story of a run that was trained with an autopilot; None for others and for several runs."""
    if len(runs) != 1 or runs[0].folder is None:
        return None
    run = runs[0]
    story = events.read(runs[0].folder)
    if story is None or not story.decisions:
        return None
    told = run.config.get("settings", {}).get("autopilot")
    policy = parse(told) if isinstance(told, str) and told != "off" else AutopilotPolicy()
    if all(one.setting == "group" for one in story.decisions):
        policy = replace(policy, mode="off" if told == "off" else policy.mode)
    return _of_story(run, story, policy)


def of_run(run: Run, settings: AdviceSettings | None = None) -> Answer:
    """What an autopilot of this policy would have done in a run, whether or not it had one."""
    policy = parse(settings.policy) if settings is not None and settings.policy else AutopilotPolicy(mode="advise")
    if not len(run.groups) and "reward" not in run.table:
        return Answer(
            "autopilot",
            INSTRUMENT.question,
            "cannot tell",
            "Cannot tell: the run has no rewards.",
            missing=["Log the mean reward of every step, or better the rewards of every group."],
        )
    found = _of_story(run, replay(run, policy), policy, would=True)
    missing = []
    if len(run.evaluations) and not run.evaluations.n.any():
        missing.append(
            "Held-out scores were not used: the log does not say on how many problems they are. Give "
            "the record of a run that does."
        )
    if not len(run.groups):
        missing.append(
            "Only the mean reward of each step is known; log the rewards of every rollout to have a fall found earlier."
        )
    return replace(found, missing=[*found.missing, *missing])


def _of_story(run: Run, story: Story, policy: AutopilotPolicy, would: bool = False) -> Answer:
    """The decisions in a run, and beside them what is failing in the whole of it.

    would: whether they are what would have been done, not what was.
    """
    decisions, seen = story.decisions, _judged_run(run)
    settings: list[tuple[int, float] | None] = [None]
    for one in decisions:
        settings.append((one.interval, one.factor))
    lines = [
        " ".join(filter(None, (wording.sentence(one, before), wording.became(one, story.outcome(one)))))
        for one, before in zip(decisions, settings, strict=False)
    ]
    beside = [*_hindsight_sentences(run, seen, story, policy, would), wording.promise(policy)]
    if policy.mode == "off":  # the run set its group size, and had no monitors
        beside = []
    return Answer(
        "autopilot",
        INSTRUMENT.question,
        _verdict_word(seen, decisions),
        _sentence(decisions, seen.word == "failing", would),
        do="" if decisions else seen.do,
        text=[*lines, *beside],
        tables=[_table(decisions, story)] if decisions else [],
        document=_document(story, policy, seen),
    )


def _sentence(decisions: Sequence[Decision], failing: bool, would: bool) -> str:
    """What was or would have been done, and that the run is failing where nothing was."""
    acted = [one for one in decisions if one.action != "tell"]
    if not decisions:
        if failing:
            return "The run is failing, and " + (
                "an autopilot would not have acted on it." if would else "the autopilot did not act on it."
            )
        what = "an autopilot would have done nothing" if would else "the autopilot did nothing"
        return f"{what[:1].upper()}{what[1:]}: none of its monitors has enough evidence of a fault."
    if would:
        return f"An autopilot would first have reacted at step {decisions[0].step:,}."
    times = {1: "once", 2: "twice"}.get(len(acted), f"{len(acted)} times")
    return f"The autopilot acted {times}." if acted else "The autopilot gave advice and changed nothing."


def _table(decisions: Sequence[Decision], story: Story) -> Table:
    rows = []
    for one in decisions:
        outcome = story.outcome(one)
        became = "" if outcome is None else ("yes" if outcome.came_true else "no")
        to = str(one.to) if one.to >= 0 else ""
        onset = one.why.onset if isinstance(one.why, Finding) else one.why.since
        since = "" if onset is None else str(onset)
        rows.append(
            [str(one.step), one.fault or "none", since, one.action, to, f"{one.factor:.3g}", str(one.interval), became]
        )
    header = ("Step", "Fault", "Since step", "Action", "Back to", "× rate", "Interval", "As expected")
    return Table("Decisions", header, rows, folded=True)


def _document(story: Story, policy: AutopilotPolicy, seen: _JudgedWhole) -> dict[str, Any]:
    return {
        "policy": _policy_document(policy),
        "decisions": [decision_document(one) for one in story.decisions],
        "outcomes": [asdict(one) for one in story.outcomes],
        "failing": [document_of(finding) for finding in seen.failing],
    }


def _policy_document(policy: AutopilotPolicy) -> dict[str, Any]:
    """The policy as YAML or JSON has it."""
    return asdict(policy)


ALSO = {"reward hacking": "heldout", "dead after a fall": "dead"}
"""Faults that a monitor sees a sign of, besides the one that it watches for."""

EQUAL_REWARDS = ("starved", "saturated", "dead after a fall", "empty steps")
"""Faults of groups with equal rewards, which teach nothing: they are named whatever their grade is."""


@dataclass(frozen=True)
class _JudgedWhole:
    """What is known of the whole run. word, line, do: of the verdict, empty where nothing can judge. failing: the
    findings that are failing, in the order of what to look at first. warned: those that are warnings, and notes of
    groups with equal rewards. before: those that were failing at a scheduled look and are not in the whole run. looks:
    fault -> the step of the first scheduled look at which it was failing."""

    word: Word = "told"
    line: str = ""
    do: str = ""
    failing: tuple[Finding, ...] = ()
    warned: tuple[Finding, ...] = ()
    before: tuple[Finding, ...] = ()
    looks: Mapping[str, int] = field(default_factory=dict)


def _judged_run(run: Run) -> _JudgedWhole:
    """The verdict on a run, and what is failing in it."""
    if not has("diagnosis"):
        return _JudgedWhole()
    from grposcope.instruments.diagnosis.verdict import findings_of, verdict

    findings = findings_of(run)
    judged = verdict(run, findings)
    present = [finding for finding in findings if finding.present]
    failing = tuple(finding for finding in present if finding.grade == "failing")
    told = [finding for finding in present if finding.grade == "warning" or finding.fault in EQUAL_REWARDS]
    warned = tuple(finding for finding in told if finding not in failing)
    seen: dict[str, Finding] = {}
    for rows in scheduled(run.steps):
        for finding in diagnose(first_rows(run, rows)):
            raised = rows >= LEAST or finding.basis == "fact"
            if raised and finding.present and finding.grade == "failing":
                seen.setdefault(finding.fault, replace(finding, seen=int(run.table["step"][rows - 1])))
    now = {finding.fault for finding in (*failing, *warned)}
    before = tuple(finding for fault, finding in seen.items() if fault not in now)
    steps = {fault: finding.seen or 0 for fault, finding in seen.items()}
    return _JudgedWhole(judged.word, visible(str(judged), 400), judged.do, failing, warned, before, steps)


def _verdict_word(seen: _JudgedWhole, decisions: Sequence[Decision]) -> Word:
    """How bad a run is, never better than its verdict; a warning where there is something to do all the same."""
    if seen.word in ("failing", "warning"):
        return seen.word
    return "warning" if any(one.setting != "group" for one in decisions) else "told"


def _hindsight_sentences(
    run: Run, seen: _JudgedWhole, story: Story, policy: AutopilotPolicy, would: bool
) -> Iterator[str]:
    """The verdict where something is wrong, and of each failing fault what is done about it, or why nothing is.

    would: whether the decisions are what would have been done, not what was.
    """
    if seen.word in ("failing", "warning") and (seen.failing or not story.decisions):
        yield f"grposcope diagnose says of the whole run: {seen.line}."
        if seen.word == "failing" and not seen.failing:
            yield "No fault is named for that, so that an autopilot has nothing to act on."
        yield from _each(seen.failing, seen, run, story, policy, would)
    if seen.warned:
        yield "Not failing, but to be looked at:"
        yield from _each(seen.warned, seen, run, story, policy, would)
    if seen.before:
        yield "Failing at a look while the run went on, and not in the whole of it:"
        yield from _each(seen.before, seen, run, story, policy, would)


def _each(
    findings: Sequence[Finding], seen: _JudgedWhole, run: Run, story: Story, policy: AutopilotPolicy, would: bool
) -> Iterator[str]:
    """Of each fault what was seen, what an autopilot does about it or why nothing, and then what a person can do."""
    for finding in findings:
        since = "" if finding.since is None else f" {finding.since}"
        alarm = f" (alarm at step {seen.looks[finding.fault]:,})" if finding.fault in seen.looks else ""
        because = f"{finding.because.rstrip('.')}. " if finding.because else ""
        done = _done_about(finding, run, story, policy, would)
        done = f"{done[:1].upper()}{done[1:]}" if because else done
        own = finding.remedy.rstrip(".")
        remedy = f" What you can do: {own}." if own and not _about(finding, story) else ""
        yield f"{finding.fault[:1].upper()}{finding.fault[1:]}{since}{alarm}: {because}{done}.{remedy}"


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
        return "the log has no rewards of single rollouts, of which it counts groups with equal rewards (dead groups)"
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
