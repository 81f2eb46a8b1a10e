"""The story of a run: what an autopilot did or would have done, on what evidence, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from grposcope.core.answer import Answer, Table
from grposcope.core.run import Run
from grposcope.core.text import visible
from grposcope.instruments import has
from grposcope.instruments.autopilot import INSTRUMENT, AdviceSettings, events, wording
from grposcope.instruments.autopilot.events import Story
from grposcope.instruments.autopilot.pilot import Decision
from grposcope.instruments.autopilot.policy import AutopilotPolicy, document, parse
from grposcope.instruments.autopilot.replay import replay

OTHERS = (
    "Its monitors look for falls, cut completions, dead groups and gradients that are not finite; grposcope diagnose "
    "looks for more kinds of failure."
)
"""What an autopilot that found nothing may have missed."""


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """The story of one run that was trained with an autopilot."""
    found = section(runs)
    return [] if found is None else [found]


def section(runs: Sequence[Run]) -> Answer | None:
    """The recorded story of a run that was trained with an autopilot; None for others and for several runs."""
    if len(runs) != 1 or runs[0].folder is None:
        return None
    story = events.read(runs[0].folder)
    if story is None or not story.decisions:
        return None
    told = runs[0].setting("autopilot")
    return of_story(story, parse(told) if isinstance(told, str) and told != "off" else AutopilotPolicy())


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
    found = of_story(replay(run, policy), policy, would=True)
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
    text = found.text if found.tables else [*_diagnosed(run), *found.text]
    return Answer(**{**vars(found), "text": text, "missing": [*found.missing, *missing]})


def _diagnosed(run: Run) -> list[str]:
    """What the diagnosis says of a run that no monitor has anything on, where it finds a problem."""
    if not has("diagnosis"):
        return []
    from grposcope.instruments.diagnosis.verdict import findings_of, verdict

    judged = verdict(run, findings_of(run))
    if judged.word not in ("failing", "warning"):
        return []
    return [
        f"grposcope diagnose does find a problem: {visible(str(judged), 400)}. It judges the whole log once; an "
        "autopilot needs stronger evidence, since it may look after every step."
    ]


def of_story(story: Story, policy: AutopilotPolicy, would: bool = False) -> Answer:
    """would: whether it is what would have been done, not what was."""
    decisions = story.decisions
    settings: list[tuple[int, float] | None] = [None]
    for one in decisions:
        settings.append((one.interval, one.factor))
    lines = [
        " ".join(filter(None, (wording.sentence(one, before), wording.became(one, story.outcome(one)))))
        for one, before in zip(decisions, settings, strict=False)
    ]
    acted = [one for one in decisions if one.action != "tell"]
    if not decisions:
        sentence = (
            "An autopilot would have done nothing: none of its monitors has enough evidence of a fault."
            if would
            else "The autopilot did nothing: none of its monitors had enough evidence of a fault."
        )
    elif would:
        sentence = f"An autopilot would first have reacted at step {decisions[0].step:,}."
    else:
        times = {1: "once", 2: "twice"}.get(len(acted), f"{len(acted)} times")
        sentence = f"The autopilot acted {times}." if acted else "The autopilot gave advice and changed nothing."
    return Answer(
        "autopilot",
        INSTRUMENT.question,
        "told",
        sentence,
        text=[*lines, wording.promise(policy), *([OTHERS] if would and not decisions else [])],
        tables=[_table(decisions, story)] if decisions else [],
        document=_document(story, policy),
    )


def _table(decisions: Sequence[Decision], story: Story) -> Table:
    rows = []
    for one in decisions:
        outcome = story.outcome(one)
        became = "" if outcome is None else ("yes" if outcome.came_true else "no")
        to = str(one.to) if one.to >= 0 else ""
        since = str(one.since) if one.since >= 0 else ""
        rows.append([str(one.step), one.monitor, since, one.action, to, f"{one.factor:.3g}", str(one.interval), became])
    header = ("Step", "Monitor", "Since step", "Action", "Back to", "× rate", "Interval", "As expected")
    return Table("Decisions", header, rows, folded=True)


def _document(story: Story, policy: AutopilotPolicy) -> dict[str, Any]:
    return {
        "policy": document(policy),
        "decisions": [asdict(one) for one in story.decisions],
        "outcomes": [asdict(one) for one in story.outcomes],
    }
