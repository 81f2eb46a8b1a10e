"""Made-up runs whose outcome is known, and the grade that a diagnosis should give them.

Each is a function of a generator and a number of rows that returns the columns of a run and its held-out evaluations,
or None. Success rates are sampled: a reward is the mean of ROLLOUTS rollouts, and an evaluation of PROBLEMS problems,
so that noise shrinks at the ends of the range as it does in logs; prompts that differ add noise that wanders.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import synthetic_series as series
from synthetic_series import Columns

from grposcope.core.run import Evaluations, Run

ROLLOUTS = 256
PROBLEMS = 500
EVERY = 10
"""Rows from one held-out evaluation to the next."""

Made = tuple[Columns, np.ndarray | None]
Make = Callable[[np.random.Generator, int], Made]


def columns(rng: np.random.Generator, reward: np.ndarray, phi: float = 0.3) -> Columns:
    """Columns of a run with these success rates (n,), everything else as it should be."""
    n = len(reward)
    table = series.healthy(int(rng.integers(1 << 31)), n, phi)
    rate = np.clip(reward + 0.02 * series.ar1(rng, n, phi), 0.0, 1.0)
    table["reward"] = rng.binomial(ROLLOUTS, rate) / ROLLOUTS
    return table


def saturating(n: int, low: float, high: float, tau: float) -> np.ndarray:
    """A rise from `low` to `high` with a time constant of `tau` of the run."""
    u = np.arange(n) / n
    return low + (high - low) * (1 - np.exp(-u / tau)) / (1 - np.exp(-1 / tau))


def noisy(rng: np.random.Generator, level: np.ndarray, spread: float) -> np.ndarray:
    """Positive values around a level, with noise by a factor."""
    return level * np.exp(spread * series.ar1(rng, len(level), 0.3))


def ppo_baseline(rng: np.random.Generator, n: int) -> Made:
    """0.02 to 0.72 and stays, entropy falls to 17 %, two gradient spikes of 4.8 × the median."""
    reward = saturating(n, 0.02, 0.72, 0.12)
    table = columns(rng, reward)
    table["entropy"] = noisy(rng, 0.6 * (0.17 + 0.83 * np.exp(-np.arange(n) / (0.15 * n))), 0.05)
    table["grad_norm"] = noisy(rng, np.full(n, 0.5), 0.15)
    table["grad_norm"][rng.choice(np.arange(10, n - 5), 2, replace=False)] = 4.8 * 0.5
    return table, reward


def entropy_spent(rng: np.random.Generator, n: int) -> Made:
    """The training reward goes from 0.25 to 0.75 while entropy falls by 90 %."""
    reward = saturating(n, 0.25, 0.75, rng.uniform(0.2, 1.0))
    table = columns(rng, reward)
    table["entropy"] = noisy(rng, 0.8 * np.exp(np.log(0.1) * np.minimum(np.arange(n) / (0.7 * n), 1)), 0.05)
    return table, None


def small_swing(rng: np.random.Generator, n: int) -> Made:
    """The reward swings by ±0.03 with the epoch around a rise."""
    rise = saturating(n, 0.3, 0.7, 0.5)
    table = columns(rng, rise)
    swing = 0.03 * np.sin(2 * np.pi * np.arange(n) / (n / rng.uniform(6, 9)) + rng.uniform(0, 6))
    table["reward"] = rise + swing + 0.01 * series.ar1(rng, n, 0.0)
    return table, None


def small_swing_level(rng: np.random.Generator, n: int) -> Made:
    """The same swing around a level that the run was at from the start, at 0.7."""
    table = columns(rng, np.full(n, 0.7))
    swing = 0.03 * np.sin(2 * np.pi * np.arange(n) / (n / rng.uniform(6, 9)) + rng.uniform(0, 6))
    table["reward"] = 0.7 + swing + 0.01 * series.ar1(rng, n, 0.0)
    return table, None


def solved(rng: np.random.Generator, n: int) -> Made:
    """The task is solved, so that groups die: 0.3 to 0.99."""
    reward = saturating(n, 0.3, 0.99, 0.12)
    table = columns(rng, reward)
    p = np.clip(table["reward"], 0, 1)
    table["dead_fraction"] = np.clip(p**8 + (1 - p) ** 8, 0, 1)
    return table, 0.95 * reward


def still_rising(rng: np.random.Generator, n: int) -> Made:
    """Nothing is wrong, and the reward rises to the end, from 0.1 to 0.4."""
    reward = np.linspace(0.1, 0.4, n)
    return columns(rng, reward), 0.9 * reward


def hard_plateau(rng: np.random.Generator, n: int) -> Made:
    """Nothing is wrong; a hard task ends on a plateau at 0.45."""
    reward = saturating(n, 0.1, 0.45, 0.2)
    return columns(rng, reward), reward


def rises_with_kl(rng: np.random.Generator, n: int) -> Made:
    """KL grows steeply to 1.5 nats while the reward rises to the end."""
    reward = saturating(n, 0.3, 0.8, 0.6)
    table = columns(rng, reward)
    table["kl"] = noisy(rng, 0.02 * np.exp(4.3 * np.arange(n) / n), 0.1)
    return table, None


def collapse_stalled(rng: np.random.Generator, n: int) -> Made:
    """Entropy collapses at 30 %, and the reward stays at about half of what it could reach."""
    at = int(0.3 * n)
    reward = 0.1 + (rng.uniform(0.35, 0.5) - 0.1) * np.minimum(np.arange(n) / at, 1)
    table = columns(rng, reward)
    table["entropy"] = noisy(rng, 0.8 * np.where(np.arange(n) < at, 1.0, 0.03), 0.05)
    return table, reward if rng.random() < 0.5 else None


def collapse_fell(rng: np.random.Generator, n: int) -> Made:
    """Entropy collapses in the middle, and the reward falls by half within a fifth of the run."""
    u = np.arange(n) / n
    reward = 0.3 + 0.6 * np.minimum(u, 0.5) - 0.3 * np.clip((u - 0.5) / 0.2, 0, 1)
    table = columns(rng, reward)
    table["entropy"] = noisy(rng, 0.8 * np.where(u < 0.5, 1.0, 0.03), 0.05)
    return table, reward if rng.random() < 0.5 else None


def explosion(rng: np.random.Generator, n: int) -> Made:
    """Entropy explodes from 60 % on, and the reward collapses to near 0."""
    u = np.arange(n) / n
    gone = np.clip((u - 0.6) / 0.15, 0, 1)
    reward = (0.3 + 0.5 * np.minimum(u, 0.6)) * (1 - gone) + 0.02 * gone
    table = columns(rng, reward)
    table["entropy"] = noisy(rng, 0.6 * (1 + 9 * gone), 0.05)
    return table, None


def wrecked_by_swings(rng: np.random.Generator, n: int) -> Made:
    """The reward swings ever further, in the end from near 0 to near 1."""
    u = np.arange(n) / n
    swing = 0.45 * np.exp(4 * (u - 1)) * np.sin(2 * np.pi * 8 * u + rng.uniform(0, 6))
    table = columns(rng, np.full(n, 0.5))
    table["reward"] = np.clip(0.5 + swing + 0.02 * series.ar1(rng, n, 0.0), 0, 1)
    return table, None


def starved(rng: np.random.Generator, n: int) -> Made:
    """No rollout is ever right: the reward is 0, and all groups are dead."""
    table = columns(rng, np.zeros(n))
    table["reward"], table["dead_fraction"] = np.zeros(n), np.ones(n)
    return table, np.zeros(n)


def diverged(rng: np.random.Generator, n: int) -> Made:
    """KL runs away from 60 % on, and the reward falls to a third of its best."""
    u = np.arange(n) / n
    gone = np.clip((u - 0.6) / 0.3, 0, 1)
    table = columns(rng, 0.3 + 0.5 * np.minimum(u, 0.6) - 0.4 * gone)
    table["kl"] = noisy(rng, 0.05 * np.exp(5 * gone), 0.1)
    return table, None


def hacked(rng: np.random.Generator, n: int) -> Made:
    """The training reward rises from 0.3 to 0.9, held-out accuracy peaks at 40 % and loses most of its gain."""
    u = np.arange(n) / n
    held = 0.3 + 0.25 * np.minimum(u / 0.4, 1) - 0.2 * np.clip((u - 0.4) / 0.6, 0, 1)
    return columns(rng, saturating(n, 0.3, 0.9, 0.5)), held


def flat(rng: np.random.Generator, n: int) -> Made:
    """The reward stays at 0.3."""
    return columns(rng, np.full(n, 0.3)), None


_HEALTHY = (
    ppo_baseline, entropy_spent, small_swing, small_swing_level, solved, still_rising, hard_plateau, rises_with_kl,
)  # fmt: skip
HEALTHY: dict[str, Make] = {made.__name__: made for made in _HEALTHY}
"""Runs that must not be called failing."""

_FAILING = (collapse_stalled, collapse_fell, explosion, wrecked_by_swings, starved, diverged, hacked)
FAILING: dict[str, Make] = {made.__name__: made for made in _FAILING}
"""Runs that must not be called healthy."""


def run(make: Make, seed: int, rows: int) -> Run:
    """The run that a function of this file makes from a seed, evaluated every EVERY rows where it is evaluated."""
    rng = np.random.default_rng([seed, rows])
    table, held = make(rng, rows)
    made = series.run(table, None, rewards="binary")
    if held is None:
        return made
    at = np.arange(0, rows, EVERY)
    found = rng.binomial(PROBLEMS, np.clip(held[at], 0, 1)) / PROBLEMS
    evaluations = Evaluations.of_rows([
        (int(step) + 1, "accuracy", float(value), float("nan"), 0, "no standard error in the log")
        for step, value in zip(at, found, strict=True)
    ])  # fmt: skip
    return Run(made.meta, made.config, made.table, made.groups, evaluations)
