"""Which checkpoint to go back to: the last one from before a change, and never one that throws a gain away.

A run whose outcome fell is best just before that fall: later checkpoints have lost something, earlier ones have not yet
gained it, whenever the fault began. One that still gains after a fault began loses that by going back, so that it is
not advised.
"""

from __future__ import annotations

import re

from grposcope.core.finding import Interval
from grposcope.core.run import Run
from grposcope.signs.outcome import Outcome

BEFORE = "the checkpoint before the onset"
"""What a remedy says for the checkpoint that `advised` names."""

WIDE = 0.2
"""Share of the run above which the interval of a fall says less of a checkpoint than where the outcome was best."""

_FOLDER = re.compile(r"(?:checkpoint-|global_step_?|step[-_]?|ckpt-?)?0*(\d+)")
"""Names of folders of checkpoints, with their step."""

_CLAUSE = re.compile(rf"(?:; | and )go back to {BEFORE}|^go back to {BEFORE} and ")
"""The clause of a remedy that sends back to it, where others are left without it."""


def back(run: Run, outcome: Outcome, since: Interval | None, gamed: bool) -> str | None:
    """What to go back to because of a fault that began then, as a noun; None where going back would lose a gain.

    gamed: whether the reward does not show the fault, so that only a held-out gain is one.
    """
    judges = outcome.heldout or not gamed
    if judges and outcome.direction == "up":
        return None
    fell = judges and outcome.direction == "down"
    when = outcome.fall if fell else since
    if fell and (when is None or (_is_wide(when, outcome) and outcome.best_step < when.last)):
        return f"the checkpoint around step {outcome.best_step:,}, where it was best"
    if when is None:
        return before(None)
    steps = _saved(run)
    sound = [step for step in steps if step < when.first]
    first = int(run.table["step"][0]) if run.steps else 0
    if steps and not sound:
        return f"the starting weights (no checkpoint is from before step {when.first:,})"
    if sound:
        return f"the checkpoint of step {max(sound):,}, the last from before step {when.first:,}"
    if when.first <= first + 1:
        return "the starting weights (it began with the run)"
    return before(when)


def before(since: Interval | None) -> str:
    """The checkpoint from before a change, as a noun, where it is not known which there are."""
    if since is None:
        return "a checkpoint from before it began"
    return f"the last checkpoint from before step {since.first:,}"


def _is_wide(when: Interval, outcome: Outcome) -> bool:
    """Whether the interval of a step is a large part of the run."""
    return when.last - when.first > WIDE * (outcome.last - outcome.first)


def advised(remedy: str, back: str | None, since: Interval | None) -> str:
    """A remedy with the checkpoint that it sends back to, or without sending back where that is None, and with the step
    for "the onset"."""
    told = _CLAUSE.sub("", remedy) if back is None else remedy.replace(BEFORE, back)
    return told if since is None else told.replace("the onset", f"step {since.step:,}")


def _saved(run: Run) -> list[int]:
    """Steps of the checkpoints in the folder of a run, in their order; empty where none are seen."""
    source = run.meta.source
    folder = source if source.is_dir() else source.parent
    named = [*folder.glob("checkpoint-*"), *folder.glob("global_step*"), *folder.glob("checkpoints/*")]
    matches = [_FOLDER.fullmatch(path.name) for path in named if path.is_dir()]
    return sorted({int(match[1]) for match in matches if match})
