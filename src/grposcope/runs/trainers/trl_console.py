"""Reads what transformers and TRL print: a dict per logged row, among progress bars and anything else.

The dicts hold no step. It is that of the progress bar last drawn before, where each dict has one of its
own; else rows are numbered, times logging_steps if that is given. Values may be printed as text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grposcope.runs.columns import Frame
from grposcope.runs.formats.source import Source, clean, pairs
from grposcope.runs.normalize import Log, assemble
from grposcope.runs.run import Run

_DICT = re.compile(r"\{(?=['\"][\w/ .-]+['\"]\s*:)(?P<rest>[^{}]*)(?P<end>\}?)")
_BAR = re.compile(r"\b(?P<step>\d{1,9})/(?P<of>\d{1,9}) \[")


def recognises(head: bytes) -> bool:
    """Whether the beginning of a text holds a printed row with a reward or a loss."""
    return (
        re.search(rb"\{['\"](?:loss|reward|num_tokens|completion_length|grad_norm|train_runtime)['\"]\s*:", head)
        is not None
    )


def read(path: Path, given: Mapping[str, Any]) -> Run:
    """The run in the text; lines of other kinds are counted and passed over."""
    source = Source(path)
    rows: list[tuple[int, dict[str, float | str], int | None]] = []
    cut: list[int] = []
    others, bar = 0, None
    total = 0
    for line, text, _ in source.lines():
        cleaned = clean(text)
        here = 0
        for match in _BAR.finditer(cleaned):
            bar, total = int(match["step"]), max(total, int(match["of"]))
        for match in _DICT.finditer(cleaned):
            values = pairs(match["rest"] + "}")
            if values.keys() & {"loss", "reward", "train_runtime"} or any(key.startswith("eval_") for key in values):
                here += 1
                rows.append((line, values, bar))
                if not match["end"]:
                    cut.append(line)
        others += not here and bool(cleaned.strip())
    _number(rows, given, source.notes)
    frame = Frame()
    for line, values, step in rows:
        frame.row(line, {**values, **({} if step is None or "step" in values else {"step": float(step)})})
    if cut:
        source.notes.append(f"{len(cut)} rows are cut off, the first in line {cut[0]}; what follows in them is missing")
    if others:
        source.notes.append(f"{others} lines of other output were passed over")
    return assemble(Log(path, frame, notes=source.notes, given=given))


def _number(
    rows: list[tuple[int, dict[str, float | str], int | None]], given: Mapping[str, Any], notes: list[str]
) -> None:
    """Gives rows their steps: those of the bars if they rise with the training rows, else by counting."""
    train = [k for k, (_, values, _) in enumerate(rows) if "loss" in values or "reward" in values]
    bars = [step for k in train if (step := rows[k][2]) is not None]
    if len(bars) == len(train) and all(a < b for a, b in itertools.pairwise(bars)):
        return
    every = given.get("logging_steps", 1)
    every = every if isinstance(every, int) and every > 0 else 1
    count = 0
    for k, (line, values, _) in enumerate(rows):
        count += k in set(train[count : count + 1])
        rows[k] = (line, values, count * every if count else None)
    notes.append(
        f"printed rows have no step, so they are numbered from 1, times logging_steps = {every}"
        + ("" if "logging_steps" in given else " (give logging_steps if it was another)")
    )
