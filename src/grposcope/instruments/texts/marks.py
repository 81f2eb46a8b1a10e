"""Spans of a text on one line, with marks around those that the other text of its pair lacks."""

from __future__ import annotations

from collections.abc import Sequence

from grposcope.core.text import visible
from grposcope.signs.texts.pairs import Span

SHOWN = 420
"""Characters of a text that are shown."""

OPEN, CLOSE = "⟦", "⟧"
"""Marks of what the other text lacks."""


def marked(spans: Sequence[Span]) -> str:
    """The spans of a text on one line, those marked that the other text lacks."""
    made, left = [], SHOWN
    for span in spans:
        piece = visible(span.text, 10**9)
        cut = piece if len(piece) <= left else f"{piece[:left]}…"
        made.append(f"{OPEN}{cut}{CLOSE}" if span.differs and cut.strip() else cut)
        left -= len(piece)
        if left <= 0:
            break
    return "".join(made) or "(empty)"
