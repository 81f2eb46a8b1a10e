"""Reads the folders that `grposcope probe --out` writes; those in RUN/probes/ belong to the run.

A probe has probe.json (what was measured), gram.npz (inner products of scores, which `ustat.gram_file`
reads) and tokens.jsonl (what each token carries).
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.errors import UserError
from grposcope.runs.run import Meta, Probed, Run

FORMAT = 1
"""The newest version of probe.json that this reads."""

FOLDER = "probes"
"""Where the probes of a run lie, in its folder."""

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


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
    return Probed(folder, _numbers(content))


def of(run: Path) -> tuple[Probed, ...]:
    """The probes of a run by step, those that name none first."""
    found = [load(folder) for folder in sorted((run / FOLDER).glob("*")) if recognises(folder)]
    return tuple(sorted(found, key=lambda probe: -1 if (at := step(probe)) is None else at))


def step(probe: Probed) -> int | None:
    """The optimiser step of the model probed: `step` in probe.json, else in a folder's name such as step-000040."""
    recorded = probe.content.get("step")
    if isinstance(recorded, int):
        return recorded
    named = re.fullmatch(r"step-(\d+)", probe.folder.name)
    return int(named[1]) if named else None


def read(folder: Path) -> Run:
    """A probe by itself, as a run without steps; its config is what probe.json says in single values."""
    from grposcope.runs.normalize import no_evaluations, no_groups  # brings pyarrow, which `plan` does without

    probe = load(folder)
    config = {name: value for name, value in probe.content.items() if isinstance(value, str | int | float)}
    status = "interrupted" if probe.content.get("complete") is False else "finished"
    meta = Meta(folder, "grposcope probe", folder.resolve().name, status)
    return Run(meta, config, {"step": np.empty(0)}, no_groups(), no_evaluations(), probes=(probe,))


def rollouts(probe: Probed) -> list[dict[str, Any]]:
    """The rows of tokens.jsonl, one per rollout, prompt after prompt; empty where there is no such file."""
    from grposcope.runs.native import lines  # brings pyarrow

    path = probe.folder / "tokens.jsonl"
    numeric = ("reward", "weight", "norm", "mass", "net", "sharers")  # a token of text may be the word NaN
    return [
        {name: _numbers(value) if name in numeric else value for name, value in row.items()}
        for _, row in lines.rows(lines.load(path))
    ]


def _numbers(content: Any) -> Any:
    """The same with numbers in place of the strings that stand for those JSON lacks."""
    if isinstance(content, dict):
        return {name: _numbers(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_numbers(value) for value in content]
    return _NOT_FINITE.get(content, content) if isinstance(content, str) else content
