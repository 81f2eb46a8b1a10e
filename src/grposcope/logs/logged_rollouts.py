"""Rollouts of one step as another trainer wrote them, texts and rewards, in groups to be looked into after the run.

TRL writes them to OUTPUT_DIR/completions (log_completions=True), verl to rollout_data_dir. Neither writes token ids:
`instruments.gradient.retokenize` makes them anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Floats, Rollouts


def choose(steps: Sequence[int], wanted: int | None, checkpoint: int | None, path: Path) -> int:
    """The step to read: the wanted one, or the one that fits the checkpoint best, or the last.

    The rollouts of step N + 1 were drawn from the weights after N steps, so they fit checkpoint N exactly; else those
    of the last step up to N are taken. UserError where there is no such step.
    """
    shown = (
        f"{', '.join(map(str, steps[:3]))}{', …' if len(steps) > 4 else ''}{f', {steps[-1]}' if len(steps) > 3 else ''}"
    )
    if wanted is not None:
        if wanted not in steps:
            raise UserError(f"{path} has no rollouts of step {wanted}; it has those of {shown}")
        return wanted
    if checkpoint is None:
        return steps[-1]
    if checkpoint + 1 in steps:
        return checkpoint + 1
    before = [step for step in steps if step <= checkpoint]
    if not before:
        raise UserError(
            f"{path} has rollouts of steps {shown} only, all after the checkpoint of step {checkpoint}; choose one of "
            "them by its step, or a later checkpoint"
        )
    return before[-1]


def grouped(
    rows: Rollouts, size: int | None, weights: Sequence[float] | Mapping[str, float] | None, limit: int | None = None
) -> Rollouts:
    """The rollouts of a step as whole groups of one size, group after group, rewarded by the weighted functions.

    size: rollouts per group, where known; else neighbours of one group are one, and the smallest is the size. weights:
    of the reward functions, in order or by name; None: all 1, which the order of the advantages has to confirm where
    there are several. Rollouts that have a reward of their own have that one function, `reward`. limit: the largest
    number of groups. UserError where groups are not of one size, or the weights do not fit.
    """
    order, size = _order(rows, size)
    prompts = len(order) // size
    parts = _rewards(rows)
    names = tuple(parts)
    scale = _weights(rows, names, weights)
    table = np.array(list(parts.values()), np.float64).reshape(len(names), -1)
    rewards = np.nansum(table * np.array(scale)[:, None], 0)[order].reshape(prompts, size)
    absent = int(np.isnan(table).all(0).sum())
    notes = [f"{absent} rollouts have no reward and count as 0, as in the trainer"] if absent else []
    given = advantages(rows)
    if given is not None and len(names) > 1:
        _check_order(rows, names, weights, rewards, given[order].reshape(prompts, size))
    kept = prompts if limit is None else min(limit, prompts)
    chosen = [
        replace(rows[i], group=str(index // size), index=index % size, reward=float(rewards.flat[index]))
        for index, i in enumerate(order[: kept * size])
    ]
    return replace(rows, rows=tuple(chosen), weights=dict(zip(names, scale, strict=True)), notes=tuple(notes))


def _rewards(rows: Rollouts) -> dict[str, Floats]:
    """Rewards (N,) by function, or the reward where the rollouts have one."""
    total = np.array([row.reward for row in rows], np.float64)
    if rows.functions and np.isnan(total).all():
        return {name: np.array([row.rewards.get(name, math.nan) for row in rows]) for name in rows.functions}
    return {"reward": total} if not np.isnan(total).all() else {}


def advantages(rows: Rollouts) -> Floats | None:
    """The advantage (N,) of each rollout; None where one has none, or several over its tokens."""
    each = [None if row.advantages is None or not len(row.advantages) else row.advantages for row in rows]
    alike = [float(own[0]) for own in each if own is not None and len(set(own[own != 0].tolist())) <= 1]
    return np.array(alike) if rows and len(alike) == len(rows) else None


def _order(rows: Rollouts, size: int | None) -> tuple[list[int], int]:
    """The rows so that groups stand together, and the size of the groups."""
    keys = [str(row.group) for row in rows]
    if not keys:
        raise UserError(f"{rows.path} has no rollouts of this step; choose another step")
    runs = [(key, len(list(same))) for key, same in groupby(keys)]
    order = list(range(len(keys)))
    if len({key for key, _ in runs}) < len(runs) and min(count for _, count in runs) == 1:
        first: dict[str, int] = {}  # shuffled rows: those with one key are a group
        for key in keys:
            first.setdefault(key, len(first))
        order.sort(key=lambda i: first[keys[i]])
        runs = list(Counter(keys).items())
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
    rows: Rollouts, names: tuple[str, ...], weights: Sequence[float] | Mapping[str, float] | None
) -> tuple[float, ...]:
    if not names:
        raise UserError(f"{rows.path} holds no reward; give the files of another step")
    if weights is None:
        return (1.0,) * len(names)
    if isinstance(weights, Mapping):
        return tuple(float(weights.get(name, 1.0)) for name in names)
    if len(weights) != len(names):
        raise UserError(
            f"{len(weights)} weights were given for {len(names)} reward functions ({', '.join(names)}); "
            "give one for each"
        )
    return tuple(map(float, weights))


def _check_order(
    rows: Rollouts,
    names: tuple[str, ...],
    weights: Sequence[float] | Mapping[str, float] | None,
    rewards: Floats,
    advantages: Floats,
) -> None:
    """UserError where the weighted sum does not order the rollouts of a group as their advantages do."""
    wrong = sum(not agree(r, a) for r, a in zip(rewards, advantages, strict=True))
    if wrong:
        what = "the plain sum" if weights is None else "the weighted sum"
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
