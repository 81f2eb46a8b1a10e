"""Runs of known outcome that are made in other ways than those the rules were settled on.

Nothing is tuned to them. Success rates are of prompts that differ and are drawn anew, rewards are means of rollouts,
and what is logged beside them follows from the policy's skill rather than from curves of its own. Each function takes
a generator and a number of rows and returns columns (n,), and held-out success rates (n,) or None.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import expit

from grposcope.core.run import Evaluations, Meta, Run, no_groups

Array = np.ndarray
Made = tuple[dict[str, Array], Array | None]
Make = Callable[[np.random.Generator, int], Made]

PROBLEMS = 300
"""Problems of a held-out evaluation."""


def _rewards(rng: np.random.Generator, skill: Array, prompts: int, group: int, spread: float) -> dict[str, Array]:
    """Mean reward, its spread within groups, and dead groups: 0/1 rewards of prompts whose difficulty differs."""
    rates = expit(skill[:, None] + spread * rng.normal(size=(len(skill), prompts)))
    right = rng.binomial(group, rates)
    share = right / group
    inside = np.sqrt(share * (1 - share) * group / (group - 1)).mean(1)
    dead = ((right == 0) | (right == group)).mean(1)
    return {"reward": share.mean(1), "reward_std": inside, "dead_fraction": dead}


def _heavy(rng: np.random.Generator, level: Array, spread: float) -> Array:
    """Positive values about a level, whose logarithm has heavy tails (Student's t, 5 degrees of freedom)."""
    return level * np.exp(spread * rng.standard_t(5, len(level)))


def _log_sigmoid(rng: np.random.Generator, n: int) -> Array:
    """A skill that is a sigmoid in the logarithm of the step, from about −2 up by 1.5 to 4."""
    middle = np.log(n * rng.uniform(0.08, 0.4))
    return rng.uniform(-2.5, -1.0) + rng.uniform(1.5, 4.0) * expit(
        rng.uniform(1.0, 2.5) * (np.log(np.arange(1, n + 1)) - middle)
    )


def epoch_sawtooth(rng: np.random.Generator, n: int) -> Made:
    """A sigmoid in log steps; within each epoch prompts go from easy to hard, so the reward saws."""
    skill = _log_sigmoid(rng, n)
    epoch = n / rng.uniform(2, 7)
    saw = rng.uniform(0.1, 0.6) * (0.5 - (np.arange(n) % epoch) / epoch)
    table = _rewards(rng, skill + saw, int(rng.choice([8, 16, 64])), int(rng.choice([4, 8, 16])), 1.5)
    table |= {
        "entropy": _heavy(rng, 0.9 * np.exp(-0.25 * (skill - skill[0])), 0.06),
        "kl": _heavy(rng, 0.002 + 0.01 * (skill - skill[0]) ** 2, 0.2),
        "grad_norm": _heavy(rng, 0.1 + 0.4 * table["reward_std"], 0.15),
        "length": _heavy(rng, 400 * np.exp(0.1 * (skill - skill[0])), 0.04),
    }
    return table, expit((skill - 0.2) / 1.3) if rng.random() < 0.5 else None


def ppo(rng: np.random.Generator, n: int) -> Made:
    """PPO on a learned reward: any scale, a KL that a controller holds at its target, entropy that decays, a critic."""
    u = np.arange(n) / n
    low, gain, noise = rng.normal(0, 2), rng.uniform(0.8, 4), rng.uniform(0.1, 0.5)
    score = low + gain * (1 - np.exp(-u / rng.uniform(0.1, 0.6)))
    target, kl, coefficient, kls = rng.uniform(0.02, 0.1), 0.001, 0.2, np.empty(n)
    for t in range(n):  # Ziegler et al.'s controller
        kl = max(kl + 0.004 * rng.lognormal(0, 0.3) - 0.05 * coefficient * kl, 1e-4)
        coefficient *= 1 + 0.05 * np.clip(kl / target - 1, -0.2, 0.2)
        kls[t] = kl
    table = {
        "reward": score + noise * gain * rng.normal(size=n) * np.linspace(1.2, 0.8, n),
        "kl": kls * rng.lognormal(0, 0.1, n),
        "entropy": _heavy(rng, 1.4 * (0.45 + 0.55 * np.exp(-2 * u)), 0.03),
        "value_loss": _heavy(rng, 0.5 * np.exp(-3 * u) + 0.1, 0.2),
        "clip_fraction": np.clip(_heavy(rng, np.full(n, 0.06), 0.3), 0, 1),
        "grad_norm": _heavy(rng, np.full(n, 1.0), 0.2),
        "length": _heavy(rng, 120 * np.exp(0.2 * u), 0.05),
    }
    return table, None


def in_proportion(rng: np.random.Generator, n: int) -> Made:
    """A reward of parts that rarely pay, so that its noise grows in proportion to its level, tenfold and more."""
    u = (np.arange(n) + 0.5) / n
    level = rng.uniform(0.03, 0.1) + rng.uniform(0.8, 1.5) * expit(
        (u - rng.uniform(0.3, 0.6)) / rng.uniform(0.08, 0.15)
    )
    shape = 1 / rng.uniform(0.2, 0.5) ** 2
    table = {"reward": rng.gamma(shape, level / shape), "kl": _heavy(rng, 0.002 + 0.05 * u, 0.2)}
    table["length"] = _heavy(rng, np.full(n, 300), 0.05)
    return table, None


def curriculum(rng: np.random.Generator, n: int) -> Made:
    """Prompts jump in difficulty, up and sometimes down, while the skill and so the held-out score rise steadily."""
    u = np.arange(n) / n
    skill = rng.uniform(-1.5, -0.5) + rng.uniform(2, 3) * u
    jumps = np.sort(rng.uniform(0.1, 0.95, int(rng.integers(2, 5))))
    harder = rng.uniform(0.3, 1.2, len(jumps)) * np.where(rng.random(len(jumps)) < 0.75, 1, -1)
    table = _rewards(rng, skill - harder @ (u >= jumps[:, None]), 32, 8, 1.2)
    table["kl"] = _heavy(rng, 0.001 + 0.06 * u, 0.15)
    table["entropy"] = _heavy(rng, 0.7 - 0.2 * u, 0.05)
    table["length"] = _heavy(rng, 500 * np.exp(0.15 * (harder @ (u >= jumps[:, None]))), 0.05)
    return table, expit(skill)


def resumed(rng: np.random.Generator, n: int) -> Made:
    """Resumed from checkpoints: a few steps are lost, and the optimiser's state with them, so that gradients jump."""
    skill, u = _log_sigmoid(rng, n), np.arange(n) / n
    norm = np.full(n, 0.4)
    for at in np.sort(rng.integers(n // 6, n - 5, 3)):
        back = int(rng.integers(2, max(3, n // 25)))
        skill[at:] = np.concatenate([skill[at - back : at], skill[at:-back]])
        norm[at : at + 2] *= 2.0
    table = _rewards(rng, skill, 16, 8, 1.0)
    table["grad_norm"] = _heavy(rng, norm, 0.15)
    table["kl"] = _heavy(rng, 0.002 + 0.05 * u, 0.2)
    table["entropy"] = _heavy(rng, 0.6 - 0.2 * u, 0.05)
    return table, expit(skill) if rng.random() < 0.5 else None


def still(rng: np.random.Generator, n: int) -> Made:
    """Nothing is learned: a fixed skill, prompts in the same order each epoch, metrics that breathe with them."""
    epoch = max(n // int(rng.integers(2, 6)), 10)
    hard = np.tile(rng.normal(size=epoch), n // epoch + 1)[:n] * rng.uniform(0, 0.4)
    table = _rewards(rng, rng.uniform(-1.5, 1.5) - hard, 16, 8, 1.0)
    table["kl"] = _heavy(rng, np.full(n, 1e-3), 0.3)
    table["entropy"] = _heavy(rng, 0.6 * np.exp(0.1 * hard), 0.05)
    table["length"] = _heavy(rng, 300 * np.exp(0.1 * hard), 0.05)
    table["grad_norm"] = _heavy(rng, np.full(n, 0.3), 0.2)
    return table, np.full(n, 0.4)


def drifting_prompts(rng: np.random.Generator, n: int) -> Made:
    """Nothing is learned, and the difficulty of prompts wanders slowly by as much as half the noise of a row."""
    skill = rng.uniform(-1.0, 1.0)
    slow = np.cumsum(rng.normal(size=n))
    slow = slow - np.linspace(0, slow[-1], n)  # a bridge: the data end where they began
    table = _rewards(rng, skill + 0.1 * slow / slow.std(), 16, 8, 1.0)
    table["entropy"] = _heavy(rng, np.full(n, 0.5), 0.05)
    table["length"] = _heavy(rng, np.full(n, 300), 0.05)
    return table, None


def optimised_proxy(rng: np.random.Generator, n: int) -> Made:
    """Gao, Schulman & Hilton's law: in d = √KL the proxy goes on, the true score d (α − β d) rises and falls."""
    u = (np.arange(n) + 1) / n
    d = 3 * u ** rng.uniform(0.5, 0.9)
    peak = rng.uniform(0.9, 1.3)
    gold = 1 - np.square(d / peak - 1)
    table = _rewards(rng, -0.8 + 0.9 * d, 32, 8, 1.0)
    table["kl"] = _heavy(rng, 0.1 * d**2, 0.1)
    table["entropy"] = _heavy(rng, 0.7 - 0.1 * d, 0.05)
    return table, np.clip(0.35 + 0.25 * np.maximum(gold, -1), 0.02, 1)


def forgotten(rng: np.random.Generator, n: int) -> Made:
    """Learns up to 60 to 80 % of the run, is resumed with too high a learning rate, and loses nearly all again."""
    u, at = np.arange(n) / n, rng.uniform(0.6, 0.75)
    skill = -1.5 + 2.5 * np.minimum(u / 0.4, 1) - 2.2 * (1 - np.exp(-np.maximum(u - at, 0) / 0.04))
    table = _rewards(rng, skill, 32, 8, 1.0)
    table["grad_norm"] = _heavy(rng, np.where(u < at, 0.3, 0.9), 0.2)
    table["kl"] = _heavy(rng, 0.005 + 0.05 * u + 0.3 * (u > at), 0.2)
    table["entropy"] = _heavy(rng, np.where(u < at, 0.6, 0.75), 0.05)
    return table, None


def stopped_early(rng: np.random.Generator, n: int) -> Made:
    """Learns for a fifth of the run; then groups die as rollouts copy each other, and it stays at 30 to 45 %."""
    u = np.arange(n) / n
    level = rng.uniform(0.3, 0.45)
    rate = 0.1 + (level - 0.1) * np.minimum(u / 0.2, 1)
    copies = np.clip((u - 0.15) / 0.1, 0, 1) * 0.97
    prompts = 32
    same = rng.random((n, prompts)) < copies[:, None]
    each = rng.binomial(8, np.broadcast_to(rate[:, None], (n, prompts)))
    right = np.where(same, 8 * (rng.random((n, prompts)) < rate[:, None]), each)
    share = right / 8
    table = {
        "reward": share.mean(1), "reward_std": np.sqrt(share * (1 - share) * 8 / 7).mean(1),
        "dead_fraction": ((right == 0) | (right == 8)).mean(1),
        "entropy": _heavy(rng, 0.6 * (1 - 0.95 * np.clip((u - 0.15) / 0.1, 0, 1)), 0.1),
    }  # fmt: skip
    return table, rate


HEALTHY: dict[str, Make] = {f.__name__: f for f in (epoch_sawtooth, ppo, in_proportion, curriculum, resumed)}
"""Runs that learn and keep it."""

NULL: dict[str, Make] = {f.__name__: f for f in (still, drifting_prompts)}
"""Runs that do not change."""

FAILING: dict[str, Make] = {f.__name__: f for f in (optimised_proxy, forgotten, stopped_early)}
"""Runs that must not be called healthy."""


def run(make: Make, seed: int, rows: int) -> Run:
    """The run that a function of this file makes, evaluated 12 times, where it is evaluated."""
    rng = np.random.default_rng([seed, rows, 29])
    table, held = make(rng, rows)
    scored = []
    if held is not None:
        for step in np.linspace(rows / 12, rows, 12).astype(int):
            value = rng.binomial(PROBLEMS, held[step - 1]) / PROBLEMS
            scored.append((int(step), "accuracy", float(value), float("nan"), 0, "no standard error in the log"))
    meta = Meta(Path("made"), "trl", "made", "finished")
    steps = {"step": np.arange(1.0, rows + 1)}
    return Run(meta, {"settings": {"group": 8}}, steps | table, no_groups(), Evaluations.of_rows(scored))
