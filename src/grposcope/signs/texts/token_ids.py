"""Tokens of the tokenizer, where rollouts have their ids or their texts: sequences of one and two, and repeated pairs.

They show what texts hide: tokens that are left out of a decoded text, and one text that is written in other tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from grposcope.core.rollouts import Rollout

ENDS = 25_000
"""Tokens that are read at either end of a rollout."""


def spelled(rows: Sequence[Rollout], numbers: dict[str, int]) -> dict[int, str]:
    """The text of each token by the id that `_ids_of_rollout` gives it."""
    if all(row.completion_ids is None for row in rows):
        return {number: token for token, number in numbers.items()}
    made: dict[int, str] = {}
    for row in rows:
        if row.completion_ids is not None and len(row.tokens) == len(row.completion_ids):
            made.update(zip(row.completion_ids.tolist(), row.tokens, strict=True))
    return made
