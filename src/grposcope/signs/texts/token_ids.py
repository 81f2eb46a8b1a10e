"""Tokens of the tokenizer, where rollouts have their ids or their texts: sequences of one and two, and repeated pairs.

They show what texts hide: tokens that are left out of a decoded text, and one text that is written in other tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.rollouts import Ints, Rollout
from grposcope.signs.texts.tokens import TextTokens, stirred

ENDS = 25_000
"""Tokens that are read at either end of a rollout."""


@dataclass(frozen=True)
class _TokenIds(TextTokens):
    """The same of tokenizer's tokens. ids (M,): of each token. spelled: its text by id, empty where it is not known."""

    ids: Ints
    spelled: dict[int, str]

    def shown(self, first: int, size: int) -> str:
        """The tokens from one on, by their texts, else by their ids."""
        own = self.ids[first : first + size].tolist()
        if all(token in self.spelled for token in own):
            return "".join(self.spelled[token] for token in own)
        return " ".join(f"[{token}]" for token in own)


def of_rollout(row: Rollout, numbers: dict[str, int]) -> Ints | None:
    """The tokens that the policy wrote, by id; by their texts where there are no ids, which `numbers` gives one each.
    None where neither is there."""
    ids = row.completion_ids
    if ids is None and row.tokens:
        ids = np.array([numbers.setdefault(token, len(numbers)) for token in row.tokens], np.int64)
    if ids is None:
        return None
    own = np.asarray(ids, np.int64)
    if row.written is not None and len(row.written) == len(own):
        own = own[row.written]
    return own if len(own) <= 2 * ENDS else np.concatenate([own[:ENDS], own[-ENDS:]])


def spelled(rows: Sequence[Rollout], numbers: dict[str, int]) -> dict[int, str]:
    """The text of each token by the id that `of_rollout` gives it."""
    if all(row.completion_ids is None for row in rows):
        return {number: token for token, number in numbers.items()}
    made: dict[int, str] = {}
    for row in rows:
        if row.completion_ids is not None and len(row.tokens) == len(row.completion_ids):
            made.update(zip(row.completion_ids.tolist(), row.tokens, strict=True))
    return made


def joined(ids: Sequence[Ints], texts: dict[int, str]) -> _TokenIds:
    """The tokens of N rollouts as one array."""
    counts = np.array([len(own) for own in ids], np.int64)
    every = np.concatenate([*ids, np.empty(0, np.int64)])
    none = np.empty(0, np.int64)
    hashes = stirred((every.astype(np.uint64) + np.uint64(1)) * np.uint64(0xD1342543DE82EF95))
    owner = np.repeat(np.arange(len(ids)), counts)
    return _TokenIds(np.empty(0, np.uint8), none, none, none, owner, hashes, counts, every, texts)
