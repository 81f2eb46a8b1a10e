"""Tokens of many texts at once, without a tokenizer: words, single digits, single signs, single wide characters.

Texts are joined to one array of bytes; a token is a hash and the bytes that it stands for, so that no text becomes a
list of Python strings. Upper and lower case are one token. U: bytes, M: tokens, N: texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.core.rollouts import Bools, Floats, Ints

Bytes = NDArray[np.uint8]
Hashes = NDArray[np.uint64]

PERIODS = 4
"""Most tokens whose repetition in a row is counted."""

_GAP, _LETTER, _SIGN, _GOES_ON = range(4)
_MIXED = np.random.default_rng(45).integers(1, 2**63, 80, dtype=np.uint64) | np.uint64(1)
_LOWER = np.arange(256, dtype=np.uint8)
_LOWER[ord("A") : ord("Z") + 1] += 32


def _classes() -> Bytes:
    """What each byte of UTF-8 is: between tokens, of a word, a token by itself, or more of the character before."""
    kinds = np.full(256, _SIGN, np.uint8)
    kinds[[0, 9, 10, 13, 32]] = _GAP
    for first, last in ((ord("A"), ord("Z")), (ord("a"), ord("z")), (0xC3, 0xDF)):  # scripts of two bytes write words
        kinds[first : last + 1] = _LETTER
    kinds[0x80:0xC0] = _GOES_ON
    return kinds


_CLASSES = _classes()


@dataclass(frozen=True)
class TextTokens:
    """Tokens of texts. bytes (U,): the texts, a zero behind each. bounds (N + 1,): where each begins. start, end (M,):
    of each token in them. text (M,): whose it is. hashes (M,). counts (N,): tokens of each text."""

    bytes: Bytes
    bounds: Ints
    start: Ints
    end: Ints
    text: Ints
    hashes: Hashes
    counts: Ints

    def ngrams(self, size: int) -> tuple[Hashes, Ints]:
        """Hashes of `size` tokens in a row inside one text, and the first token of each."""
        count = len(self.hashes) - size + 1
        if count <= 0:
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        mixed = self.hashes[:count] * _MIXED[64]
        for further in range(1, size):
            mixed += self.hashes[further : further + count] * _MIXED[64 + further]
        if size == 1:
            return stirred(mixed + np.uint64(size)), np.arange(count)
        first = np.flatnonzero(self.text[:count] == self.text[size - 1 :])
        return stirred(mixed[first] + np.uint64(size)), first

    def shown(self, first: int, size: int) -> str:
        """The text of `size` tokens from one on."""
        piece = self.bytes[self.start[first] : self.end[first + size - 1]].tobytes()
        return piece.decode("utf8", "replace")

    def per_text(self, flags: Bools) -> Ints:
        """How many bytes of each text are flagged, (N,)."""
        return np.add.reduceat(flags, self.bounds[:-1], dtype=np.int64)


def of_texts(texts: Sequence[str]) -> TextTokens:
    """The tokens of texts, of which there is one at least."""
    encoded = [text.encode("utf8", "replace").replace(b"\0", b" ") for text in texts]
    whole = np.frombuffer(b"\0".join([*encoded, b""]), np.uint8)
    bounds = np.cumsum([0, *(len(text) + 1 for text in encoded)])
    kinds = _CLASSES[whole]
    leads = np.flatnonzero(kinds != _GOES_ON)
    if len(leads) < len(whole):  # bytes that go on are of the kind of their character
        kinds = np.repeat(kinds[leads], np.diff(np.append(leads, len(whole))))
        leading = np.zeros(len(whole), bool)
        leading[leads] = True
    else:
        leading = np.ones(len(whole), bool)
    before = np.concatenate([[_GAP], kinds[:-1]])
    start = np.flatnonzero(((kinds == _LETTER) & (before != _LETTER)) | ((kinds == _SIGN) & leading))
    if not len(start):
        none = np.empty(0, np.int64)
        return TextTokens(whole, bounds, none, none, none, np.empty(0, np.uint64), np.zeros(len(texts), np.int64))
    inside = kinds != _GAP
    inside[: start[0]] = False
    gaps = np.diff(np.append(start, len(whole)))
    position = (np.arange(len(whole) - start[0]) - np.repeat(start - start[0], gaps)) & 63
    values = (_LOWER[whole[start[0] :]].astype(np.uint64) + np.uint64(1)) * _MIXED[position]
    values *= inside[start[0] :]
    hashes = stirred(np.add.reduceat(values, start - start[0]))
    length = np.add.reduceat(inside[start[0] :], start - start[0], dtype=np.int64)
    text = np.repeat(np.arange(len(texts)), np.diff(np.searchsorted(start, bounds)))
    return TextTokens(whole, bounds, start, start + length, text, hashes, np.bincount(text, minlength=len(texts)))


def stirred(values: Hashes) -> Hashes:
    """Values whose bits all depend on all bits of the given ones."""
    mixed = (values ^ (values >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(mixed ^ (mixed >> np.uint64(29)))


def longest_run(tokens: TextTokens) -> Floats:
    """The longest run of one byte of each text that is no blank, (N,)."""
    whole = tokens.bytes
    start = np.flatnonzero(np.concatenate([[True], whole[1:] != whole[:-1]]))
    length = np.diff(np.append(start, len(whole)))
    long = np.flatnonzero((length > 1) & (whole[start] > 32))
    longest = np.minimum(np.diff(tokens.bounds) - 1, 1).astype(np.float64)
    owner = np.searchsorted(tokens.bounds, start[long], side="right") - 1
    np.maximum.at(longest, owner, length[long].astype(np.float64))
    return longest


def longest_repeat(tokens: TextTokens) -> Floats:
    """How many times in a row a text has the same one to PERIODS tokens at most, (N,); 0 for a text without tokens."""
    made = np.minimum(tokens.counts, 1).astype(np.float64)
    for period in range(1, PERIODS + 1):
        same = (tokens.hashes[period:] == tokens.hashes[:-period]) & (tokens.text[period:] == tokens.text[:-period])
        edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]])))
        start, end = edges[::2], edges[1::2]
        np.maximum.at(made, tokens.text[start], (end - start + period) // period)
    return made


def distinct_pairs(tokens: TextTokens) -> Floats:
    """The share of different pairs of neighbouring tokens among all of a text, (N,); 1 where there is none."""
    hashes, first = tokens.ngrams(2)
    count = len(tokens.counts)
    owner = tokens.text[first]
    keys = np.sort((owner.astype(np.uint64) << np.uint64(40)) | (hashes >> np.uint64(24)))
    new = np.concatenate([[True], keys[1:] != keys[:-1]]) if len(keys) else np.zeros(0, bool)
    different = np.bincount((keys[new] >> np.uint64(40)).astype(np.int64), minlength=count)
    every = np.bincount(owner, minlength=count)
    return np.asarray(np.where(every > 0, different / np.maximum(every, 1), 1.0))
