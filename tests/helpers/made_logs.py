"""Files of made-up runs, in the forms of several trainers, on several scales, with what makes a log hard to read.

The runs are those of `plain_runs`; each file comes with the log as `raw_log` reads it.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import plain_runs
from raw_log import RawLog, read_raw

from grposcope.core.run import Run

COLUMNS = ("reward", "reward_std", "dead_fraction", "reward_min", "reward_max", "truncated", "length", "entropy", "kl",
           "loss", "grad_norm", "clip_fraction", "lr")  # fmt: skip
"""Columns of the made-up runs."""

TRL = {
    "reward": "reward", "reward_std": "reward_std", "dead_fraction": "frac_reward_zero_std",
    "truncated": "completions/clipped_ratio", "length": "completions/mean_length", "entropy": "entropy", "kl": "kl",
    "length_max": "completions/max_length", "length_min": "completions/min_length",
    "length_terminated": "completions/mean_terminated_length", "loss": "loss",
    "grad_norm": "grad_norm", "lr": "learning_rate", "clip_fraction": "clip_ratio/region_mean",
}  # fmt: skip
VERL = {
    "reward": "critic/score/mean", "reward_min": "critic/score/min", "reward_max": "critic/score/max",
    "truncated": "response_length/clip_ratio", "length": "response_length/mean", "entropy": "actor/entropy",
    "kl": "actor/kl_loss", "loss": "actor/pg_loss", "grad_norm": "actor/grad_norm", "lr": "actor/lr",
    "clip_fraction": "actor/pg_clipfrac",
}  # fmt: skip
PLAIN = {name: name for name in COLUMNS}
KEYS: Mapping[str, Mapping[str, str]] = {"trl": TRL, "verl": VERL, "jsonl": PLAIN, "csv": PLAIN}
"""Form of a file -> name of a column -> its key there."""

SCORED = {"trl": "eval_accuracy", "verl": "val-core/gsm8k/acc/mean@1", "jsonl": "eval/accuracy", "csv": "eval/accuracy"}
"""Form of a file -> the key of held-out accuracy."""

SHARES = ("dead_fraction", "truncated", "clip_fraction")


@dataclass(frozen=True)
class Made:
    """A file of a made-up run, what it is called, and the log in it."""

    name: str
    path: Path
    raw: RawLog


def made(folder: Path, kind: str, seed: int) -> Made:
    """The file of the made-up run of this kind and seed; form, scale and gaps are drawn from the seed."""
    rng = np.random.default_rng([7, seed])
    form = list(KEYS)[seed % 4]
    rows = _rows(plain_runs.of_seed(kind, seed).run, form, rng)
    path = folder / {"trl": "trainer_state.json", "csv": "log.csv"}.get(form, "log.jsonl")
    every = _write(path, rows, form)
    raw = _raw(path, form)
    return Made(f"{kind} {seed} {form}", path, replace(raw, window=every))


def of_columns(folder: Path, name: str, table: Mapping[str, Any]) -> Made:
    """The file of a run of these columns (n,), a step a row, with TRL's keys."""
    steps = range(1, 1 + max(len(column) for column in table.values()))
    logged = {_key("trl", key): column for key, column in table.items() if key != "step"}
    rows = [{"step": step, **{key: float(column[step - 1]) for key, column in logged.items()}} for step in steps]
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Made(name, path, _raw(path, "trl"))


def _key(form: str, name: str) -> str:
    """The key of a column; a part of the reward is logged under its name."""
    kind, slash, part = name.partition("/")
    if not slash:
        return KEYS[form].get(name, name)
    return f"rewards/{part}/{'mean' if kind == 'component' else 'std'}"


def _rows(run: Run, form: str, rng: np.random.Generator) -> list[dict[str, Any]]:
    """The rows of a run as a trainer writes them: perhaps in per cent, with values missing, a gap or a restart."""
    percent = bool(rng.random() < 0.25) and form in ("jsonl", "csv")
    table = {name: column for name, column in run.table.items() if name in (*COLUMNS, "step") or "/" in name}
    if form in ("trl", "verl"):
        table = {name: column for name, column in table.items() if name in (*KEYS[form], "step") or "/" in name}
    steps = table.pop("step")
    rows: list[dict[str, Any]] = []
    for i, step in enumerate(steps):
        row: dict[str, Any] = {"step": int(step)}
        for name, column in table.items():
            value = float(column[i])
            written = 100 * value if percent and name in SHARES else value
            row[_key(form, name)] = None if math.isnan(value) else round(written, 8)
        rows.append(row)
    rows = _hard_to_read(rows, form, rng)
    held = run.evaluations
    scores = [(int(held.step[i]), round(float(held.value[i]) * (100 if percent else 1), 8)) for i in range(len(held))]
    for step, score in scores if form != "verl" else ():
        place = max((i for i, row in enumerate(rows) if row["step"] <= step), default=-1)
        rows.insert(place + 1, {"step": step, SCORED[form]: score})
    if form == "verl":
        at = dict(scores)
        rows = [row | ({SCORED[form]: at[row["step"]]} if row["step"] in at else {}) for row in rows]
    return rows


def _hard_to_read(rows: list[dict[str, Any]], form: str, rng: np.random.Generator) -> list[dict[str, Any]]:
    """The rows with a value left out here and there, without some in the middle, or resumed from an earlier one."""
    n, how = len(rows), rng.integers(4)
    if n < 40:
        return rows
    if how == 1:
        for i in rng.choice(n, n // 25, replace=False):
            rows[i] = {key: value if key == "step" else None for key, value in rows[i].items()}
    elif how == 2:
        first = int(rng.integers(n // 4, n // 2))
        del rows[first : first + n // 12]
    elif how == 3 and form != "trl":
        first = int(rng.integers(n // 4, n // 2))
        again = [{key: value if key == "step" or value is None else round(value * 1.01, 8)
                  for key, value in row.items()} for row in rows[first : first + 6]]  # fmt: skip
        rows = [*rows[:first], *again, *rows[first:]]
    return rows


def _write(path: Path, rows: list[dict[str, Any]], form: str) -> int:
    """Write the rows; the steps that each is the mean of, as the file states or shows."""
    if form == "trl":
        steps = [row["step"] for row in rows if "reward" in row]
        every = int(np.median(np.diff(steps))) if len(steps) > 2 else 1
        state = {"global_step": rows[-1]["step"], "logging_steps": every, "log_history": rows}
        path.write_text(json.dumps(state))
        return every
    if form == "csv":
        keys = list(dict.fromkeys(key for row in rows for key in row))
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, keys)
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return 1


def _raw(path: Path, form: str) -> RawLog:
    """The log as plain Python reads it."""
    names = dict(KEYS[form])
    raw = read_raw(path, "step", names, {SCORED[form]: SCORED[form]}, [names[name] for name in SHARES if name in names])
    parts = {key.split("/")[1]: key for key in raw.columns if key.startswith("rewards/") and key.endswith("/mean")}
    return replace(raw, names={**names, **parts})
