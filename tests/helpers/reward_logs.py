"""A noisy reward with a known end and time constant, as a run of ours and as a CSV file."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np


def curve(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Steps and rewards that rise from 0.2 to 0.8 with time constant 25."""
    t = np.arange(1, n + 1)
    return t, 0.8 - 0.6 * np.exp(-t / 25) + 0.03 * np.random.default_rng(0).standard_normal(n)


def write_run(folder: Path) -> Path:
    """A run of SGD with this reward: with β = 0.5 and η = 0.1, κ = 0.5/(0.1·25) = 0.2."""
    settings = {"momentum": 0.5, "interval": 1, "optimizer": "sgd"}
    (folder / "config.json").write_text(
        json.dumps({"format": 2, "settings": settings, "lr": 0.1, "model": {"parameters": 100}})
    )
    rows = [{"step": int(t), "reward": float(r), "grad_norm": 0.5} for t, r in zip(*curve(), strict=True)]
    (folder / "steps.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def write_csv(path: Path, rows: list[list[Any]]) -> Path:
    """The file with these rows."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path
