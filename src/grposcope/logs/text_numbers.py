"""Numbers that a log holds as texts: "0.53", "12%"."""

from __future__ import annotations

import re

_WRITTEN = re.compile(r"\s*(?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?P<share>%?)\s*")


def written_number(text: str) -> float | None:
    """The number that a text says, percent as shares; None for any other text, also with a comma in it."""
    match = _WRITTEN.fullmatch(text) if len(text) < 60 else None
    if match is None:
        return None
    return float(match["value"]) / (100 if match["share"] else 1)
