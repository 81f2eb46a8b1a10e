"""What the texts of one run do and those of another do not, on the same prompts.

Of each prompt that both runs have, the latest group of each is read. The difference of the two means of a feature is
one number a prompt; prompts are the units, all features are tested together (`maths.sign_flips`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.rollouts import Floats, Ints, Rollout
from grposcope.maths import sign_flips
from grposcope.maths.within_groups import Singles
from grposcope.signs.texts import features, sample
from grposcope.signs.texts.features import TextFeatures
from grposcope.signs.texts.habits import LACKING, LEVEL, RANKS, SAME, correlations
from grposcope.signs.texts.sample import TextSample

DRAWS = 499

FEW = 10
"""Common prompts below which nothing is compared."""

MOST = 500
"""Common prompts that are read, evenly over those there are."""

TOLD = 5
"""Most differences that are told."""

RELATIONS = ("same text for other prompts", "same answer for other prompts")
"""Relations between texts that are told as habits."""


@dataclass(frozen=True)
class TextDifference:
    """A feature in which the texts of two runs differ: its means over prompts in the first and in the second, of counts
    geometric ones, z and the family-wise p."""

    feature: str
    binary: bool
    first: float
    second: float
    z: float
    p: float


@dataclass(frozen=True)
class TextsBetween:
    """What the second of two runs does otherwise. prompts: that both have and that were read; texts: of both; features:
    that were tested, 0 where there are too few prompts."""

    prompts: int
    texts: int
    features: int
    differences: tuple[TextDifference, ...]


def between(first: Sequence[Rollout], second: Sequence[Rollout], seed: int = 0) -> TextsBetween | None:
    """How the texts of two lists of rollouts differ; None where one of them has no texts."""
    if not all(any(row.completion is not None and row.continuations == () for row in rows) for rows in (first, second)):
        return None
    own = _common(sample.of_rollouts(first), sample.of_rollouts(second))
    count = 0 if own is None else int(own.prompt.max()) + 1
    if own is None or count < FEW:
        return TextsBetween(count, 0 if own is None else len(own), 0, ())
    measured = features.of_sample(own)
    means = np.stack([_means(measured.columns[own.step == run], own.prompt[own.step == run]) for run in (0, 1)])
    z, p = sign_flips.flipped(means[1] - means[0], DRAWS, np.random.default_rng(seed))
    told = tuple(
        _difference(measured, means, index, float(z[index]), float(p[index])) for index in _told(measured, z, p)
    )
    return TextsBetween(count, len(own), len(measured), told)


def _difference(measured: TextFeatures, means: Floats | Singles, index: int, z: float, p: float) -> TextDifference:
    """The difference in a feature, from the means (2, P, F) over the texts of each prompt."""
    name = measured.names[index]
    first, second = (measured.counted(index, float(of_run[:, index].mean())) for of_run in means)
    return TextDifference(name, bool(measured.binary[index]), first, second, z, p)


def _common(first: TextSample, second: TextSample) -> TextSample | None:
    """The latest groups of the prompts that both have, as one sample whose step is 0 for the first and 1 for the
    second; None where there is none."""
    latest = [_latest(each) for each in (first, second)]
    shared = [prompt for prompt in latest[0] if prompt and prompt in latest[1]]
    if not shared:
        return None
    chosen = [
        shared[at] for at in np.unique(np.linspace(0, len(shared) - 1, min(MOST, len(shared))).round().astype(int))
    ]
    rows = [(run, number, row) for number, prompt in enumerate(chosen) for run in (0, 1) for row in latest[run][prompt]]
    whose = (first, second)
    cuts = [own.truncated for own in whose if own.truncated is not None]
    return TextSample(
        tuple(chosen[number] for _, number, _ in rows), tuple(whose[run].texts[row] for run, _, row in rows),
        np.array([whose[run].reward[row] for run, _, row in rows]), np.array([run for run, _, _ in rows], np.int64),
        np.array([2 * number + run for run, number, _ in rows], np.int64),
        np.array([number for _, number, _ in rows], np.int64),
        None if len(cuts) < 2 else np.array([bool(cuts[run][row]) for run, _, row in rows]),
    )  # fmt: skip


def _latest(own: TextSample) -> dict[str, Ints]:
    """Prompt -> the rows of its latest group."""
    last: dict[str, int] = {}
    for row in np.argsort(own.step, kind="stable").tolist():
        last[own.prompts[row]] = int(own.group[row])
    rows: dict[int, list[int]] = {}
    for row, group in enumerate(own.group.tolist()):
        rows.setdefault(group, []).append(row)
    return {prompt: np.array(rows[group], np.int64) for prompt, group in last.items()}


def _means(columns: Singles, prompt: Ints) -> Singles:
    """Means of the columns over the texts of each prompt (P, F)."""
    order = np.argsort(prompt, kind="stable")
    starts = np.flatnonzero(np.diff(prompt[order], prepend=-1))
    return np.asarray(np.add.reduceat(columns[order], starts) / np.bincount(prompt)[:, None], np.float32)


def _told(features: TextFeatures, z: Floats, p: Floats) -> list[int]:
    """The surest differences, one name for what goes together: of names that are alike the one that says most,
    and what the second does rather than what it leaves."""
    rank = np.array([RANKS.get(kind, 8 if name in RELATIONS else -1)
                     for kind, name in zip(features.kinds, features.names, strict=True)])  # fmt: skip
    rank = rank + np.where(rank >= 0, 12 * ~features.binary + LACKING * (features.binary & (z < 0)), 0)
    strong = np.abs(np.where((p <= LEVEL) & (rank >= 0), z, 0.0))
    told: list[int] = []
    while strong.max(initial=0.0) > 0 and len(told) < TOLD:
        index = int(np.argmax(strong))
        alike = np.abs(correlations(features.columns, index)) > SAME
        names = np.flatnonzero(alike & (strong >= 0.9 * strong[index]))
        told.append(int(min(names, key=lambda own: (rank[own], -strong[own]))))
        strong[alike] = 0.0
        strong[index] = 0.0
    return told
