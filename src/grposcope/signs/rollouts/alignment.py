"""The sampler's log-probabilities beside the trainer's of the same tokens: equal, or equal after what went wrong.

Both are of one policy on one text, so that they differ by rounding alone. Where they do not, each of READINGS is tried
on the sampler's: its neighbour's place, another base of the logarithm, probabilities, the opposite sign. One that makes
the two equal, in all but a small share of the distance, is what happened; chance makes none so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.rollouts import Rollout
from grposcope.core.run import Bools, Floats

EXPLAINED = 0.1
"""Largest share of the mean distance that a reading may leave."""

CLOSE = 0.05
"""Mean distance, in nats, that rounding explains."""

FEWEST = 16
"""Tokens below which nothing is read into the log-probabilities."""


def _moved(by: int) -> Callable[[Floats], Floats]:
    """The value that stands `by` places later, NaN where there is none."""

    def move(values: Floats) -> Floats:
        moved = np.full(len(values), np.nan)
        if by > 0:
            moved[:-by] = values[by:]
        else:
            moved[-by:] = values[:by]
        return moved

    return move


def _log(values: Floats) -> Floats:
    return np.log(np.where(values > 0, values, np.nan))


MISALIGNED, BASE = "misaligned log-probabilities", "log-probabilities of another kind"
"""Names of the two faults."""

READINGS: Mapping[str, tuple[str, Callable[[Floats], Floats]]] = {
    "each stands one place before the token that it is of": (MISALIGNED, _moved(-1)),
    "each stands one place after the token that it is of": (MISALIGNED, _moved(1)),
    "they are logarithms to base 2": (BASE, lambda values: values * np.log(2)),
    "they are logarithms to base 10": (BASE, lambda values: values * np.log(10)),
    "they are probabilities, not their logarithms": (BASE, _log),
    "they have the opposite sign": (BASE, lambda values: -values),
}  # fmt: skip
"""What is wrong with the sampler's log-probabilities -> its fault, and what makes them right."""


@dataclass(frozen=True)
class _PairedTokens:
    """The drawn tokens of a rollout that both scored. sampler, trainer (T,): NaN where one of them did not."""

    row: Rollout
    sampler: Floats
    trainer: Floats

    @property
    def known(self) -> Bools:
        """Tokens (T,) that both scored."""
        return np.asarray(np.isfinite(self.sampler) & np.isfinite(self.trainer))

    @property
    def distance(self) -> Floats:
        """log π − log μ of the tokens that both scored."""
        return (self.trainer - self.sampler)[self.known]


def paired(rows: Sequence[Rollout]) -> list[_PairedTokens]:
    """The rollouts of the weights before their step that both scored, with the trainer's weights when they came."""
    shifts = []
    for row in rows:
        trainer = row.old if row.old is not None else row.current
        if row.sampler is None or trainer is None or len(trainer) != len(row.sampler):
            continue
        if row.version == row.version and row.version != row.step - 1:
            continue  # drawn by earlier weights, which the trainer's are not
        drawn = row.written if row.written is not None else row.mask
        keep = drawn if drawn is not None and len(drawn) == len(trainer) else np.ones(len(trainer), bool)
        pair = _PairedTokens(row, np.where(keep, row.sampler, np.nan), np.where(keep, trainer, np.nan))
        if pair.known.any():
            shifts.append(pair)
    return shifts


def reading(pairs: Sequence[_PairedTokens]) -> tuple[str, str, float] | None:
    """What makes the sampler's log-probabilities the trainer's: the fault, its words in READINGS and the mean distance
    that is left, in nats; None where they are right or nothing explains them."""
    distance = _mean(pairs, lambda values: values)
    tokens = sum(int(pair.known.sum()) for pair in pairs)
    spread = float(np.std(np.concatenate([pair.trainer[pair.known] for pair in pairs]))) if pairs else 0.0
    if tokens < FEWEST or not distance > CLOSE or spread < CLOSE:
        return None
    best = min(
        ((fault, words, _mean(pairs, right)) for words, (fault, right) in READINGS.items()), key=lambda read: read[2]
    )
    return best if best[2] <= min(EXPLAINED * distance, CLOSE) else None


def _mean(pairs: Sequence[_PairedTokens], right: Callable[[Floats], Floats]) -> float:
    """Mean |log π − log μ| after a reading; infinite where it leaves fewer than half of the tokens."""
    distances = [np.abs(pair.trainer - right(pair.sampler)) for pair in pairs]
    every = np.concatenate(distances) if distances else np.empty(0)
    finite = every[np.isfinite(every)]
    tokens = sum(int(pair.known.sum()) for pair in pairs)
    return float(finite.mean()) if 2 * len(finite) >= max(tokens, 1) else np.inf
