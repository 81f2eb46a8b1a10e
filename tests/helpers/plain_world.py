"""Rollouts of a made-up run, drawn one by one, and every column that a trainer would log of them.

Rewards are drawn per prompt and rollout, so that the mean, the spread within groups and the share of dead groups agree
with one another. Prompts differ in difficulty, and the skill wanders a little from row to row. N rows, P prompts, G
rollouts a prompt.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, logit
from synthetic_series import Columns, ar1

from grposcope.core.not_finite import is_written_nan
from grposcope.core.run import Evaluations, Meta, Run, no_evaluations, no_groups
from grposcope.logs import read

Array = np.ndarray

UNITS = ((0.0, 1.0, 1), (0.0, 1.0, 1), (-1.0, 1.0, 1), (0.0, 5.0, 5), (-5.0, 5.0, 10))
"""Least and largest reward of a rollout, and in how many equal parts it is earned."""

OPTIONAL = ("kl", "lr", "clip_fraction", "loss", "reward_min", "reward_max", "reward_std")
"""Columns that a log may lack while the rest of the run can still be judged."""

BATCHES = 600 * 64 * 8
"""Rollouts of a run at most, so that long ones have smaller batches."""


@dataclass(frozen=True)
class World:
    """What a run is drawn from.

    low, high: reward of a rollout that is all wrong and all right, earned in `parts` equal parts. spread: standard
    deviation of the prompts' difficulty, in logits; wander: that of the skill about its curve, an AR(1) with `phi`.
    stride: optimiser steps from one row to the next.
    """

    rng: np.random.Generator
    rows: int
    prompts: int
    group: int
    spread: float
    low: float
    high: float
    parts: int
    phi: float
    wander: float
    stride: int

    @property
    def u(self) -> Array:
        """Share of the run that is over at each row, (N,)."""
        return np.arange(self.rows) / self.rows

    @property
    def range(self) -> float:
        """The largest reward less the least."""
        return self.high - self.low

    def noisy(self, level: Array | float, spread: float) -> Array:
        """Positive values (N,) about a level, with noise by a factor."""
        return level * np.exp(spread * ar1(self.rng, self.rows, self.phi))

    def steps(self) -> Array:
        """The step of each row, (N,)."""
        return self.stride * np.arange(1.0, self.rows + 1)


def world(rng: np.random.Generator, rows: int, **fixed: Any) -> World:
    """A world drawn at random, but for the fields that are given."""
    low, high, parts = UNITS[rng.integers(len(UNITS))]
    prompts, group = int(rng.choice([8, 16, 32, 64])), int(rng.choice([4, 8, 8, 16]))
    while rows * prompts * group > BATCHES and prompts > 8:
        prompts //= 2
    drawn = {
        "prompts": prompts, "group": group, "spread": rng.uniform(0.3, 1.5), "low": low, "high": high, "parts": parts,
        "phi": rng.uniform(0, 0.6), "wander": rng.uniform(0, 0.25), "stride": int(rng.choice([1, 1, 1, 1, 5, 10])),
    }  # fmt: skip
    return World(rng, rows, **(drawn | fixed))


def rollouts(w: World, rate: Array, copies: Array | float = 0.0) -> Array:
    """Rewards (N, P, G) at these mean success rates (N,) in [0, 1]; 0 and 1 are exact.

    copies: share of groups (N,) whose rollouts all repeat the first.
    """
    skill = logit(rate) * np.sqrt(1 + 0.35 * w.spread**2) + w.wander * ar1(w.rng, w.rows, w.phi)
    chance = expit(skill[:, None] + w.spread * w.rng.normal(size=(w.rows, w.prompts)))
    earned = w.rng.binomial(w.parts, np.broadcast_to(chance[..., None], (*chance.shape, w.group)))
    same = w.rng.random(chance.shape) < np.broadcast_to(np.reshape(copies, (-1, 1)), chance.shape)
    earned[same] = earned[same][:, :1]
    return w.low + w.range * earned / w.parts


def spreads(rewards: Array) -> Array:
    """Standard deviation within groups (ddof 1), mean over the groups of a row, (N,)."""
    return np.asarray(rewards.std(2, ddof=1).mean(1))


def reward_columns(rewards: Array) -> Columns:
    """Columns of the rewards (N, P, G) alone."""
    return {
        "reward": rewards.mean((1, 2)),
        "reward_std": spreads(rewards),
        "dead_fraction": (rewards == rewards[..., :1]).all(2).mean(1),
        "reward_min": rewards.min((1, 2)),
        "reward_max": rewards.max((1, 2)),
    }


def cut_columns(w: World, share: Array | float, written: float | None = None, limit: int | None = None) -> Columns:
    """Truncation and length where this share (N,) of completions is cut at the limit; written: length of the others."""
    share, count = np.broadcast_to(share, w.rows), w.prompts * w.group
    cut = w.rng.binomial(count, share) / count
    limit = limit or int(w.rng.choice([256, 512, 1024, 2048, 4096]))
    ended = np.minimum(w.noisy((written or w.rng.uniform(0.2, 0.6)) * limit, 0.05), 0.95 * limit)
    return {"truncated": cut, "length": cut * limit + (1 - cut) * ended}


def columns(w: World, rewards: Array, progress: Array | float = 0.0) -> Columns:
    """All columns of a run with these rewards (N, P, G) in which nothing else is wrong.

    progress: how far the policy has moved (N,), 0 to 1: entropy falls by up to 40 % and KL grows with it.
    """
    table = reward_columns(rewards)
    live = 1 - table["dead_fraction"]
    far = np.broadcast_to(progress, w.rows)
    return {
        **table,
        **cut_columns(w, w.rng.uniform(0, 0.03)),
        "entropy": w.noisy(w.rng.uniform(0.3, 1.5) * (1 - w.rng.uniform(0, 0.4) * far), 0.05),
        "kl": w.noisy(w.rng.uniform(3e-4, 2e-3) + w.rng.uniform(0.01, 0.08) * far, 0.15),
        "loss": w.rng.uniform(1e-4, 1e-2) * ar1(w.rng, w.rows, 0.0),
        "grad_norm": w.noisy(w.rng.uniform(0.1, 1.0) * np.sqrt(live + 1e-4), w.rng.uniform(0.05, 0.2)),
        "clip_fraction": w.noisy(w.rng.uniform(0.001, 0.03), 0.2),
        "lr": np.full(w.rows, 10 ** w.rng.uniform(-6.5, -5)),
    }


def live_norms(w: World, table: Columns) -> Array:
    """Gradient norms (N,): 0 in rows without a live group, or all but 0; the largest is 1.2 to 2.6 × the upper quartile
    of the others."""
    live = table["dead_fraction"] < 1
    norm = w.noisy(w.rng.uniform(0.1, 1.0), 0.5)
    norm = np.minimum(norm, w.rng.uniform(1.2, 2.6) * np.quantile(norm[live], 0.75))
    return np.where(live, norm, w.rng.choice([0.0, 1e-7]) * norm)


def rise(w: World, low: float, high: float) -> Array:
    """Success rates (N,) from `low` to `high`: straight, saturating or a sigmoid."""
    shape, u = w.rng.integers(3), w.u
    if shape == 0:
        way = u
    elif shape == 1:
        way = 1 - np.exp(-u / w.rng.uniform(0.15, 0.5))
    else:
        way = expit((u - w.rng.uniform(0.3, 0.6)) / w.rng.uniform(0.06, 0.12))
    return low + (high - low) * (way - way[0]) / (way[-1] - way[0])


def ramp(rows: int, first: int, width: int) -> Array:
    """0 before row `first`, 1 from row first + width on, straight between them, (N,)."""
    return np.clip((np.arange(rows) - first + 1) / max(width, 1), 0, 1)


def logged(w: World, table: Columns, keep: Collection[str] = ()) -> Columns:
    """The columns that the log has: some of OPTIONAL are missing, but none of `keep`."""
    return {name: column for name, column in table.items()
            if name not in OPTIONAL or name in keep or w.rng.random() < 0.8}  # fmt: skip


def settings(w: World) -> Mapping[str, Any]:
    """Those settings that the log happens to hold."""
    known = {"group": w.group, "prompts": w.prompts} if w.rng.random() < 0.7 else {}
    return known | ({"rewards": "binary"} if (w.low, w.high, w.parts) == (0, 1, 1) and w.rng.random() < 0.5 else {})


def run(w: World, table: Columns, evaluations: Evaluations | None = None) -> Run:
    """A run with these columns."""
    config = {"settings": settings(w)}
    held = no_evaluations() if evaluations is None else evaluations
    return Run(Meta(Path("made"), "trl", "made", "finished"), config, {"step": w.steps()} | table, no_groups(), held)


def through_the_reader(table: Mapping[str, Array], apart: Sequence[Mapping[str, float]] = ()) -> Run:
    """The run that the readers make of a file with these columns (N,), a row each, and with rows of their own.

    A NaN is written as such if the column has it as written (`core.files.WRITTEN_NAN`), else as null.
    """
    null = {name: np.isnan(column) & ~is_written_nan(column) for name, column in table.items()}
    rows = [{name: None if null[name][i] else float(column[i]) for name, column in table.items()}
            for i in range(len(table["step"]))]  # fmt: skip
    written = sorted([*rows, *apart], key=lambda row: row["step"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in written))
        return read(path)


def evaluated(w: World, rate: Array) -> Evaluations:
    """Held-out accuracy of 200 to 1,000 problems, 8 to 20 times, at these success rates (N,)."""
    problems, times = int(w.rng.integers(200, 1000)), int(w.rng.integers(8, 21))
    at = np.unique(np.linspace(0, w.rows - 1, times).astype(int))
    found = w.rng.binomial(problems, rate[at]) / problems
    told = w.rng.random() < 0.5
    errors = np.sqrt(found * (1 - found) / problems) if told else np.full(len(at), np.nan)
    return Evaluations.of_rows([
        (int(w.steps()[row]), "accuracy", float(value), float(error), problems if told else 0,
         "" if told else "no standard error in the log")
        for row, value, error in zip(at, found, errors, strict=True)
    ])  # fmt: skip


@dataclass(frozen=True)
class Plain:
    """A run, and what may be said of it.

    words: the grades that are right. must: patterns that the first line has to match; named: patterns that the whole
    verdict has to match. false: patterns that neither may match. began: first and last step at which the failure may be
    said to begin, None where there is none. now: least and largest value of the outcome in the last fifth of the run;
    ends: least and largest value that it can have.
    """

    run: Run
    words: tuple[str, ...]
    must: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    began: tuple[int, int] | None = None
    now: tuple[float, float] | None = None
    ends: tuple[float, float] = (0.0, 1.0)

    @property
    def scale(self) -> float:
        """Range of the outcome."""
        return self.ends[1] - self.ends[0]

    @property
    def late(self) -> float:
        """How many steps a date may be off: five rows, or a tenth of them."""
        steps = self.run.table["step"]
        return float(steps[0] * max(5, 0.1 * len(steps)))


def plain(
    w: World,
    table: Columns,
    words: tuple[str, ...],
    *,
    keep: Collection[str] = (),
    began: tuple[int, int] | None = None,
    held: Evaluations | None = None,
    **said: Any,
) -> Plain:
    """A run with these columns, some optional ones missing, and what may be said of it.

    keep: optional columns that this kind of run needs. began: first and last row. held: evaluations, which are then
    the outcome.
    """
    steps = w.steps()
    dated = None if began is None else (int(steps[began[0]]), int(steps[min(began[1], w.rows - 1)]))
    outcome, ends = (table.get("reward", np.empty(0)), (w.low, w.high)) if held is None else (held.value, (0.0, 1.0))
    last = outcome[np.isfinite(outcome)][-max(5, len(outcome) // 5) :]
    now = (float(last.min()), float(last.max())) if len(last) else None
    return Plain(run(w, logged(w, table, keep), held), words, began=dated, now=now, ends=ends, **said)
