"""Reads what TRL leaves on disk: trainer_state.json, and output folders with checkpoints and completions.

log_history is a list of rows, each the mean over logging_steps steps; evaluations are rows of their own
with keys eval_…, at the same step as a training row; the last row is about the run as a whole.
training_args.bin is a pickle and is never opened, so what only it holds has to be given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from grposcope.errors import UserError
from grposcope.runs.columns import Frame
from grposcope.runs.formats.source import Source
from grposcope.runs.normalize import Log, assemble
from grposcope.runs.run import Run
from grposcope.runs.trainers import trl_completions


def states(folder: Path) -> list[Path]:
    """The trainer states in an output folder or a checkpoint, the one that got furthest first."""
    found = [*folder.glob("trainer_state.json"), *folder.glob("checkpoint-*/trainer_state.json")]
    return sorted(found, key=lambda path: (path.parent != folder, -_number(path.parent.name)))


def read_folder(folder: Path, given: Mapping[str, Any]) -> Run:
    """An output folder or a checkpoint folder; the groups are those of completions/, if it was logged."""
    chosen, *others = states(folder)
    run = read_state(chosen, Source(chosen).document(), given)
    notes = list(run.meta.notes)
    if others:
        notes.append(f"{chosen.relative_to(folder)} was read, and {len(others)} of earlier checkpoints were not")
    if trl_completions.files(folder):
        components = {key.removeprefix("component/") for key in run.table if key.startswith("component/")}
        groups, rollouts, said = trl_completions.read(folder, given, components)
        settings = dict(run.config["settings"])
        sizes = set(groups.sizes.tolist())
        if "group" not in settings and len(sizes) == 1:
            settings["group"] = sizes.pop()
            notes.append(f"the group size {settings['group']} is that of the prompts in completions/")
        run = replace(run, groups=groups, rollouts=rollouts, config={**run.config, "settings": settings})
        notes += said
    return replace(run, meta=replace(run.meta, name=folder.resolve().name, source=folder, notes=tuple(notes)))


def read_state(path: Path, content: Any, given: Mapping[str, Any]) -> Run:
    """A trainer_state.json."""
    rows = content.get("log_history") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise UserError(f"{path}: no log_history in it; give the trainer_state.json of a checkpoint")
    frame = Frame()
    for place, row in enumerate(rows, 1):
        if isinstance(row, dict):
            frame.row(place, row)
    notes = [f"{len(rows) - len(frame)} rows are no objects and were left out"] if len(frame) < len(rows) else []
    if not len(frame):
        raise UserError(f"{path}: log_history is empty; the run stopped before logging_steps, or logs elsewhere")
    every = content.get("logging_steps")
    window = int(every) if isinstance(every, int | float) and every >= 1 else None
    if window and window > 1:
        notes.append(f"each row is the mean over {window} steps (logging_steps), so spikes and variances are damped")
    done, last = content.get("global_step"), content.get("max_steps")
    ended = isinstance(done, int) and isinstance(last, int) and 0 < last <= done
    return assemble(
        Log(
            path,
            frame,
            engine="trl",
            status="finished" if ended else "unknown",
            notes=notes,
            given=given,
            window=window,
            place="row",
            logged={"max_steps": last, "logging_steps": every} if window else {},
            name=path.resolve().name,
        )
    )


def _number(name: str) -> int:
    match = re.fullmatch(r"checkpoint-(\d{1,15})", name)
    return int(match[1]) if match else -1
