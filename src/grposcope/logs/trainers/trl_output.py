"""A TRL run in the output folder of the trainer: the record of our callback, checkpoints and completions as one run.

    OUTPUT_DIR/grposcope/                              record of the callback: every logged row, settings, groups
    OUTPUT_DIR/checkpoint-N/trainer_state.json         rows up to step N; the model of step N beside it
    OUTPUT_DIR/completions/completions_NNNNN.parquet   texts and single rewards, with log_completions=True

Either folder, OUTPUT_DIR or the record, is the whole run: rows and settings of the record, earlier rows of the
checkpoints where the record began later (after a resume), texts of the completions. Whether they are of one run is seen
in the rewards at the steps that they share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.run import Floats, Run
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.native import reader, schema
from grposcope.logs.normalize import normalize
from grposcope.logs.trainers import trl, trl_completions

RECORD = "grposcope"
"""Folder in the output folder that the callback records to."""


def find(folder: Path) -> tuple[Path | None, Path] | None:
    """The output folder (None without one) and the record of a TRL run, given either; None for any other folder."""
    if schema.is_record(folder / RECORD):
        return folder, folder / RECORD
    if not schema.is_record(folder) or schema.read_config(folder).engine != "trl":
        return None
    logged = schema.read_config(folder).resolved.get("logged", {})
    named = logged.get("output_dir") if isinstance(logged, Mapping) else None
    places = [folder.resolve().parent, *([Path(named)] if isinstance(named, str) else [])]
    return next((candidate for candidate in places if _is_output(candidate)), None), folder


def read(folder: Path, hints: Hints) -> Run:
    """The run of a folder that `find` finds, joined. UserError where it is the output folder and holds checkpoints of
    another run."""
    folders = find(folder)
    assert folders is not None
    output, record = folders
    run = _with_settings(reader.read(record))
    if output is None:
        return run
    notes: list[str] = []
    states = trl.state_files(output)
    if states:
        earlier = normalize(trl.read_state(LogFile(states[0]), hints), hints)
        if (step := trl.differ(run.table, earlier.table)) is not None:
            said = f"{record} and {states[0]} are of different runs: their rewards at step {step} differ"
            if folder == output:
                raise UserError(f"{said}; give {record} or {states[0].parent}")
            return replace(run, meta=replace(run.meta, notes=(*run.meta.notes, f"{said}; only the record was read")))
        table = _with_earlier(run.table, earlier.table)
        if len(table["step"]) > run.steps:
            last = int(table["step"][len(table["step"]) - run.steps - 1])
            notes.append(f"steps up to {last} come from {states[0].parent.name}, because the record began later")
            run = replace(run, table=table)
    if (files := trl_completions.files(output)) and not run.rollouts:
        components = {name.removeprefix("component/") for name in run.table if name.startswith("component/")}
        settings = {"group": run.setting("group")}
        groups, rollouts, said_of_them = trl_completions.groups(files, settings, components)
        if not len(run.groups):
            run, notes = replace(run, groups=groups), notes + said_of_them
        run = replace(run, rollouts=rollouts)
    return replace(run, meta=replace(run.meta, source=folder, notes=(*run.meta.notes, *notes)))


def models(folder: Path) -> dict[int, Path]:
    """Step -> folder of the model of a TRL run or checkpoint, in order of steps; empty for any other folder."""
    output, _ = find(folder) or (None, folder)
    output = output or folder
    by_step = {
        int(path.name.removeprefix("checkpoint-")): path
        for path in output.glob("checkpoint-*")
        if _is_model(path) and path.name.removeprefix("checkpoint-").isdigit()
    }
    if not by_step and _is_model(folder) and (folder / "trainer_state.json").is_file():
        by_step = {trl.checkpoint_step(folder.resolve().name): folder}
    return dict(sorted(by_step.items()))


def _with_settings(run: Run) -> Run:
    """The run with every setting that its logged configuration says, also one that the callback did not look for.

    NaN of metrics that have no term under them are absent values.
    """
    logged = run.config.get("logged", {})
    settings = trl.TRL.settings_of(logged if isinstance(logged, Mapping) else {}, {}, run.config.get("settings", {}))
    table = trl.TRL.with_terms(run.table, settings)
    return replace(run, config={**run.config, "settings": settings}, table=table)


def _is_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("config.json", "adapter_config.json"))


def _is_output(folder: Path) -> bool:
    return bool(trl.state_files(folder) or trl_completions.files(folder))


def _with_earlier(table: Mapping[str, Floats], earlier: Mapping[str, Floats]) -> dict[str, Floats]:
    """The table with the rows of `earlier` before its first step."""
    first = table["step"][0] if len(table["step"]) else np.inf
    before = earlier["step"] < first
    if not before.any():
        return dict(table)
    counts = int(before.sum()), len(table["step"])
    absent: list[Any] = [np.full(count, np.nan) for count in counts]
    return {
        name: np.concatenate([earlier[name][before] if name in earlier else absent[0], table.get(name, absent[1])])
        for name in dict.fromkeys([*table, *earlier])
    }
