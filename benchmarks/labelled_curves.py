"""Simulated runs whose failure is known: mean curves of every metric for each mode, plus autocorrelated noise.

A run has ROWS steps of smooth curves plus AR(1) noise of the same marginal spread for every φ, independent between
metrics; shares stay in [0, 1], positive quantities get noise by a factor, and the noise of a
share s is in proportion to √(s (1 − s)). The failures are of one chosen size each: detection says nothing of smaller
failures. `labelled_files` writes them as logs, `labelled_suite` diagnoses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.signal import lfilter

Array = np.ndarray
ROWS = 200
EVERY = 10
"""Steps from one held-out evaluation to the next."""

PHI = (0.0, 0.3, 0.6, 0.9)
GROUP = 8
SPREAD = 3.0
"""a + b of the Beta distribution of success rates over prompts."""


@dataclass
class Curves:
    """Mean curves (n,) of a run before noise. evaluation: held-out accuracy, if measured. parts: reward components."""

    reward: Array
    evaluation: Array | None
    dead: Array
    entropy: Array
    kl: Array
    length: Array
    truncated: Array
    gradient: Array
    parts: dict[str, Array] = field(default_factory=dict)


def saturating(u: Array, tau: float) -> Array:
    """Exponential approach from 0 to 1 over u in [0, 1], with time constant `tau`."""
    return (1 - np.exp(-u / tau)) / (1 - np.exp(-1 / tau))


def dead_groups(p: Array) -> Array:
    """Expected share of dead groups of GROUP rollouts at mean success rate p, Beta-distributed over prompts."""
    right, wrong = np.ones_like(p), np.ones_like(p)
    for j in range(GROUP):
        right = right * (SPREAD * p + j) / (SPREAD + j)
        wrong = wrong * (SPREAD * (1 - p) + j) / (SPREAD + j)
    return right + wrong


def healthy(u: Array) -> Curves:
    """Reward and held-out accuracy rise, entropy falls by half, KL grows to 0.08."""
    p = 0.25 + 0.45 * saturating(u, 0.5)
    one = np.ones_like(u)
    return Curves(p, 0.9 * p, dead_groups(p), 0.8 - 0.35 * u, 0.005 + 0.08 * u, 300 + 60 * u, 0.03 * one, 0.5 * one)


def plateau(u: Array) -> Curves:
    """The run is healthy, but the rise ends after a fifth of it."""
    c = healthy(u)
    c.reward = 0.25 + 0.45 * saturating(u, 0.07)
    c.evaluation, c.dead = 0.9 * c.reward, dead_groups(c.reward)
    c.entropy, c.kl = 0.8 - 0.3 * saturating(u, 0.1), 0.005 + 0.06 * saturating(u, 0.15)
    return c


def flat(u: Array) -> Curves:
    """All curves are constant."""
    one = np.ones_like(u)
    c = healthy(u)
    c.reward, c.evaluation, c.dead = 0.4 * one, 0.35 * one, dead_groups(0.4 * one)
    c.entropy, c.kl, c.length = 0.8 * one, 0.01 * one, 300 * one
    return c


def starved(u: Array) -> Curves:
    """Rollouts are hardly ever rewarded."""
    c = flat(u)
    one = np.ones_like(u)
    c.reward, c.evaluation, c.dead, c.gradient = 0.004 * one, 0.004 * one, 0.985 * one, 0.01 * one
    return c


def saturated(u: Array) -> Curves:
    """Every prompt is solved before the middle of the run."""
    c = healthy(u)
    c.reward = 0.4 + 0.585 * saturating(u, 0.12)
    c.evaluation, c.dead = 0.9 * c.reward, 0.2 + 0.785 * saturating(u, 0.15)
    c.gradient = 0.5 - 0.48 * saturating(u, 0.15)
    return c


def collapse(u: Array) -> Curves:
    """Entropy falls to almost 0 and the reward stops half-way."""
    c = healthy(u)
    c.reward = 0.25 + 0.3 * saturating(u, 0.12)
    c.evaluation, c.dead = 0.9 * c.reward, np.minimum(dead_groups(c.reward) + 0.4 * u, 0.8)
    c.entropy = 0.8 * np.exp(-5 * saturating(u, 0.4)) + 0.02
    return c


def hacked(u: Array) -> Curves:
    """Reward rises to 0.9 while held-out accuracy falls after a good start."""
    c = healthy(u)
    c.reward = 0.3 + 0.6 * saturating(u, 0.5)
    c.evaluation = 0.3 + 0.1 * np.minimum(u / 0.2, 1) - 0.18 * np.maximum(u - 0.2, 0) / 0.8
    c.dead, c.kl = dead_groups(c.reward), 0.005 + 0.3 * u
    return c


def hacked_unseen(u: Array) -> Curves:
    """No held-out evaluation; the reward for the format rises, that for the answer falls, their sum rises."""
    c = healthy(u)
    c.parts = {"correct": 0.55 - 0.5 * saturating(u, 0.5), "format": 0.1 + 1.4 * saturating(u, 0.4)}
    c.reward, c.evaluation = c.parts["correct"] + c.parts["format"], None
    c.kl = 0.005 + 0.3 * u
    return c


def long_winded(u: Array) -> Curves:
    """Completions grow fourfold and are cut, for little reward; there is no held-out evaluation."""
    c = healthy(u)
    c.reward, c.evaluation = 0.35 + 0.05 * u, None
    c.dead, c.length, c.truncated = dead_groups(c.reward), 300 * np.exp(1.4 * u), 0.03 + 0.8 * u**2
    return c


def stub(u: Array) -> Curves:
    """Completions shrink from 600 to 12 tokens within a twenty-fifth of the run, and the reward halves."""
    c = healthy(u)
    gone = np.clip((u - 0.55) / 0.04, 0, 1)
    c.length, c.reward = 600 * (12 / 600) ** gone, 0.25 + 0.3 * saturating(u, 0.5) - 0.25 * gone
    c.evaluation, c.dead = 0.9 * c.reward, dead_groups(c.reward)
    return c


def kl_blow_up(u: Array) -> Curves:
    """KL grows to 6 nats in the last third, and the reward falls."""
    c = healthy(u)
    late = np.clip((u - 0.65) / 0.35, 0, None)
    c.kl = 0.02 + 0.05 * u + 6 * (np.expm1(3 * late) / np.expm1(3))
    c.reward = c.reward - 0.35 * late**2
    c.evaluation, c.dead, c.gradient = 0.9 * c.reward, dead_groups(c.reward), 0.5 + 1.2 * late
    return c


def oscillating(u: Array) -> Curves:
    """The reward makes five swings of ±0.1."""
    c = healthy(u)
    c.reward = 0.3 + 0.25 * saturating(u, 0.4) + 0.1 * np.sin(2 * np.pi * 5 * u)
    c.evaluation, c.dead = 0.9 * c.reward, dead_groups(c.reward)
    return c


def growing(u: Array) -> Curves:
    """The reward makes six swings that grow from ±0.01 to ±0.2."""
    c = healthy(u)
    c.reward = 0.35 + 0.15 * saturating(u, 0.4) + 0.2 * np.exp(3 * (u - 1)) * np.sin(2 * np.pi * 6 * u)
    c.evaluation, c.dead = 0.9 * c.reward, dead_groups(c.reward)
    c.gradient = 0.5 * (1 + 1.5 * u**3)
    return c


SCENARIOS: dict[str, tuple[Callable[[Array], Curves], str]] = {
    "healthy": (healthy, ""),
    "healthy-plateau": (plateau, ""),
    "flat null": (flat, "no learning"),
    "starved": (starved, "starved"),
    "saturated": (saturated, "saturated"),
    "entropy collapse": (collapse, "entropy collapse"),
    "hacking, evaluated": (hacked, "reward hacking"),
    "hacking, components": (hacked_unseen, "reward hacking"),
    "length hack": (long_winded, "length"),
    "length collapse": (stub, "length"),
    "KL blow-up": (kl_blow_up, "kl blow-up"),
    "oscillation": (oscillating, "oscillation"),
    "growing oscillation": (growing, "growing oscillation"),
    "gradient spikes": (healthy, "gradient spikes"),
}
"""Name -> its curves, and the mode that is right for it."""

NULLS = ("healthy", "healthy-plateau", "flat null")
"""Scenarios in which any flag is a false alarm, except "no learning" on the last."""


@dataclass(frozen=True)
class Made:
    """A simulated run: columns (n,) under the names of `core.metrics`, and held-out scores (E,) with their steps.

    Scores are empty if nothing was evaluated. binary: whether single rewards are 0 or 1.
    """

    table: dict[str, Array]
    at: Array
    scores: Array
    binary: bool


def noise(rng: np.random.Generator, n: int, phi: float) -> Array:
    """AR(1) noise (n,) of variance 1, stationary from the start."""
    drawn = rng.normal(size=n)
    drawn[1:] *= math.sqrt(1 - phi**2)
    return lfilter([1.0], [1.0, -phi], drawn)


def make(name: str, seed: int, phi: float, rows: int = ROWS) -> Made:
    """Simulate the run of a scenario; the same arguments give the same run."""
    rng = np.random.default_rng([seed, int(1000 * phi), rows, list(SCENARIOS).index(name)])
    u = (np.arange(rows) + 0.5) / rows
    c = SCENARIOS[name][0](u)

    def ar() -> Array:
        return noise(rng, rows, phi)

    def share(mean: Array, sd: float) -> Array:
        return np.clip(mean + sd * np.sqrt(4 * mean * (1 - mean)) * ar(), 0, 1)

    def positive(mean: Array, sd: float) -> Array:
        return mean * np.exp(sd * ar() - sd**2 / 2)

    table = {"step": np.arange(1.0, rows + 1)}
    if c.parts:
        for part, mean in c.parts.items():
            table[f"component/{part}"] = mean + 0.03 * ar()
        table["reward"] = np.sum([table[f"component/{part}"] for part in c.parts], axis=0)
        for part, mean in c.parts.items():
            table[f"component_std/{part}"] = positive(np.sqrt(np.clip(mean * (1 - mean), 0.02, None)), 0.1)
    else:
        table["reward"] = np.round(share(c.reward, 0.03), 4)
    p = np.clip(table["reward"] / max(1.0, table["reward"].max()), 0, 1)
    table["reward_std"] = np.sqrt(p * (1 - p)) * (1 - c.dead) ** 0.5
    table["dead_fraction"] = share(c.dead, 0.05)
    table["entropy"], table["kl"] = positive(c.entropy, 0.05), positive(c.kl, 0.15)
    table["length"], table["truncated"] = positive(c.length, 0.05), share(c.truncated, 0.04)
    table["grad_norm"] = positive(c.gradient, 0.25)
    if name == "gradient spikes":
        at = rng.choice(np.arange(rows // 4, rows), 5, replace=False)
        table["grad_norm"][at] *= rng.uniform(6, 20, 5)
    table["clip_low"], table["clip_high"] = share(np.full(rows, 0.01), 0.015), share(np.full(rows, 0.015), 0.015)
    table["loss"], table["lr"] = 2e-3 * ar(), np.full(rows, 1e-6)
    if c.evaluation is None:
        return Made(table, np.empty(0, np.int64), np.empty(0), not c.parts)
    at = np.arange(EVERY, rows + 1, EVERY)
    scores = np.clip(c.evaluation[at - 1] + 0.02 * noise(rng, len(at), phi**EVERY), 0, 1)
    return Made(table, at, scores, not c.parts)


def rollouts(made: Made, prompts: int, seed: int) -> Array:
    """Rewards (n, prompts, GROUP) of 0 and 1 whose success rates are the reward column and vary over prompts."""
    rng = np.random.default_rng([seed, 7])
    p = np.clip(made.table["reward"], 1e-3, 1 - 1e-3)[:, None]
    rates = rng.beta(SPREAD * p, SPREAD * (1 - p), (len(p), prompts))
    return (rng.random((len(p), prompts, GROUP)) < rates[:, :, None]).astype(np.float64)
