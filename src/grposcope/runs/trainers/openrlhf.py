"""Reads what OpenRLHF prints: “Global step N: {dict}” and “… global_step N, eval_metrics: {dict}”.

The dict is a printed Python one with nan and inf in it; it is searched for pairs and never evaluated.
OpenRLHF counts a global step per training step on a batch of rollouts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grposcope.runs.columns import Frame
from grposcope.runs.formats.source import Source, clean, pairs
from grposcope.runs.normalize import Log, assemble
from grposcope.runs.run import Run

_TRAIN = re.compile(r"Global step (?P<step>\d{1,15}): \{(?P<rest>.*)")
_EVALUATION = re.compile(r"global_step (?P<step>\d{1,15}), eval_metrics: \{(?P<rest>.*)")


def recognises(head: bytes) -> bool:
    """Whether the beginning of a text holds a line of this kind."""
    return re.search(rb"Global step \d{1,15}: \{|global_step \d{1,15}, eval_metrics: \{", head) is not None


def read(path: Path, given: Mapping[str, Any]) -> Run:
    """The run in the text; lines of other kinds are counted and passed over."""
    source, frame = Source(path), Frame()
    cut: list[int] = []
    others = 0
    for line, text, _ in source.lines():
        cleaned = clean(text)
        train = _TRAIN.search(cleaned)
        match = train or _EVALUATION.search(cleaned)
        if match is None:
            others += bool(text.strip())
            continue
        values = pairs(match["rest"])
        if "}" not in match["rest"]:
            cut.append(line)
        if train is None:
            values = {key if key.startswith("eval") else f"eval_{key}": value for key, value in values.items()}
        frame.row(line, {**values, "step": float(match["step"])})
    if cut:
        shown = ", ".join(map(str, cut[:8])) + (", …" if len(cut) > 8 else "")
        source.notes.append(f"{len(cut)} lines are cut off: {shown}; what they would go on with is missing")
    if others:
        source.notes.append(f"{others} lines of other output were passed over")
    return assemble(Log(path, frame, "openrlhf", notes=source.notes, given=given))
