"""Write the log of a made-up run, as TRL prints it, to try the other examples on: python examples/make_log.py LOG."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np


def make(path: Path, collapse: bool = True, steps: int = 150, seed: int = 0) -> Path:
    """The reward rises; with `collapse` the entropy falls from the middle on, and takes the reward along."""
    rng, u = np.random.default_rng(seed), np.arange(steps) / steps
    late = np.clip(u - 0.5, 0, None) * collapse
    columns = {
        "reward": 0.3 + 0.5 * u - 1.4 * late + 0.02 * rng.normal(size=steps),
        "entropy": 0.8 * np.exp(-8 * late + 0.05 * rng.normal(size=steps)),
        "kl": 0.001 + 0.02 * u + 0.001 * np.abs(rng.normal(size=steps)),
        "grad_norm": 0.3 + 0.02 * rng.normal(size=steps),
        "completions/mean_length": 120 + 3 * rng.normal(size=steps),
        "reward_std": 0.3 + 0.01 * rng.normal(size=steps),
    }
    rows = [{"step": i + 1, **{name: float(values[i]) for name, values in columns.items()}} for i in range(steps)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
