"""Logs whose form misleads a reader, each with what a person reads in it.

A trap is a function of a folder that writes a log there; `Trap` says what must be found: the steps with a reward and
their rewards, and the evaluations.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from trainer_logs import html, notebook

N = 48
"""Steps of a run."""


@dataclass(frozen=True)
class Trap:
    """A log, and what is right: steps (n,) and rewards (n,), and the steps of evaluations.

    run: number of the run that the user has to give. said: words that a note must have.
    """

    path: Path
    steps: np.ndarray
    rewards: np.ndarray
    evaluated: Sequence[int] = ()
    run: int | None = None
    said: str = ""
    absent: Sequence[str] = ()


def rewards(n: int = N, low: float = 0.2, high: float = 0.7, seed: int = 1) -> np.ndarray:
    """A curve that rises with noise, (n,)."""
    noise = np.random.default_rng(seed).normal(0, 0.03 * abs(high - low), n)
    return np.asarray(np.round(np.linspace(low, high, n) + noise, 6))


def lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A CSV file with a header; a row without a key has an empty cell."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, keys)
        writer.writeheader()
        writer.writerows(rows)
    return path


def _row(step: int, reward: float, **other: Any) -> dict[str, Any]:
    return {"step": step, "reward": reward, "loss": 0.01 + 0.0001 * step, "entropy": 1.0 - 0.005 * step,
            "completion_length": 300.0 + step, "grad_norm": 0.5 + 0.001 * step, **other}  # fmt: skip


def numbers_as_strings(folder: Path) -> Trap:
    """Every number in quotes, the step too."""
    found = rewards()
    rows = [{key: str(value) for key, value in _row(k + 1, r).items()} for k, r in enumerate(found.tolist())]
    return Trap(lines(folder / "log.jsonl", rows), np.arange(1, N + 1), found)


def rewards_on_every_eighth_row(folder: Path) -> Trap:
    """Eight updates to a batch of rollouts, of which only the first row has the rewards."""
    found = rewards(N // 8)
    rows = []
    for k in range(N):
        row = _row(k + 1, 0.0)
        row.pop("reward")
        rows.append(row | ({"reward": float(found[k // 8])} if k % 8 == 0 else {}))
    return Trap(lines(folder / "log.jsonl", rows), np.arange(1, N + 1, 8), found)


def several_events_a_step(folder: Path) -> Trap:
    """Rollout, update and checkpoint are rows of their own, with the numbers in an object."""
    found = rewards()
    rows: list[dict[str, Any]] = []
    for k, r in enumerate(found.tolist()):
        rows.append(
            {"event": "rollout", "step": k, "data": {"reward": {"mean": r, "std": 0.3}, "length": {"mean": 300.0}}}
        )
        rows.append(
            {"event": "update", "step": k, "data": {"loss": 0.01, "grad_norm": 0.5 + 0.01 * k, "kl": 0.001 * k}}
        )
        rows.append({"event": "checkpoint", "step": k, "data": {"seconds": 1.5}})
    return Trap(lines(folder / "events.jsonl", rows), np.arange(N), found)


def train_and_eval_under_one_step(folder: Path) -> Trap:
    """Rows of training and of evaluation with the same keys and steps, told apart by a text."""
    found = rewards()
    rows = []
    for k, r in enumerate(found.tolist()):
        rows.append(_row(k + 1, r, split="train"))
        if k % 8 == 7:
            rows.append({"step": k + 1, "reward": r - 0.1, "split": "eval"})
    return Trap(lines(folder / "log.jsonl", rows), np.arange(1, N + 1), found, range(8, N + 1, 8))


def two_runs_and_averages_side_by_side(folder: Path) -> Trap:
    """A CSV export of a chart of two runs, each with its least and largest value; the first one is asked for."""
    found, other = rewards(), rewards(seed=2)
    rows = [
        {"Step": k, "calm-sea-1 - reward": r, "calm-sea-1 - reward__MIN": r, "calm-sea-1 - reward__MAX": r,
         "wild-fox-2 - reward": q, "wild-fox-2 - reward__MIN": q, "wild-fox-2 - reward__MAX": q}
        for k, (r, q) in enumerate(zip(found.tolist(), other.tolist(), strict=True))
    ]  # fmt: skip
    return Trap(table(folder / "wandb_export.csv", rows), np.arange(N), found, run=1)


def moving_average_beside(folder: Path) -> Trap:
    """A CSV with the reward and its moving averages."""
    found = rewards()
    smooth = np.convolve(found, np.ones(10) / 10)[:N]
    rows = [{"step": k + 1, "reward_ma10": round(m, 6), "reward": r, "reward_ema": round(m, 6), "loss": 0.01}
            for k, (r, m) in enumerate(zip(found.tolist(), smooth.tolist(), strict=True))]  # fmt: skip
    return Trap(table(folder / "log.csv", rows), np.arange(1, N + 1), found)


def from_step(first: int) -> Callable[[Path], Trap]:
    """A run that goes on from another one's checkpoint, whose rows are elsewhere."""

    def begun_later(folder: Path) -> Trap:
        found = rewards()
        rows = [_row(first + k, r) for k, r in enumerate(found.tolist())]
        return Trap(lines(folder / "log.jsonl", rows), first + np.arange(N), found)

    return begun_later


def resumed_with_overlap(folder: Path) -> Trap:
    """Resumed from step 25 after step 32: eight steps were done twice, and the second time counts."""
    found = rewards()
    first = [_row(k + 1, r) for k, r in enumerate(rewards(32, seed=3).tolist())]
    second = [_row(k + 1, r) for k, r in enumerate(found.tolist())][24:]
    right = np.concatenate([rewards(32, seed=3)[:24], found[24:]])
    return Trap(lines(folder / "log.jsonl", first + second), np.arange(1, N + 1), right, said="restarted once")


def resumed_with_gap(folder: Path) -> Trap:
    """Resumed with ten steps that nobody logged."""
    found = rewards()
    rows = [_row(k + 1, r) for k, r in enumerate(found.tolist())]
    kept = np.r_[0:20, 30:N]
    return Trap(lines(folder / "log.jsonl", [rows[k] for k in kept]), kept + 1, found[kept])


def staircase(folder: Path) -> Trap:
    """The reward is measured at every sixth step and copied onto the steps that follow."""
    found = rewards(N // 6)
    rows = [_row(k + 1, float(found[k // 6])) for k in range(N)]
    return Trap(lines(folder / "log.jsonl", rows), np.arange(1, N + 1, 6), found, said="copied")


def equal_rows(folder: Path) -> Trap:
    """Every row was written three times, as by three processes."""
    found = rewards()
    rows = [_row(k + 1, r) for k, r in enumerate(found.tolist()) for _ in range(3)]
    return Trap(lines(folder / "log.jsonl", rows), np.arange(1, N + 1), found)


def columns_that_measure_nothing(folder: Path) -> Trap:
    """Mismatch and staleness that are 0 to the last digit."""
    found = rewards()
    rows = [
        {"step": k, "data": {"critic/score/mean": r, "actor/grad_norm": 0.5, "rollout_corr/kl": 0.0,
                             "rollout_corr/k3_kl": 0.0, "training/off_policy/trajectory_staleness/mean": 0.0}}
        for k, r in enumerate(found.tolist())
    ]  # fmt: skip
    path = lines(folder / "verl.jsonl", rows)
    absent = ("mismatch/k1", "mismatch/k3", "staleness/mean")
    return Trap(path, np.arange(N), found, said="not measured", absent=absent)


def evaluation_only_tail(folder: Path) -> Trap:
    """Checkpoints were evaluated further after training had ended."""
    found = rewards()
    rows: list[dict[str, Any]] = [_row(k + 1, r) for k, r in enumerate(found.tolist())]
    rows += [{"step": step, "eval/reward": 0.5} for step in range(N + 8, N + 48, 8)]
    return Trap(
        lines(folder / "log.jsonl", rows), np.arange(1, N + 1), found, [N + 8], said="no training happened between"
    )


def two_tables_in_a_notebook(folder: Path) -> Trap:
    """A cell that was run twice: the second table goes on where the first one ended."""
    found = rewards()
    header = ("Step", "Training Loss", "reward", "completion_length")
    cells = [(k + 1, "0.010000", f"{r:.6f}", 300 + k) for k, r in enumerate(found.tolist())]
    path = notebook(folder / "run.ipynb", html(header, cells[:30]), html(header, cells[30:]))
    return Trap(path, np.arange(1, N + 1), found)


def in_units(low: float, high: float) -> Callable[[Path], Trap]:
    """Rewards in units of their own."""

    def far(folder: Path) -> Trap:
        found = rewards(low=low, high=high)
        rows = [_row(k + 1, r) for k, r in enumerate(found.tolist())]
        return Trap(lines(folder / "log.jsonl", rows), np.arange(1, N + 1), found)

    return far


def environments_in_rows(folder: Path) -> Trap:
    """A row of each environment at every step, with the same keys."""
    math, code = rewards(), rewards(low=0.6, high=0.1, seed=4)
    rows = []
    for k, (r, q) in enumerate(zip(math.tolist(), code.tolist(), strict=True)):
        rows += [_row(k + 1, r, env="math"), _row(k + 1, q, env="code")]
    return Trap(lines(folder / "log.jsonl", rows), np.arange(1, N + 1), (math + code) / 2, said="env")


TRAPS: dict[str, Callable[[Path], Trap]] = {
    "numbers as strings": numbers_as_strings,
    "rewards on every eighth row": rewards_on_every_eighth_row,
    "several events a step, the reward nested": several_events_a_step,
    "train and eval rows under one step": train_and_eval_under_one_step,
    "two runs side by side in a CSV": two_runs_and_averages_side_by_side,
    "moving averages beside the reward": moving_average_beside,
    "first step 51": from_step(51),
    "first step 251": from_step(251),
    "resumed with overlap": resumed_with_overlap,
    "resumed with a gap": resumed_with_gap,
    "rows copied onto following steps": staircase,
    "blocks of equal rows": equal_rows,
    "columns that measure nothing": columns_that_measure_nothing,
    "an evaluation-only tail": evaluation_only_tail,
    "two tables in a notebook": two_tables_in_a_notebook,
    "rewards from -10 to 150": in_units(-10.0, 150.0),
    "rewards in the third decimal": in_units(0.500, 0.503),
    "environments in rows": environments_in_rows,
}
"""Name of a trap -> the function that writes it."""
