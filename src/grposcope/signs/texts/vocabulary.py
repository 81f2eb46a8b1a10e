"""The run's own vocabulary: sequences of one to three tokens whose presence varies most, and which text has which.

They are chosen from a sample of the texts by p(1 − p), p the share of texts that have one; rewards are not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.rollouts import Ints
from grposcope.maths.within_groups import Singles
from grposcope.signs.texts.tokens import Hashes, TextTokens, of_texts

SIZES = (1, 2, 3)
RAREST, FEWEST, COMMONEST = 0.005, 5, 0.99
"""Share and number of sampled texts that have to have a sequence, and the share that may."""

SAMPLED = 2_500_000
"""Characters of the sample."""

_SLOT = np.uint64(44)
_EMPTY = np.zeros(0, np.uint64)


@dataclass(frozen=True)
class Vocabulary:
    """Hashes (V,) of sequences and their texts. table: slot of a hash -> its place, or -1; one sequence has a slot.
    sizes (V,): tokens of each."""

    hashes: Hashes
    names: tuple[str, ...]
    table: Ints
    sizes: Ints

    def presence(self, tokens: TextTokens) -> Singles:
        """Which text (n, V) has which sequence: 1 or 0."""
        counts = np.zeros((len(tokens.counts), len(self.hashes)), np.float32)
        if not len(self.hashes):
            return counts
        for size in SIZES:
            hashes, first = tokens.ngrams(size)
            slots = self.table[(hashes >> _SLOT).astype(np.int64)]
            hit = np.flatnonzero(slots >= 0)
            hit = hit[self.hashes[slots[hit]] == hashes[hit]]
            counts[tokens.text[first[hit]], slots[hit]] = 1.0
        return counts


def of_texts_sampled(texts: Sequence[str], most: int) -> Vocabulary:
    """The `most` sequences whose presence varies most over a sample of the texts."""
    return of_tokens(of_texts([texts[row] for row in sampled([len(text) for text in texts])]), most)


def sampled(lengths: Sequence[int]) -> list[int]:
    """Places of the texts of a sample, evenly over them, from their lengths."""
    mean = max(sum(lengths) / max(len(lengths), 1), 1.0)
    count = int(min(len(lengths), 2000, max(SAMPLED / mean, 200)))
    return [int(row) for row in np.unique(np.linspace(0, len(lengths) - 1, count).round())]


def of_tokens(tokens: TextTokens, most: int) -> Vocabulary:
    """The `most` sequences of the tokens of at most 2,000 texts whose presence varies most over them."""
    count = len(tokens.counts)
    hashes, shares = [_EMPTY], [np.zeros(0)]
    for size in SIZES:
        own, first = tokens.ngrams(size)
        key = own & ~np.uint64(2047) | tokens.text[first].astype(np.uint64)  # 2,000 texts have 11 bits
        key = np.sort(key)
        key = key[np.concatenate([[True], key[1:] != key[:-1]])] & ~np.uint64(2047) if len(key) else key
        different, times = _counted(key)
        common = (times >= max(FEWEST, RAREST * count)) & (times <= COMMONEST * count)
        hashes.append(different[common])
        shares.append(times[common] / count)
    every, share = np.concatenate(hashes), np.concatenate(shares)
    best = np.argsort(-share * (1 - share), kind="stable")
    _, first_in_slot = np.unique(every[best] >> _SLOT, return_index=True)
    chosen = every[best[np.sort(first_in_slot)[:most]]]
    return _named(chosen, tokens)


def _counted(sorted_keys: Hashes) -> tuple[Hashes, Ints]:
    if not len(sorted_keys):
        return sorted_keys, np.zeros(0, np.int64)
    start = np.flatnonzero(np.concatenate([[True], sorted_keys[1:] != sorted_keys[:-1]]))
    return sorted_keys[start], np.diff(np.append(start, len(sorted_keys)))


def _named(rounded: Hashes, tokens: TextTokens) -> Vocabulary:
    """The vocabulary of hashes without their last bits, whole again and with the texts that they stand for."""
    table = np.full(1 << 20, -1, np.int64)
    table[(rounded >> _SLOT).astype(np.int64)] = np.arange(len(rounded))
    names, whole = [""] * len(rounded), np.zeros(len(rounded), np.uint64)
    sizes = np.ones(len(rounded), np.int64)
    for size in SIZES:
        hashes, first = tokens.ngrams(size)
        slots = table[(hashes >> _SLOT).astype(np.int64)]
        hit = np.flatnonzero(slots >= 0)
        hit = hit[rounded[slots[hit]] == hashes[hit] & ~np.uint64(2047)]
        for own, at in zip(*np.unique(slots[hit], return_index=True), strict=True):
            names[own] = tokens.shown(int(first[hit[at]]), size)
            whole[own], sizes[own] = hashes[hit[at]], size
    return Vocabulary(whole, tuple(names), table, sizes)
