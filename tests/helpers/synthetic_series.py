"""Made-up runs for the tests of diagnosis: smooth curves plus AR(1) noise."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from grposcope.core.run import Evaluations, Groups, Meta, Run
from grposcope.instruments.diagnosis import diagnose

Columns = dict[str, np.ndarray]
"""Column -> its values (n,)."""

U = np.arange(120) / 120
"""Share of a run of 120 rows that is over at each of them."""


def flagged(columns: Columns, accuracy: np.ndarray | None = None, **settings: object) -> list[str]:
    """The modes flagged in a run with these columns."""
    return [f.fault for f in diagnose(run(columns, accuracy, **settings)) if f.status == "present"]


def ar1(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    """AR(1) of variance 1, stationary from the start."""
    drawn = rng.normal(size=n)
    drawn[1:] *= math.sqrt(1 - phi**2)
    return np.asarray(lfilter([1.0], [1.0, -phi], drawn))


def run(table: dict[str, np.ndarray], accuracy: np.ndarray | None = None, **settings: object) -> Run:
    """A run with these columns; accuracy: held-out, at equal distances up to the last step."""
    n = len(next(iter(table.values())))
    scores = np.empty(0) if accuracy is None else accuracy
    steps = np.linspace(n / max(len(scores), 1), n, len(scores)).astype(np.int64)
    none = np.empty(0, np.int64)
    held = Evaluations(
        steps, ("accuracy",) * len(scores), scores, np.full(len(scores), np.nan),
        np.zeros(len(scores), np.int64), ("",) * len(scores),
    )  # fmt: skip
    groups = Groups(none, none, (), np.empty(0), np.zeros(1, np.int64))
    meta = Meta(Path("made"), "made", "made", "finished")
    return Run(meta, {"settings": settings}, {"step": np.arange(1.0, n + 1), **table}, groups, held)


def healthy(seed: int = 0, n: int = 120, phi: float = 0.3) -> dict[str, np.ndarray]:
    """Columns of a run that goes well."""
    rng, u = np.random.default_rng(seed), np.arange(n) / n
    return {
        "reward": 0.3 + 0.4 * u + 0.03 * ar1(rng, n, phi),
        "reward_std": np.full(n, 0.4),
        "dead_fraction": 0.1 + 0.02 * ar1(rng, n, phi),
        "entropy": (0.8 - 0.3 * u) * np.exp(0.05 * ar1(rng, n, phi)),
        "kl": (0.01 + 0.08 * u) * np.exp(0.1 * ar1(rng, n, phi)),
        "length": 300 * np.exp(0.05 * ar1(rng, n, phi)),
        "truncated": np.clip(0.03 + 0.01 * ar1(rng, n, phi), 0, 1),
        "loss": 1e-4 * ar1(rng, n, phi),
        "grad_norm": 0.5 * np.exp(0.2 * ar1(rng, n, phi)),
        "clip_fraction": np.clip(0.02 + 0.005 * ar1(rng, n, phi), 0, 1),
        "lr": np.full(n, 1e-6),
    }


def drifting(rng: np.random.Generator, n: int, period: float, spread: float) -> np.ndarray:
    """A triangular wave of variance 1; each of its periods is drawn anew."""
    ends = np.cumsum(period * np.exp(spread * rng.normal(size=n)))
    at = np.interp(np.arange(n) + ends[0] * rng.random(), [0, *ends], np.arange(n + 1))
    return np.asarray(np.sqrt(12) * (2 * np.abs(at % 1 - 0.5) - 0.5))
