"""Folders that hold no run but what an instrument measured of a model, as runs without steps.

What was measured is read by the instrument itself, from `Run.folder`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from grposcope.core.files import versioned_json
from grposcope.core.run import Meta, Run, no_evaluations, no_groups

RECORDS = {"probe.json": "grposcope probe", "credit.json": "grposcope credit"}
"""File that an instrument leaves in the folder -> the command that wrote it; the first names the run."""

NEWEST = 10**9
"""Format up to which a record is accepted here; the instrument itself refuses what it cannot read."""


def recognises(folder: Path) -> bool:
    """Whether the folder holds what an instrument measured."""
    return any((folder / name).is_file() for name in RECORDS)


def read(folder: Path) -> Run:
    """The folder as a run without steps, with the single values of its first record as configuration.

    UserError for a record that is no JSON document of ours.
    """
    name, writer = next((name, writer) for name, writer in RECORDS.items() if (folder / name).is_file())
    content = versioned_json(folder / name, NEWEST, writer, "measure again")
    config = {key: value for key, value in content.items() if isinstance(value, str | int | float) and value != ""}
    state = "finished" if content.get("complete", True) else "interrupted"
    meta = Meta(folder, writer, folder.resolve().name, state)
    return Run(meta, config, {"step": np.empty(0)}, no_groups(), no_evaluations(), folder=folder)
