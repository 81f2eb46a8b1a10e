"""The reading of texts on a terminal: the answer, and the pairs to read with their differing spans marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grposcope.core.answer import Answer
from grposcope.core.text import brief, visible
from grposcope.instruments.texts.answer import to_read
from grposcope.render import terminal, wrapping
from grposcope.signs.texts import exploits
from grposcope.signs.texts.pairs import Span, TextPair
from grposcope.signs.texts.reading import TextReading

SHOWN = 420
"""Characters of a text that are printed."""

PROMPT = 160

OPEN, CLOSE = "⟦", "⟧"
"""Marks of what the other text lacks."""


def text(said: Answer, reading: TextReading, width: int) -> str:
    """The answer, then the pairs to read."""
    lines = [terminal.text(said, width)]
    shown = to_read(reading, exploits.exploits(reading))
    if shown:
        lines += [
            "",
            f"To read: {len(shown)} pairs; {OPEN}what the other text lacks{CLOSE}" if len(shown) > 1 else "To read:",
        ]
    for number, pair in enumerate(shown, 1):
        lines += ["", *_pair(number, pair, width)]
    return "\n".join(lines)


def _pair(number: int, pair: TextPair, width: int) -> Iterator[str]:
    prompt = visible(pair.prompt[-PROMPT:])
    yield from wrapping.wrapped(f"{number}. {pair.how}: {prompt}", width, "", "   ")
    for step, reward, spans in zip(pair.steps, pair.rewards, (pair.without, pair.having), strict=True):
        head = f"reward {brief(reward)}" + (f", step {step:,}" if step else "")
        yield from wrapping.wrapped(f"{head}: {marked(spans)}", width, "   ", "     ")


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


def coloured(text: str, word: str) -> str:
    """The text with its first paragraph in the colour of the word, and the marked spans in bold."""
    made = wrapping.coloured(text, word)
    return made.replace(OPEN, f"\x1b[1;33m{OPEN}").replace(CLOSE, f"{CLOSE}\x1b[0m")
