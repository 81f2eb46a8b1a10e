"""What the viewer of prompts and completions, assets/rollouts.js, may hold, and the form of its texts."""

from __future__ import annotations

BUDGET = 1_200_000
"""Characters of rollouts that a page may hold, all runs together."""

TEXT, TOKENS, PROMPT, NAME, PROBLEMS = 4_000, 1_500, 4_000, 300, 12
"""Longest completion in characters and in tokens, longest prompt and name of a problem, and problems per step."""


def cut(text: str, limit: int) -> dict[str, str]:
    """The first `limit` characters of a text, with a note if that is not all of it."""
    if len(text) <= limit:
        return {"text": text}
    return {"text": text[:limit], "cut": f"cut here: the first {limit:,} of {len(text):,} characters"}
