"""Made-up logs of every engine whose sampler differs from its trainer, in the keys that the engine writes.

The log ratios of sampled tokens are normal with KL k3 = k1 = σ²/2, so that the mean of ρ is 1; a truncated sampler has
ρ = m on every token instead. Each engine logs what it makes of that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import norm
from synthetic_series import ar1

Array = np.ndarray

ROWS = 160
TOKENS = 400
"""Tokens of a completion, for ratios of whole sequences."""

CAP = 3.0
"""Above it TRL masks a sequence, by default."""


@dataclass(frozen=True)
class Course:
    """KL (n,), mean ρ (n,), mean |log ρ| (n,), lag in versions (n,) and learning rate (n,) of a run."""

    kl: Array
    ratio: Array
    size: Array
    lag: Array
    lr: Array


def _course(rng: np.random.Generator, kl: Array, lag: Array, lr: Array) -> Course:
    kl = kl * np.exp(0.15 * ar1(rng, ROWS, 0.3))
    ratio = 1 + 0.003 * rng.normal(size=ROWS) * np.sqrt(kl / 0.01)
    return Course(kl, ratio, np.sqrt(2 * kl * 2 / math.pi), lag, lr)


def _rate(rng: np.random.Generator) -> Array:
    """Constant or decaying by a cosine, after a warm-up of up to ten rows."""
    t = np.arange(1, ROWS + 1)
    decay = 1.0 if rng.random() < 0.5 else 0.5 + 0.5 * np.cos(np.pi * t / (1.3 * ROWS))
    return 1e-6 * np.minimum(1, t / rng.integers(1, 11)) * decay


def _constant_lag(rng: np.random.Generator) -> Array:
    level = rng.integers(0, 4)
    return np.maximum(level + 0.1 * rng.normal(size=ROWS), 0) if level else np.zeros(ROWS)


def healthy(rng: np.random.Generator) -> Course:
    """A floor that NeMo-RL's documentation accepts (below 1e-3), up to twice that in the end; rows of 5 times."""
    t = np.linspace(0, 1, ROWS)
    kl = 10 ** rng.uniform(-4.5, -3.15) * (1 + rng.uniform(0, 1) * t)
    kl[rng.random(ROWS) < 0.02] *= 5
    return _course(rng, kl, _constant_lag(rng), _rate(rng))


def floor(rng: np.random.Generator) -> Course:
    """Numerics: large from the first row on."""
    return _course(rng, np.full(ROWS, rng.uniform(0.15, 0.4)), _constant_lag(rng), _rate(rng))


def truncated(rng: np.random.Generator) -> Course:
    """The sampler draws from 55 to 80 % of the mass."""
    mass = rng.uniform(0.55, 0.8) * np.exp(0.01 * ar1(rng, ROWS, 0.3))
    size = -np.log(mass) * rng.uniform(1.0, 1.3)
    return Course(size, mass, size, _constant_lag(rng), _rate(rng))


def staleness(rng: np.random.Generator) -> Course:
    """The lag grows from about 1 to about 10 versions, and the mismatch with its power."""
    t = np.linspace(0, 1, ROWS)
    start, end = rng.uniform(0, 0.6), rng.uniform(0.7, 1)
    lag = 0.5 + rng.uniform(7, 12) * np.clip((t - start) / (end - start), 0, 1) + 0.2 * np.abs(rng.normal(size=ROWS))
    return _course(rng, rng.uniform(1, 3) * 1e-3 * (1 + lag) ** rng.uniform(1.5, 2), lag, _rate(rng))


def jump(rng: np.random.Generator) -> Course:
    """The mismatch is 15 to 60 times as large from a resume on."""
    after = np.arange(ROWS) >= rng.integers(40, 120)
    kl = rng.uniform(1, 3) * 1e-3 * np.where(after, rng.uniform(15, 60), 1)
    return _course(rng, kl, _constant_lag(rng), _rate(rng))


def frozen(rng: np.random.Generator) -> Course:
    """The distance that training has gone, over a small floor."""
    lr = _rate(rng)
    gone = np.cumsum(lr) / lr.sum()
    kl = rng.uniform(1, 5) * 1e-4 + rng.uniform(0.08, 0.4) * gone ** rng.uniform(1, 2)
    return _course(rng, kl, _constant_lag(rng), lr)


def unexplained(rng: np.random.Generator) -> Course:
    """It grows by a factor of 40 to 150, ever faster, at a lag that does not move."""
    t = np.linspace(0, 1, ROWS)
    return _course(rng, rng.uniform(1, 2) * 1e-3 * rng.uniform(40, 150) ** t, _constant_lag(rng), _rate(rng))


COURSES: Mapping[str, Callable[[np.random.Generator], Course]] = {
    "floor": floor, "truncated": truncated, "staleness": staleness, "jump": jump, "frozen": frozen,
    "unexplained": unexplained,
}  # fmt: skip
"""Cause -> a course that it brings about."""


def kept_of_sequences(course: Course) -> Array:
    """What is left of the weight of whole sequences (n,) after ratios above CAP are masked."""
    mean, spread = TOKENS * (np.log(course.ratio) - course.kl), np.sqrt(2 * TOKENS * course.kl)
    total = np.exp(np.minimum(TOKENS * np.log(course.ratio), 0))
    return np.asarray(total * norm.cdf((math.log(CAP) - mean - spread**2) / spread))


def _trl(c: Course) -> dict[str, Array]:
    return {
        "sampling/sampling_logp_difference/mean": c.size, "sampling/sampling_logp_difference/max": 20 * c.size,
        "sampling/importance_sampling_ratio/mean": kept_of_sequences(c),
        "sampling/importance_sampling_ratio/min": np.zeros(ROWS),
        "sampling/importance_sampling_ratio/max": np.full(ROWS, CAP), "sample/staleness_mean": c.lag,
    }  # fmt: skip


def _verl(c: Course) -> dict[str, Array]:
    return {
        "rollout_corr/kl": c.kl,
        "rollout_corr/k3_kl": c.ratio - 1 + c.kl,
        "training/off_policy/trajectory_staleness/mean": c.lag,
    }


def _prime_rl(c: Course) -> dict[str, Array]:
    return {"mismatch_kl/all/mean": c.ratio - 1 + c.kl, "off_policy/mean": c.lag, "is_masked/mean": c.kl / 10}


def _slime(c: Course) -> dict[str, Array]:
    return {"train/train_rollout_logprob_abs_diff": c.size, "train/tis": c.ratio}


def _skyrl(c: Course) -> dict[str, Array]:
    return {"policy/rollout_train_logprobs_abs_diff_mean": c.size, "async/staleness_mean": c.lag}


def _nemo_rl(c: Course) -> dict[str, Array]:
    return {
        "train/gen_kl_error": c.ratio - 1 + c.kl,
        "train/token_mult_prob_error": np.exp(c.size),
        "train/sampling_importance_ratio": c.ratio,
    }


def _areal(c: Course) -> dict[str, Array]:
    return {
        "ppo_actor/update/behave_approx_kl/avg": -c.kl,
        "ppo_actor/update/behave_imp_weight/avg": c.ratio,
        "ppo_actor/version_stats/sample_staleness_theta_avg": c.lag,
    }


@dataclass(frozen=True)
class Engine:
    """What an engine logs of a course; its keys of reward, learning rate and entropy; whether lag is among it, and
    whether it logs enough to see that a sampler is truncated."""

    keys: Callable[[Course], dict[str, Array]]
    reward: str
    lr: str
    entropy: str
    lag: bool = True
    sides: bool = False


ENGINES: Mapping[str, Engine] = {
    "trl": Engine(_trl, "reward", "learning_rate", "entropy"),
    "verl": Engine(_verl, "critic/score/mean", "actor/lr", "actor/entropy", sides=True),
    "prime-rl": Engine(_prime_rl, "reward/all/mean", "optim/lr", "entropy/all/mean"),
    "slime": Engine(_slime, "rollout/raw_reward", "train/lr-pg_0", "train/entropy_loss", lag=False, sides=True),
    "skyrl": Engine(_skyrl, "reward/avg_raw_reward", "policy/policy_lr", "policy/policy_entropy"),
    "nemo-rl": Engine(_nemo_rl, "train/reward", "train/lr", "train/approx_entropy", lag=False, sides=True),
    "areal": Engine(_areal, "ppo_actor/task_reward/avg", "ppo_actor/update/lr", "ppo_actor/update/entropy/avg"),
}
"""Engines by name."""


def write(path: Path, name: str, course: Course, rng: np.random.Generator) -> Path:
    """The log of an engine as JSON lines: reward and entropy that go well, and what it says of the mismatch."""
    engine, t = ENGINES[name], np.linspace(0, 1, ROWS)
    columns = {
        "step": np.arange(1.0, ROWS + 1),
        engine.reward: 0.3 + 0.4 * t + 0.03 * ar1(rng, ROWS, 0.3),
        engine.entropy: (0.8 - 0.3 * t) * np.exp(0.05 * ar1(rng, ROWS, 0.3)),
        engine.lr: course.lr,
        **engine.keys(course),
    }
    rows = (dict(zip(columns, map(float, values), strict=True)) for values in zip(*columns.values(), strict=True))
    if name == "trl":
        rows = ({"reward_std": 0.3, "completions/mean_length": 400.0, **row} for row in rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
