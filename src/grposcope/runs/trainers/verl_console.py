"""Reads what verl prints: step:N - key:value - key:value …, among anything else.

Lines may carry terminal escapes, Ray's prefixes and np.float64(…). Some loggers cut lines at 4096
characters: the last value of such a line may have lost digits, so it is left out unless a bracket ends it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grposcope.runs.columns import Frame
from grposcope.runs.formats.source import Source, clean, number
from grposcope.runs.normalize import Log, assemble
from grposcope.runs.run import Run

_LINE = re.compile(r"(?:^|[\s)\]])step:\s?(?P<step>\d{1,15}) - (?P<rest>\S.*)")
CUTS = (4095, 4096)
"""Lengths at which loggers cut lines."""

BARE, CLOSED, OPEN, BROKEN = "a number", "a bracket", "a separator", "no value"
"""How a line ends: with a number that may go on, surely whole, before another value, or within one."""


def recognises(head: bytes) -> bool:
    """Whether the beginning of a text holds a line of this kind."""
    return re.search(rb"step:\s?\d{1,15} - [^\s:]+:[-\d.np]", head) is not None


def read(path: Path, given: Mapping[str, Any]) -> Run:
    """The run in the text; lines of other kinds are counted and passed over."""
    source, frame = Source(path), Frame()
    last_keys: Counter[str] = Counter()
    cut_lines: list[int] = []
    others = lost = 0
    for line, text, ended in source.lines():
        cleaned = clean(text)
        match = _LINE.search(cleaned) if "step:" in cleaned else None
        if match is None:
            others += bool(text.strip())
            continue
        values, keys, end = _values(match["rest"])
        values["step"] = float(match["step"])
        usual = last_keys.most_common(1)
        as_usual = bool(usual) and bool(keys) and usual[0][0] == keys[-1]
        long = len(text.encode()) in CUTS or len(cleaned.encode()) in CUTS
        if end in (BROKEN, OPEN) or not ended or (long and not as_usual):
            cut_lines.append(line)
            if end == BARE:  # its digits may go on
                values.pop(keys[-1], None)
                lost += 1
            lost += end == BROKEN
        elif keys:
            last_keys[keys[-1]] += 1
        frame.row(line, values)
    if cut_lines:
        shown = ", ".join(map(str, cut_lines[:8])) + (", …" if len(cut_lines) > 8 else "")
        source.notes.append(
            f"{len(cut_lines)} lines are cut off: {shown}; what they would go on with is missing, and {lost} last "
            "values were left out as they may lack digits"
        )
    if others:
        source.notes.append(f"{others} lines of other output were passed over")
    return assemble(Log(path, frame, "verl", notes=source.notes, given=given))


def _values(rest: str) -> tuple[dict[str, Any], list[str], str]:
    """Values by key, the keys in order, and how the line ends."""
    values: dict[str, Any] = {}
    keys: list[str] = []
    rest = rest.rstrip()
    parts = rest.removesuffix(" -").split(" - ")
    for k, part in enumerate(parts):
        key, colon, raw = part.rpartition(":")
        value = number(raw) if colon else None
        if value is not None and key:
            values[key.strip()] = value
            keys.append(key.strip())
        elif k == len(parts) - 1:
            return values, keys, BROKEN
        elif colon and key:
            values[key.strip()] = raw[:200]
    return values, keys, OPEN if rest.endswith(" -") else CLOSED if rest.endswith(")") else BARE
