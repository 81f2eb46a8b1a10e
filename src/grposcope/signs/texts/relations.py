"""What a text has in common with its prompt, with its siblings, and with texts for other prompts of about that time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.rollouts import Bools, Floats, Ints
from grposcope.signs.texts.answers import OPERAND
from grposcope.signs.texts.sample import TextSample
from grposcope.signs.texts.tokens import Hashes, of_texts

WINDOWS = 20
"""Parts of the run inside which texts for other prompts are compared."""

READ = 500
"""Sequences of three tokens at the beginning of a text that are looked for in its prompt."""


FEWEST = 4
"""Sequences of three tokens that tell a prompt from others, from which on a text can be seen to copy it."""


@dataclass(frozen=True)
class _Agreement:
    """Of each text (N,): the share of its siblings with the same, and of texts for other prompts with the same."""

    inside: Floats
    elsewhere: Floats


def agreement(values: Sequence[Hashable], sample: TextSample) -> _Agreement:
    """How often a value of each text, such as its answer or the text itself, is that of others."""
    steps = np.unique(sample.step)
    window = np.searchsorted(steps, sample.step) * WINDOWS // len(steps)
    numbers: dict[Hashable, int] = {}
    value = np.array([numbers.setdefault(own, len(numbers)) for own in values], np.int64)
    prompts = int(sample.prompt.max()) + 1
    cell = window * prompts + sample.prompt
    in_group, group = _same(value, sample.group)
    in_window, whole = _same(value, window)
    of_prompt, own = _same(value, cell)
    others = whole - own
    elsewhere = np.where(others > 0, (in_window - of_prompt) / np.maximum(others, 1), 0.0)
    return _Agreement((in_group - 1) / np.maximum(group - 1, 1), elsewhere)


def _same(value: Ints, cells: Ints) -> tuple[Ints, Ints]:
    """Of each row, how many of its place have its value, and how many there are in its place."""
    key = np.unique(value * (int(cells.max()) + 1) + cells, return_inverse=True)[1]
    return np.bincount(key)[key], np.bincount(cells)[cells]


def number_of_prompt(answers: Sequence[str], prompts: Sequence[str]) -> Bools:
    """Whether the answer of each text is a number that its prompt has."""
    numbers: dict[str, set[str]] = {}
    for prompt in prompts:
        if prompt not in numbers:
            numbers[prompt] = set(OPERAND.findall(prompt))
    return np.array([own in numbers[prompt] for own, prompt in zip(answers, prompts, strict=True)], bool)


def overlap(sample: TextSample) -> tuple[Floats, Floats]:
    """The share of the sequences of three tokens of each text that its prompt has, (N,), and the share of those of its
    prompt, but for what most prompts have, that the text has, (N,); 0 where these are fewer than FEWEST."""
    whole, own_part = _of_prompts(sample)
    of_text, of_prompt = np.zeros((2, len(sample)))
    for first in np.arange(0, len(sample), 500):
        rows = range(int(first), min(int(first) + 500, len(sample)))
        tokens = of_texts([sample.texts[row][: 5 * READ] for row in rows])
        hashes, at = tokens.ngrams(3)
        edges = np.searchsorted(tokens.text[at], np.arange(len(rows) + 1))
        for index, row in enumerate(rows):
            own, number = hashes[edges[index] : edges[index + 1]][:READ], int(sample.prompt[row])
            if len(own) and len(whole[number]):
                of_text[row] = float(_among(own, whole[number]).mean())
            if len(own) and len(own_part[number]) >= FEWEST:
                of_prompt[row] = float(_among(own_part[number], np.unique(own)).mean())
    return of_text, of_prompt


def _of_prompts(sample: TextSample) -> tuple[dict[int, Hashes], dict[int, Hashes]]:
    """The sequences of three tokens of each prompt, by number and sorted: all of them, and those that less than half of
    the prompts have."""
    rows = list({int(number): row for row, number in enumerate(sample.prompt)}.values())
    whole: dict[int, Hashes] = {}
    for first in range(0, len(rows), 500):
        piece = rows[first : first + 500]
        tokens = of_texts([sample.prompts[row][-6000:] for row in piece])
        hashes, at = tokens.ngrams(3)
        edges = np.searchsorted(tokens.text[at], np.arange(len(piece) + 1))
        for index, row in enumerate(piece):
            whole[int(sample.prompt[row])] = np.unique(hashes[edges[index] : edges[index + 1]])
    each, counts = np.unique(np.concatenate([*whole.values(), np.empty(0, np.uint64)]), return_counts=True)
    common = each[2 * counts >= len(whole)] if len(whole) > 1 else each[:0]
    return whole, {number: own[~_among(own, common)] for number, own in whole.items()}


def _among(values: Hashes, other: Hashes) -> Bools:
    """Which values stand in a sorted array."""
    if not len(other):
        return np.zeros(len(values), bool)
    nearest = other[np.minimum(np.searchsorted(other, values), len(other) - 1)]
    return np.asarray(nearest == values)
