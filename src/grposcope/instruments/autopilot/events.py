"""The decisions of an autopilot in the folder of a record, a line each, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.files import append as append_whole
from grposcope.core.files import atomic, dumps, json_object, read_whole
from grposcope.instruments.autopilot.pilot import Decision, FollowUp, decision_document, decision_of

EVENTS = "autopilot.jsonl"
"""Name of the file."""


@dataclass(frozen=True)
class Story:
    """What was decided in a run, in order, and what became of it, by the step of the decision."""

    decisions: Sequence[Decision] = ()
    outcomes: Sequence[FollowUp] = ()

    def outcome(self, decision: Decision) -> FollowUp | None:
        """What became of a decision; None where that is not known."""
        return next((each for each in self.outcomes if each.of == decision.step), None)


def append(folder: Path, event: Decision | FollowUp) -> None:
    """Append an event to the record; UserError where the disk refuses."""
    path = folder / EVENTS
    try:
        append_whole(path, _line(event).encode())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; make room") from None


def read(folder: Path) -> Story | None:
    """The events of a record; None where it has no such file. UserError, with the line, for one that is none."""
    path = folder / EVENTS
    try:
        lines = read_whole(path).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    decisions, outcomes = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip() or (number == len(lines) and not line.endswith("}")):
            continue  # half-written
        where = f"{path}, line {number}"
        row = json_object(line, where)
        try:
            event = _event(row, where)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{where} is not an event of an autopilot ({type(error).__name__}: {error}); delete it"
            ) from None
        if isinstance(event, FollowUp):
            outcomes.append(event)
        else:
            decisions.append(event)
    return Story(decisions, outcomes)


def cut_back(folder: Path, step: int) -> None:
    """Take out what happened after `step`, when a run goes on from there."""
    story = read(folder)
    if story is None:
        return
    both: list[Decision | FollowUp] = [*story.decisions, *story.outcomes]
    events = [event for event in both if event.step <= step]
    with atomic(folder / EVENTS) as file:
        for event in sorted(events, key=lambda each: each.step):
            file.write(_line(event).encode())


def _line(event: Decision | FollowUp) -> str:
    if isinstance(event, Decision):
        return dumps({"kind": "decision", **decision_document(event)}) + "\n"
    return dumps({"kind": "outcome", **asdict(event)}) + "\n"


def _event(row: dict[str, Any], where: str) -> Decision | FollowUp:
    content = {key: value for key, value in row.items() if key != "kind"}
    if row["kind"] == "decision":
        return decision_of(content, where)
    mean = content["mean"]
    estimate = Estimate(float(mean["value"]), float(mean["se"]), mean["n"], mean.get("flag", ""))
    return FollowUp(content["step"], content["of"], estimate, bool(content["came_true"]))
