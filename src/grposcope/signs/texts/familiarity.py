"""How much a text is like the first texts of the run: bits per byte under a model of three bytes before the next.

The model is fitted by halves of the early groups, and an early text is read by the half that has not seen it, so that
nothing jumps where the early steps end. Tables are indexed by hashes of bytes; what was never seen costs at most
log2(256/0.05) ≈ 12 bits. Of a long text the first and last WINDOW bytes are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grposcope.core.rollouts import Bools, Floats, Ints

EARLY = 0.15
"""Share of the steps that are the early ones."""

MODEL_TEXTS = 2000
"""Most early texts that a model is fitted to."""

WINDOW = 700
"""Bytes at either end of a text that are read."""

_THREE, _FOUR = 1 << 18, 1 << 20
_Table = NDArray[np.float32]


def bits_per_byte(texts: Sequence[str], step: Ints, group: Ints) -> Floats:
    """Bits per byte of each text (N,) under the model of the early ones; over WINDOW/100 bytes at least."""
    early = early_rows(step)
    odd = _halves(group, early)
    ends = [_ends(text) for text in texts]
    models = _models(ends, early, odd)
    made = np.zeros(len(texts))
    for first in range(0, len(texts), 1000):
        rows = slice(first, first + 1000)
        read = [_bits(ends[rows], model) for model in models]
        own = np.where(odd[rows], read[0], read[1])
        made[rows] = np.where(early[rows], own, (read[0] + read[1]) / 2)
    return made


def disorder(texts: Sequence[str], step: Ints, group: Ints) -> float:
    """Bits per byte of the last texts under a model of the last ones, over those of the early ones under one of these.

    Each is read by the half that has not seen it. A new style has bits of its own, letters at random have more.
    """
    each = []
    for rows in (early_rows(step), early_rows(-step)):
        odd = _halves(group, rows)
        places = np.flatnonzero(rows)
        ends = [_ends(texts[int(index)]) for index in places]
        models = _models(ends, np.ones(len(ends), bool), odd[places])
        read = [_bits(ends, model) for model in models]
        each.append(float(np.where(odd[places], read[0], read[1]).mean()))
    return each[1] / max(each[0], 1e-6)


def _halves(group: Ints, rows: Bools) -> Bools:
    """Which of two halves each text is of: by groups, or by places where the rows are of one group."""
    odd = group % 2 == 1
    alone = not odd[rows].any() or bool(odd[rows].all())
    return np.asarray(np.arange(len(group)) % 2 == 1 if alone else odd)


def _models(ends: Sequence[bytes], rows: Bools, odd: Bools) -> list[tuple[_Table, _Table, _Table, _Table]]:
    """A model of each half of the texts at these rows."""
    fitted = np.flatnonzero(rows)
    fitted = fitted[:: max(1, len(fitted) // MODEL_TEXTS)]
    return [_model([ends[int(row)] for row in fitted if odd[row] == half]) for half in (False, True)]


def early_rows(step: Ints) -> Bools:
    """Which rows (N,) are of the first EARLY of the steps."""
    steps = np.unique(step)
    return np.asarray(step <= steps[max(0, int(np.ceil(EARLY * len(steps))) - 1)])


def _ends(text: str) -> bytes:
    if len(text) <= 2 * WINDOW:
        return text.encode("utf8", "replace")
    return text[:WINDOW].encode("utf8", "replace") + text[-WINDOW:].encode("utf8", "replace")


def _indices(content: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Places in the tables of three bytes, of these with the fourth, and of two."""
    wide = content.astype(np.uint32)
    three = wide[:-3] | wide[1:-2] << np.uint32(8) | wide[2:-1] << np.uint32(16)
    mixed = three * np.uint32(2654435761)
    four = (mixed ^ (mixed >> np.uint32(15))) + wide[3:] * np.uint32(0x85EBCA6B)
    pair = content[2:-1].astype(np.int64) << 8 | content[3:]
    return (
        (mixed >> np.uint32(14)).astype(np.int64),
        ((four * np.uint32(0x9E3779B1)) >> np.uint32(12)).astype(np.int64),
        pair,
    )


def _model(texts: Sequence[bytes]) -> tuple[_Table, _Table, _Table, _Table]:
    content = np.frombuffer(b"\0\0\0\0".join([b"", *texts, b""]), np.uint8)
    three, four, pair = _indices(content)
    counts = (
        np.bincount(index, minlength=size) for index, size in
        ((three, _THREE), (four, _FOUR), (pair, 1 << 16), (pair >> 8, 256))
    )  # fmt: skip
    c3, c4, c2, c1 = (count.astype(np.float32) for count in counts)
    return c3, c4, c2, c1


def _bits(texts: Sequence[bytes], model: tuple[_Table, _Table, _Table, _Table]) -> Floats:
    c3, c4, c2, c1 = model
    content = np.frombuffer(b"\0\0\0\0".join([b"", *texts, b""]), np.uint8)
    three, four, pair = _indices(content)
    likely = 0.6 * np.minimum(c4[four] / np.maximum(c3[three], 1), 1)
    likely += 0.35 * (c2[pair] / np.maximum(c1[pair >> 8], 1)) + 0.05 / 256
    bits = -np.log2(likely)
    sizes = np.array([len(text) for text in texts])
    start = np.cumsum(sizes + 4) - sizes - 4 + 1  # bits of a text: of its bytes, each predicted by the three before
    before = np.concatenate([[0.0], np.cumsum(bits)])
    sums = before[np.minimum(start + sizes, len(bits))] - before[np.minimum(start, len(bits))]
    return np.asarray(sums / np.maximum(sizes, WINDOW // 100))
