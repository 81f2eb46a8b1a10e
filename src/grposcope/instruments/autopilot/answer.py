"""The story of a run: what an autopilot did or would have done, on what evidence, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from grposcope.core.answer import Answer, Table
from grposcope.core.finding import Finding
from grposcope.core.finding import document as document_of
from grposcope.core.run import Run
from grposcope.instruments.autopilot import INSTRUMENT, AdviceSettings, events, hindsight, wording
from grposcope.instruments.autopilot.events import Story
from grposcope.instruments.autopilot.hindsight import JudgedWhole
from grposcope.instruments.autopilot.pilot import Decision, decision_document
from grposcope.instruments.autopilot.policy import AutopilotPolicy, document, parse
from grposcope.instruments.autopilot.replay import replay


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
    decisions, seen = story.decisions, hindsight.of_run(run)
    settings: list[tuple[int, float] | None] = [None]
    for one in decisions:
        settings.append((one.interval, one.factor))
    lines = [
        " ".join(filter(None, (wording.sentence(one, before), wording.became(one, story.outcome(one)))))
        for one, before in zip(decisions, settings, strict=False)
    ]
    beside = [*hindsight.sentences(run, seen, story, policy, would), wording.promise(policy)]
    if policy.mode == "off":  # the run set its group size, and had no monitors
        beside = []
    return Answer(
        "autopilot",
        INSTRUMENT.question,
        hindsight.word(seen, decisions),
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


def _document(story: Story, policy: AutopilotPolicy, seen: JudgedWhole) -> dict[str, Any]:
    return {
        "policy": document(policy),
        "decisions": [decision_document(one) for one in story.decisions],
        "outcomes": [asdict(one) for one in story.outcomes],
        "failing": [document_of(finding) for finding in seen.failing],
    }
