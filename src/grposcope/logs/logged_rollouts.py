"""Rollouts of one step as another trainer wrote them, texts and rewards, to be looked into after the run.

TRL writes them to OUTPUT_DIR/completions (log_completions=True), verl to rollout_data_dir. Neither writes token ids:
`instruments.gradient.retokenize` makes them anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Floats, Text


@dataclass(frozen=True)
class LoggedRows:
    """Rollouts in the order of the file, N of them.

    engine: who wrote them. keys (N,): what tells groups apart, unless neighbours do. rewards: each (N,), by function.
    advantages: (N,) as the trainer computed them, where it wrote them.
    """

    engine: str
    path: Path
    step: int
    keys: tuple[str, ...]
    prompts: tuple[Text, ...]
    completions: tuple[Text, ...]
    rewards: Mapping[str, Floats]
    advantages: Floats | None = None


@dataclass(frozen=True)
class LoggedRollouts:
    """Whole groups, prompt-major: prompts (P,), completions (P·G,), rewards (P, G) of the weighted functions."""

    engine: str
    path: Path
    step: int
    prompts: tuple[Text, ...]
    completions: tuple[Text, ...]
    rewards: Floats
    functions: tuple[str, ...]
    weights: tuple[float, ...]
    notes: tuple[str, ...] = ()


def choose(steps: Sequence[int], wanted: int | None, checkpoint: int | None, place: Path) -> int:
    """The step to read: the wanted one, or the one that fits the checkpoint best, or the last.

    The rollouts of step N + 1 were drawn from the weights after N steps, so they fit checkpoint N exactly; else those
    of the last step up to N are taken. UserError where there is no such step.
    """
    shown = (
        f"{', '.join(map(str, steps[:3]))}{', …' if len(steps) > 4 else ''}{f', {steps[-1]}' if len(steps) > 3 else ''}"
    )
    if wanted is not None:
        if wanted not in steps:
            raise UserError(f"{place} has no rollouts of step {wanted}; it has those of {shown}")
        return wanted
    if checkpoint is None:
        return steps[-1]
    if checkpoint + 1 in steps:
        return checkpoint + 1
    before = [step for step in steps if step <= checkpoint]
    if not before:
        raise UserError(
            f"{place} has rollouts of steps {shown} only, all after the checkpoint of step {checkpoint}; choose one of "
            "them by its step, or a later checkpoint"
        )
    return before[-1]


def grouped(
    rows: LoggedRows, size: int | None, weights: Sequence[float] | Mapping[str, float] | None, limit: int | None = None
) -> LoggedRollouts:
    """The rows as whole groups of one size.

    size: rollouts per group, where known; else neighbours with one key are a group, and the smallest such group is the
    size. weights: of the reward functions, in order or by name; None: all 1, which the order of the advantages has to
    confirm where there are several. limit: the largest number of groups. UserError where groups are not of one size,
    or the weights do not fit.
    """
    order, size = _order(rows, size)
    prompts = len(order) // size
    names = tuple(rows.rewards)
    scale = _weights(rows, names, weights)
    parts = np.array([rows.rewards[name] for name in names], np.float64).reshape(len(names), -1)
    rewards = np.nansum(parts * np.array(scale)[:, None], 0)[order].reshape(prompts, size)
    notes = []
    absent = int(np.isnan(parts).all(0).sum())
    if absent:
        notes.append(f"{absent} rollouts have no reward and count as 0, as in the trainer")
    if rows.advantages is not None and len(names) > 1:
        _check_order(rows, names, weights, rewards, rows.advantages[order].reshape(prompts, size))
    kept = prompts if limit is None else min(limit, prompts)
    return LoggedRollouts(
        engine=rows.engine,
        path=rows.path,
        step=rows.step,
        prompts=tuple(rows.prompts[i] for i in order[: kept * size : size]),
        completions=tuple(rows.completions[i] for i in order[: kept * size]),
        rewards=rewards[:kept],
        functions=names,
        weights=scale,
        notes=tuple(notes),
    )


def _order(rows: LoggedRows, size: int | None) -> tuple[list[int], int]:
    """The rows so that groups stand together, and the size of the groups."""
    if not rows.keys:
        raise UserError(f"{rows.path} has no rollouts of step {rows.step}; choose another step")
    runs = [(key, len(list(same))) for key, same in groupby(rows.keys)]
    order = list(range(len(rows.keys)))
    if len({key for key, _ in runs}) < len(runs) and min(count for _, count in runs) == 1:
        first: dict[str, int] = {}  # shuffled rows: those with one key are a group
        for key in rows.keys:
            first.setdefault(key, len(first))
        order.sort(key=lambda i: first[rows.keys[i]])
        runs = list(Counter(rows.keys).items())
    counts = [count for _, count in runs]
    each = size or min(counts)
    if any(count % each for count in counts):
        raise UserError(
            f"{rows.path}: prompts have {min(counts)} to {max(counts)} rollouts at step {rows.step}, which do "
            f"not divide into groups of {each}; give the group size"
        )
    if each < 2:
        raise UserError(
            f"{rows.path}: each prompt has only one rollout at step {rows.step}, and a probe compares "
            "several; choose another step"
        )
    return order, each


def _weights(
    rows: LoggedRows, names: tuple[str, ...], given: Sequence[float] | Mapping[str, float] | None
) -> tuple[float, ...]:
    if not names:
        raise UserError(f"{rows.path} holds no reward; give the files of another step")
    if given is None:
        return (1.0,) * len(names)
    if isinstance(given, Mapping):
        return tuple(float(given.get(name, 1.0)) for name in names)
    if len(given) != len(names):
        raise UserError(
            f"{len(given)} weights were given for {len(names)} reward functions ({', '.join(names)}); give one for each"
        )
    return tuple(map(float, given))


def _check_order(
    rows: LoggedRows,
    names: tuple[str, ...],
    given: Sequence[float] | Mapping[str, float] | None,
    rewards: Floats,
    advantages: Floats,
) -> None:
    """UserError where the weighted sum does not order the rollouts of a group as their advantages do."""
    wrong = sum(not agree(r, a) for r, a in zip(rewards, advantages, strict=True))
    if wrong:
        what = "the plain sum" if given is None else "the weighted sum"
        raise UserError(
            f"{rows.path}: {what} of the reward functions ({', '.join(names)}) does not order the rollouts as their "
            f"advantages do in {wrong} of {len(rewards)} groups; give the weights with which the run was trained"
        )


def agree(rewards: Floats, advantages: Floats) -> bool:
    """Whether the advantages of a group order its rollouts as their rewards do."""
    order = np.argsort(rewards, kind="stable")
    order = order[np.isfinite(rewards[order]) & np.isfinite(advantages[order])]
    with np.errstate(over="ignore"):
        rises = np.diff(rewards[order]) > 1e-9
        return bool((np.diff(advantages[order])[rises] > -1e-6).all())


def number_or_nan(value: Any) -> float:
    """A JSON value as a number, NaN for any other."""
    return float(value) if isinstance(value, int | float) else math.nan
