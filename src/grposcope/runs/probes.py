"""Reads the folders that `grposcope probe --out` writes; those in RUN/probes/ belong to the run.

A probe has probe.json (what was measured), gram.npz (inner products of scores, which `ustat.gram_file`
reads) and tokens.jsonl (what each token carries).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.errors import UserError
from grposcope.runs import lines
from grposcope.runs.assemble import no_evaluations, no_groups
from grposcope.runs.table import Meta, Probed, Run

FORMAT = 1
"""The newest version of probe.json that this reads."""

FOLDER = "probes"
"""Where the probes of a run lie, in its folder."""


def recognises(folder: Path) -> bool:
    """Whether this is the folder of a probe."""
    return (folder / "probe.json").is_file()


def load(folder: Path) -> Probed:
    """The probe in `folder`; UserError for a broken one and for a newer version."""
    path = folder / "probe.json"
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not valid JSON ({error}); make it again with grposcope probe") from None
    version = content.get("format") if isinstance(content, dict) else None
    if not isinstance(version, int):
        raise UserError(f"{path}: not written by grposcope probe; give another folder")
    if version > FORMAT:
        raise UserError(f"{path} is of format {version}, and this grposcope reads up to {FORMAT}; upgrade grposcope")
    return Probed(folder, content)


def of(run: Path) -> tuple[Probed, ...]:
    """The probes of a run, by name."""
    return tuple(load(folder) for folder in sorted((run / FOLDER).glob("*")) if recognises(folder))


def read(folder: Path) -> Run:
    """A probe by itself, as a run without steps."""
    meta = Meta(folder, "grposcope probe", folder.resolve().name, "finished")
    return Run(meta, {}, {"step": np.empty(0)}, no_groups(), no_evaluations(), probes=(load(folder),))


def rollouts(probe: Probed) -> list[dict[str, Any]]:
    """The rows of tokens.jsonl, one per rollout, prompt after prompt; empty where there is no such file."""
    path = probe.folder / "tokens.jsonl"
    return [row for _, row in lines.rows(lines.load(path))]
