"""The record of a run of TRL: what it says of the run, and how it begins, goes on after a resume, or makes room.

A run that is resumed from checkpoint-N has its record cut back to step N, since TRL does the later steps again. A run
that begins in a folder with the record of an earlier one has that renamed to grposcope-1, -2, …: nothing is deleted.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from grposcope.diagnosis.alarms import Alarm
from grposcope.errors import UserError
from grposcope.files import dumps, json_object
from grposcope.runs import RunWriter
from grposcope.runs.environment import environment
from grposcope.runs.native.schema import LINES, ModelInfo, RunConfig
from grposcope.runs.trainers.trl import TRL

ALARMS = "alarms.jsonl"
"""File of the record with the alarms, a line each."""

_STEP = re.compile(rb'\{"step": (\d+)[,}]')


def settings(args: Any, state: Any) -> dict[str, Any]:
    """The trainer's settings under our names, and `window`, the steps that each row is the mean over."""
    every = args.logging_steps if isinstance(args.logging_steps, int) and args.logging_steps >= 1 else 1
    known: dict[str, Any] = {"trainer": "rloo" if "RLOO" in type(args).__name__ else "grpo", "window": every}
    with contextlib.suppress(PackageNotFoundError):
        known["trl_version"] = version("trl")
    if state.max_steps and state.max_steps > 0:
        known["steps"] = state.max_steps
    return TRL.settings(args.to_dict(), {}, known)


def begin(folder: Path, args: Any, known: Mapping[str, Any], model: Any) -> tuple[RunWriter, str]:
    """The record of a new run, and what became of an earlier one, if there was one."""
    said = _set_aside(folder)
    return RunWriter.create(folder, _about(args, known, model)), said


def go_on(folder: Path, step: int) -> tuple[RunWriter, list[Alarm], int]:
    """The record of a run that is resumed at `step`, cut back to it; its alarms and its rows up to then."""
    sizes, rows = _sizes(folder, step)
    raised = _alarms(folder, step)
    record = RunWriter.reopen(folder, sizes, step)
    (folder / ALARMS).write_text("".join(map(_line, raised)), "utf-8")
    return record, raised, rows


def write(folder: Path, alarm: Alarm) -> None:
    """Append an alarm to the record."""
    with (folder / ALARMS).open("a", encoding="utf-8") as file:
        file.write(_line(alarm))


def _line(alarm: Alarm) -> str:
    return dumps(asdict(alarm)) + "\n"


def _about(args: Any, known: Mapping[str, Any], model: Any) -> RunConfig:
    """What config.json holds; TRL replaces tokens in its arguments by their names."""
    logged = {key: value for key, value in args.to_dict().items() if value is not None}
    name = getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__
    groups = "from completions/" if args.log_completions else "not recorded: log_completions is off"
    return RunConfig(
        engine="trl",
        name=getattr(args, "run_name", None) or Path(args.output_dir).resolve().name,
        window=known["window"],
        model=ModelInfo(name),
        settings=json.loads(json.dumps(dict(known), default=str)),
        resolved={"groups": groups, "logged": json.loads(json.dumps(logged, default=str))},
        environment=environment(),
        started=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    )


def _set_aside(folder: Path) -> str:
    """Rename the record of an earlier run; a sentence about it, empty if there is none."""
    if not (folder / "config.json").exists():
        return ""
    free = (folder.with_name(f"{folder.name}-{n}") for n in range(1, 10**6))
    place = folder.rename(next(path for path in free if not path.exists()))
    return f"the record of an earlier run is now {place}"


def _sizes(folder: Path, step: int) -> tuple[dict[str, int], int]:
    """Bytes of each file of lines up to the last complete line of `step`; rows of steps.jsonl until there."""
    sizes, rows = dict.fromkeys(LINES, 0), 0
    for name in LINES:
        with contextlib.suppress(FileNotFoundError), (folder / f"{name}.jsonl").open("rb") as file:
            for line in file:
                match = _STEP.match(line)
                if not match or int(match[1]) > step or not line.endswith(b"\n"):
                    break
                sizes[name] += len(line)
                rows += name == "steps"
    return sizes, rows


def _alarms(folder: Path, step: int) -> list[Alarm]:
    """The alarms that were raised up to `step`; what is no alarm, such as a half-written line, is left out."""
    alarms = []
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / ALARMS).read_text("utf-8", "replace").split("\n"):
            with contextlib.suppress(UserError, TypeError):
                alarms.append(Alarm(**json_object(line, str(folder / ALARMS))))
    return [alarm for alarm in alarms if alarm.step <= step]
