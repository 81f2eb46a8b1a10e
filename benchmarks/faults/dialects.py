"""A training of our loop as eight other trainers would have logged it: JSON lines with their keys and no others.

The keys are those of the trainer's own file in `logs/trainers/`; what a trainer does not log is left out. Scores of
held-out problems have the keys that users' logs have; TRL, ms-swift and ROLL evaluate with the reward that is trained,
so that they have none here. No log states a setting, but the learning rate where it is logged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grposcope.logs.trainers import TRAINERS

DEVELOPMENT = ("grposcope", "trl", "verl", "slime", "skyrl")
HELD_OUT = ("grposcope", "prime-rl", "nemo-rl", "roll", "ms-swift")
"""Dialects that the catalogue may be mended by, and those that score it; our own record is in both, on other seeds."""

EVALUATIONS = {
    "verl": "val-core/arithmetic/acc/mean@4", "slime": "eval/arithmetic", "skyrl": "eval/all/avg_score",
    "prime-rl": "eval/arithmetic/avg@4", "nemo-rl": "validation/accuracy",
}  # fmt: skip
"""Trainer -> the key of its held-out score."""

SAME = {
    "reward_std_unclear": "reward_std_batch", "kl_loss": "kl", "kl_estimate": "kl", "at_limit": "truncated",
    "entropy_loss": "entropy", "seconds_step": "seconds_update",
}  # fmt: skip
"""Metric of a trainer -> ours that has the same value in these trainings: one pass of k3, no entropy bonus."""


PROBLEMS = 5_000
"""Training problems of the task, where a training does not draw the same few."""


def rows_of(folder: Path) -> list[dict[str, float]]:
    """The rows of a training: its steps with what the bench noted of each batch, by the names of our metrics."""
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    noted = {row["step"]: row for row in map(json.loads, (folder / "noted.jsonl").read_text().splitlines())}
    drawn = [json.loads(line)["problem"] for line in (folder / "groups.jsonl").read_text().splitlines()]
    few = len(set(drawn)) < len(drawn) / 10
    rows, batch = [], {}
    for step in steps:
        batch = noted.get(step["step"], batch)
        row = {**batch, **{key: float(value) for key, value in step.items()}}
        if row.get("advantage_max") == row.get("advantage_min") == 0 and row["reward_std"] > 0:
            row = {key: value for key, value in row.items() if not key.startswith("advantage_")}  # no token has one
        row["epoch"] = row["step"] / len(steps) * len(drawn) / (len(set(drawn)) if few else PROBLEMS)
        row["clip_fraction"] = row["clip_low"] + row["clip_high"]
        rows.append(row)
    return rows


def evaluations_of(folder: Path) -> dict[int, float]:
    """Step -> held-out success rate."""
    path = folder / "evals.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["step"]: row["pass@1"]["value"] for row in map(json.loads, lines)}


def keys_of(name: str) -> dict[str, str]:
    """Key of a trainer -> our metric that it has, of those that a training of ours can have."""
    ways = {metric: keys[0] for metric, keys in TRAINERS[name].keys.items() if keys}
    return {key: SAME.get(metric, metric) for metric, key in ways.items() if metric != "step"}


def respelled(rows: Sequence[Mapping[str, float]], evaluations: Mapping[int, float], name: str) -> list[dict[str, Any]]:
    """The rows with the keys of a trainer, evaluations in rows of their own."""
    keys, held_out = keys_of(name), EVALUATIONS.get(name)
    lines: list[dict[str, Any]] = []
    for row in rows:
        step = int(row["step"])
        lines.append({"step": step, **{key: row[metric] for key, metric in keys.items() if metric in row}})
        if held_out is not None and step in evaluations:
            lines[-1][held_out] = evaluations[step]
    if held_out is not None and 0 in evaluations:
        lines.insert(0, {"step": 0, held_out: evaluations[0]})
    return lines


def write(folder: Path, name: str, path: Path) -> None:
    """Write the log of a training as a trainer would have."""
    lines = respelled(rows_of(folder), evaluations_of(folder), name)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
