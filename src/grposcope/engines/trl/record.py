"""The record of a TRL run: its configuration, its beginning, and its continuation after a resume.

When a run is resumed from checkpoint-N, its record is cut back to step N, since TRL repeats the later steps. When a run
begins in a folder with the record of an earlier run, that record is renamed to grposcope-1, -2, …: nothing is deleted.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from grposcope.core.environment import environment
from grposcope.core.finding import Finding
from grposcope.instruments import has
from grposcope.logs import RunWriter
from grposcope.logs.native.schema import LINES, ModelInfo, RunConfig
from grposcope.logs.native.writer import check_unlocked
from grposcope.logs.trainers.trl import TRL
from grposcope.watch import alarm_file

_STEP = re.compile(rb'\{"step": (\d+)[,}]')


def settings(args: Any, state: Any) -> dict[str, Any]:
    """Settings of the trainer under our names, and `window`, the number of steps that each row is the mean over."""
    every = args.logging_steps if isinstance(args.logging_steps, int) and args.logging_steps >= 1 else 1
    settings: dict[str, Any] = {"trainer": "rloo" if "RLOO" in type(args).__name__ else "grpo", "window": every}
    with contextlib.suppress(PackageNotFoundError):
        settings["trl_version"] = version("trl")
    if state.max_steps and state.max_steps > 0:
        settings["steps"] = state.max_steps
    return TRL.settings_of(args.to_dict(), {}, settings)


def unseen(args: Any, state: Any) -> list[str]:
    """What a run with these settings will not show, and the setting of TRL that changes it, a sentence each."""
    told = []
    if not args.log_completions:
        told.append("Without log_completions=True the record has no single rewards, groups or completions: set it.")
    every = args.logging_steps if isinstance(args.logging_steps, int) and args.logging_steps > 1 else 1
    if every > 1:
        rows = max(state.max_steps or 0, 0) // every
        few = f", {rows} rows in all, and changes are tested from 30 rows on" if 0 < rows < 30 else ""
        told.append(f"With logging_steps={every}, each row is the mean of {every} steps{few}: set logging_steps=1.")
    return told


def begin(
    folder: Path, args: Any, settings: Mapping[str, Any], model: Any, more: Mapping[str, Any] | None = None
) -> tuple[RunWriter, str]:
    """The record of a new run, and a sentence on where the record of an earlier run is now, if there was one.

    more: fields of RunConfig in place of these; the entries of a mapping are added.
    """
    renamed = _rename_earlier(folder)
    config = _configuration(args, settings, model)
    added: dict[str, Any] = {
        field: {**getattr(config, field), **new} if isinstance(new, Mapping) else new
        for field, new in (more or {}).items()
    }
    output = Path(args.output_dir).resolve()  # TRL makes it before the training begins
    beside = (output.name,) if output.parent == folder.resolve() else ()
    return RunWriter.create(folder, replace(config, **added), beside), renamed


def go_on(folder: Path, step: int) -> tuple[RunWriter, list[Finding], int]:
    """The record of a run that is resumed at `step`, cut back to it; its alarms and its number of rows up to then."""
    sizes, rows = _sizes(folder, step)
    return RunWriter.reopen(folder, sizes, step), alarm_file.cut_back(folder, step), rows


def probed(folder: Path, group: object) -> list[str]:
    """What the last probe of a run found, and the best group size by it; nothing for a run without probes."""
    said: list[str] = []
    if has("gradient"):
        from grposcope.instruments.gradient import findings as geometry
        from grposcope.instruments.gradient import probe_record as probes

        if records := probes.in_folder(folder):
            which = f"the last of {len(records)} probes" if len(records) > 1 else "the probe"
            said.append(f"{which}: {geometry.brief(records[-1])}")
            if has("group_size"):
                from grposcope.instruments.group_size import size as group_size

                said.append(group_size.of_probe(records[-1], ()).sentence(group if isinstance(group, int) else None))
    return said


def _configuration(args: Any, settings: Mapping[str, Any], model: Any) -> RunConfig:
    """The content of config.json. (TRL itself replaces access tokens in its arguments by their names.)"""
    logged = {key: value for key, value in args.to_dict().items() if value is not None}
    architecture = type(model).__name__
    name = getattr(getattr(model, "config", None), "_name_or_path", "") or architecture
    count = sum(weights.numel() for weights in model.parameters()) if hasattr(model, "parameters") else None
    groups = "from completions/" if args.log_completions else "not recorded: log_completions is off"
    return RunConfig(
        engine="trl",
        name=getattr(args, "run_name", None) or Path(args.output_dir).resolve().name,
        window=settings["window"],
        model=ModelInfo(name, architecture, count),
        settings=json.loads(json.dumps(dict(settings), default=str)),
        resolved={"groups": groups, "logged": json.loads(json.dumps(logged, default=str))},
        environment=environment(),
        started=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    )


def _rename_earlier(folder: Path) -> str:
    """Rename the record of an earlier run; a sentence about it, empty if there is none."""
    if not (folder / "config.json").exists():
        return ""
    check_unlocked(folder)
    free = (folder.with_name(f"{folder.name}-{n}") for n in range(1, 10**6))
    target = folder.rename(next(path for path in free if not path.exists()))
    return f"the record of an earlier run is now {target}"


def _sizes(folder: Path, step: int) -> tuple[dict[str, int], int]:
    """Size in bytes of each file up to its last complete line of `step`, and the number of rows of steps.jsonl."""
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
