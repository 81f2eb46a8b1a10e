"""Rollouts with several rewards, in the forms in which engines and we write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def drawn(steps: int = 30, prompts: int = 8, group: int = 8, seed: int = 0) -> dict[str, np.ndarray]:
    """Rewards (steps, prompts, group) for right answers, form and length; all of them healthy."""
    rng = np.random.default_rng(seed)
    shape = steps, prompts, group
    skill = np.linspace(-0.8, 0.3, steps)[:, None, None] + rng.normal(0, 1, (1, prompts, 1))
    right = (rng.random(shape) < 1 / (1 + np.exp(-skill))) * 1.0
    form = (rng.random(shape) < 0.6) * 1.0
    return {"right": right, "form": form, "short": np.round(rng.random(shape), 3)}


def jsonl(path: Path, rewards: Mapping[str, np.ndarray], weights: Mapping[str, float] | None = None) -> Path:
    """A rollout a line; with weights also the reward that they make."""
    lines = []
    for at in np.ndindex(next(iter(rewards.values())).shape):
        own = {name: None if np.isnan(values[at]) else float(values[at]) for name, values in rewards.items()}
        row: dict[str, object] = {"step": at[0] + 1, "group": f"p{at[1]}", "rewards": own}
        if weights is not None:
            row["reward"] = sum(weights[name] * (value or 0.0) for name, value in own.items())
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")
    return path


def verl(folder: Path, rewards: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> Path:
    """A rollout_data_dir."""
    folder.mkdir(parents=True)
    shape = next(iter(rewards.values())).shape
    for step in range(shape[0]):
        rows = []
        for p in range(shape[1]):
            for i in range(shape[2]):
                own = {name: float(values[step, p, i]) for name, values in rewards.items()}
                score = sum(weights[name] * value for name, value in own.items())
                rows.append({"input": f"p{p}", "output": "x" * (1 + i), "score": score, "step": step + 1, **own})
        (folder / f"{step + 1}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def trl(folder: Path, rewards: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> Path:
    """TRL's completions/ of the sum of the rewards, standardized within groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = folder / "completions"
    place.mkdir(parents=True)
    steps, prompts, group = next(iter(rewards.values())).shape
    for step in range(steps):
        total = np.nansum([weights[name] * values[step] for name, values in rewards.items()], 0)
        advantage = (total - total.mean(1, keepdims=True)) / (total.std(1, ddof=1, keepdims=True) + 1e-4)
        columns = {name: values[step].reshape(-1) for name, values in rewards.items()}
        names = [f"prompt {p}" for p in range(prompts) for _ in range(group)]
        table = {"step": [step + 1] * len(names), "prompt": names, "completion": ["x"] * len(names), **columns}
        pq.write_table(
            pa.table({**table, "advantage": advantage.reshape(-1)}), place / f"completions_{step + 1:05d}.parquet"
        )
    return folder
