"""Runs of causes that rows combined tell apart from their symptoms, each with a twin without the defect."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import synthetic_series as made
from synthetic_series import U

N = len(U)


class Case(NamedTuple):
    """Columns with the defect and without; `said`: words of the remedy; `not_said`: of what would not help."""

    fault: str
    faulty: Callable[[], made.Columns]
    twin: Callable[[], made.Columns]
    said: str
    not_said: str = "no such words"


def with_columns(**columns: np.ndarray) -> Callable[[], made.Columns]:
    """A run that goes well but for these columns."""
    return lambda: {**made.healthy(), **columns}


def flat(level: float = 0.4, seed: int = 3) -> np.ndarray:
    """A reward that stays where it is."""
    return level + 0.03 * made.ar1(np.random.default_rng(seed), N, 0.2)


def bent(end: float) -> np.ndarray:
    """KL of a policy that learns: fast, then slower."""
    return end * U**2 / (U**2 + 0.3) + 1e-4


NOISE = np.exp(0.03 * np.random.default_rng(1).normal(size=N))
STEP = np.arange(N) >= 70
WALL = 4000 + 60 * np.random.default_rng(2).uniform(-1, 1, N)
NATURAL = 3000 * np.exp(0.25 * np.random.default_rng(2).normal(size=N))
LONGER = 900 + 2500 * U
RETURN = int(np.argmax(U >= 0.6))
PASSES = (np.arange(N) % 4 > 0).astype(float)
SAW = 0.1 * np.where(U < 0.6, U, U - 0.6) + 1e-3
SPIKES = made.healthy()["grad_norm"] * np.where(np.isin(np.arange(N), (60, 71, 88, 101)), 60.0, 1.0)
FORMAT = (0.6 + 0.3 * (1 - np.exp(-30 * U))) * np.exp(0.01 * np.random.default_rng(4).normal(size=N))

NEVER = {name: np.zeros(N) for name in ("reward", "reward_std", "grad_norm", "loss", "kl")} | {
    "dead_fraction": np.ones(N)
}

CASES = (
    Case(
        "lost gradient",
        with_columns(grad_norm=np.zeros(N), kl=np.zeros(N), reward=flat()),
        with_columns(grad_norm=np.zeros(N), kl=np.zeros(N), reward=np.ones(N), reward_std=np.zeros(N),
                     dead_fraction=np.ones(N)),
        "requires? grad|require_grad", "that rewards differ",
    ),
    Case(
        "no token trained on",
        with_columns(**{"grad_norm": np.zeros(N), "reward": flat(), "mismatch/k3": np.zeros(N)}),
        with_columns(**{"grad_norm": np.zeros(N), "reward": flat(), "mismatch/k3": 1e-3 * NOISE}),
        "mask",
    ),
    Case(
        "degenerate output",
        with_columns(truncated=np.where(STEP, 1.0, 0.03), reward=np.where(STEP, 0.0, flat())),
        with_columns(truncated=np.clip(3 * U - 1.2, 0.03, 1.0), reward=np.where(U > 0.74, 0.0, flat() * (1 - U / 2))),
        "gibberish", "raise the token limit",
    ),
    Case(
        "kl against its penalty",
        with_columns(kl=1e-3 * np.exp(9 * U) * NOISE, kl_coef=np.full(N, 0.01)),
        with_columns(kl=bent(8.0) * NOISE, kl_coef=np.full(N, 0.01)),
        "sign", "raise",
    ),
    Case(
        "kl against its penalty",
        with_columns(kl=9 * U * NOISE + 0.01, kl_loss_coef=np.full(N, 0.2)),
        with_columns(kl=9 * U * NOISE + 0.01, kl_loss_coef=np.full(N, 0.001)),
        "gradient of the KL term", "raise",
    ),
    Case(
        "unseen truncation",
        with_columns(length=LONGER * NOISE, length_max=WALL, truncated=np.zeros(N), reward=flat() - 0.2 * U),
        with_columns(length=LONGER * NOISE, length_max=NATURAL + LONGER, truncated=np.zeros(N),
                     reward=flat() - 0.2 * U),
        "max_model_len", "Dr. GRPO",
    ),
    Case(
        "high learning rate",
        with_columns(kl=np.concatenate([[0.0], 0.4 + 3 * U[1:]]), reward=flat() - 0.3 * U),
        with_columns(kl=4 * U**2, reward=flat() - 0.3 * U),
        "start again", "raise the KL",
    ),
    Case(
        "low learning rate",
        with_columns(kl=1e-4 * U + 1e-6, reward=flat(0.4), lr=np.full(N, 1e-7)),
        with_columns(kl=1e-4 * U + 1e-6),
        "raise the learning rate",
    ),
    Case(
        "weights lost at a restart",
        with_columns(kl=SAW * NOISE, reward=0.3 + 4 * SAW + 0.02 * made.ar1(np.random.default_rng(5), N, 0.0)),
        with_columns(kl=SAW * NOISE),
        "load the weights", "lower the learning rate",
    ),
    Case(
        "inputs differ",
        with_columns(**{"mismatch/k3": 0.4 * NOISE}), with_columns(**{"mismatch/k3": 0.03 * NOISE}),
        "prompt ids", "FP8",
    ),
    Case(
        "correction drops most",
        with_columns(**{"importance/masked_sequences": 0.45 * NOISE, "mismatch/mult_error": 1 + 4e-3 * NOISE}),
        with_columns(**{"importance/masked_sequences": 0.05 * NOISE, "mismatch/mult_error": 1 + 4e-3 * NOISE}),
        "before the mask",
    ),
    Case(
        "filter runs out",
        with_columns(**{"train/num_gen_batches": np.round(5 + 4 * U)}),
        with_columns(**{"train/num_gen_batches": np.round(1 + U)}),
        "prompts",
    ),
    Case(
        "clip saturation",
        with_columns(clip_fraction=0.15 * PASSES, grad_norm=np.where(PASSES > 0, 0.1, 0.3) * NOISE),
        with_columns(clip_fraction=0.15 * PASSES, grad_norm=np.where(PASSES > 0, 0.25, 0.3) * NOISE),
        "clip range in force",
    ),
    Case(
        "entropy explosion",
        with_columns(entropy=(0.2 + 0.1 * U) * NOISE, loss=-0.3 * (0.2 + 0.1 * U) * NOISE, reward=flat()),
        with_columns(entropy=(0.2 + 0.1 * U) * NOISE, loss=-0.001 * (0.2 + 0.1 * U) * NOISE, reward=flat()),
        "lower the entropy bonus",
    ),
    Case(
        "kl penalty outweighs the reward",
        with_columns(kl=2e-3 * NOISE, loss=20 * 2e-3 * NOISE, reward=flat()),
        with_columns(kl=2e-3 * NOISE, loss=0.04 * 2e-3 * NOISE, reward=flat()),
        "lower the coefficient", "raise the learning rate",
    ),
    Case(
        "kl against its penalty",
        with_columns(kl=bent(0.05) * NOISE, loss=-0.1 * bent(0.05) * NOISE),
        with_columns(kl=bent(0.05) * NOISE, loss=0.1 * bent(0.05) * NOISE),
        "check the sign",
    ),
    Case(
        "greedy sampling",
        with_columns(entropy=1e-6 * NOISE, grad_norm=np.zeros(N), kl=np.zeros(N), dead_fraction=np.ones(N),
                     reward_std=np.zeros(N), reward=flat()),
        with_columns(grad_norm=np.zeros(N), kl=np.zeros(N), dead_fraction=np.ones(N), reward_std=np.zeros(N),
                     reward=flat()),
        "temperature 1",
    ),
    Case(
        "reversed sign",
        with_columns(reward=np.clip(0.3 * np.exp(-12 * U) + 0.01 * made.ar1(np.random.default_rng(8), N, 0.0), 0, 1),
                     kl=0.1 * U, entropy=0.8 * NOISE),
        with_columns(reward=np.clip(0.3 * np.exp(-12 * U) + 0.01 * made.ar1(np.random.default_rng(8), N, 0.0), 0, 1),
                     kl=20 * U, entropy=0.8 * NOISE),
        "sign",
    ),
    Case(
        "prompt decides the reward",
        with_columns(grad_norm=np.zeros(N), kl=np.zeros(N), dead_fraction=np.ones(N), reward=flat(),
                     reward_std=np.zeros(N), reward_min=np.zeros(N), reward_max=np.ones(N)),
        with_columns(grad_norm=np.zeros(N), kl=np.zeros(N), dead_fraction=np.ones(N), reward=flat(),
                     reward_std=np.zeros(N), reward_min=np.zeros(N), reward_max=np.zeros(N)),
        "two completions of one prompt",
    ),
    Case(
        "weights lost at a restart",
        with_columns(kl=np.where(np.arange(N) == RETURN, 0.0, SAW * NOISE) * (np.arange(N) > 0), reward=flat()),
        with_columns(kl=np.where(np.arange(N) == RETURN, 0.0, SAW * NOISE) * (np.arange(N) > 0)),
        "checksum of the weights at that step",
    ),
    Case(
        "skipped updates",
        with_columns(trained=np.arange(N) % 10 == 0), with_columns(trained=np.arange(N) % 10 > 0),
        "rewards of the rollouts of one group", "learning rate",
    ),
    Case(
        "unbounded ratio",
        with_columns(grad_norm=SPIKES), with_columns(grad_norm=SPIKES, clip_fraction=np.zeros(N)),
        "delta", "lower the learning rate",
    ),
    Case(
        "reward hacking",
        with_columns(**{"component/accuracy": 0.12 * np.exp(-40 * U) * NOISE, "component/format": FORMAT,
                        "reward": FORMAT + 0.12 * np.exp(-40 * U) * NOISE}),
        with_columns(**{"component/accuracy": (0.12 + 0.05 * U) * NOISE, "component/format": FORMAT,
                        "reward": FORMAT + (0.12 + 0.05 * U) * NOISE}),
        "read completions",
    ),
    Case(
        "unseen truncation",
        lambda: _without("truncated", length=np.minimum(300 + 2000 * U, 1024.0), reward=flat() - 0.3 * (U > 0.5)),
        lambda: _without("truncated", length=np.minimum(300 + 2000 * U, 1037.0), reward=flat() - 0.3 * (U > 0.5)),
        "max_completion_length", "Dr. GRPO",
    ),
    Case(
        "prompt decides the reward",
        with_columns(**{"dead_fraction": np.ones(N), "reward_std": np.zeros(N), "reward": flat(), "grad_norm": 0 * U,
                        "component/format": flat(), "component_std/format": 0.4 * NOISE, "loss": 0 * U}),
        with_columns(**{"dead_fraction": np.ones(N), "reward_std": np.zeros(N), "reward": flat(), "grad_norm": 0 * U,
                        "component/format": flat(), "component_std/format": np.zeros(N), "loss": 0 * U}),
        "two completions of one prompt",
    ),
    Case(
        "end not recognised",
        with_columns(truncated=np.full(N, 0.96), length=330 * NOISE, length_max=900 * NOISE),
        with_columns(truncated=np.full(N, 0.96), length=880 * NOISE, length_max=900 * NOISE),
        "eos_token", "raise the token limit",
    ),
    Case(
        "length",
        with_columns(truncated=np.clip(0.4 * U - 0.2, 0.01, 1), length_terminated=140 * NOISE,
                     length=140 * NOISE + 600 * np.clip(0.4 * U - 0.2, 0.01, 1)),
        with_columns(truncated=np.full(N, 0.01), length_terminated=140 * NOISE, length=146 * NOISE),
        "read completions that are cut now", "raise the token limit",
    ),
    Case(
        "length",
        with_columns(**NEVER, truncated=np.ones(N), length=np.full(N, 256.0)),
        with_columns(**NEVER, truncated=np.zeros(N), length=200 * NOISE),
        "raise the token limit",
    ),
    Case(
        "answers shorten",
        with_columns(length=(240 - 170 * U) * NOISE, truncated=np.zeros(N)),
        with_columns(length=(240 - 60 * U) * NOISE),
        "held-out accuracy",
    ),
    Case(
        "answers shorten",
        with_columns(length=(700 - 400 * U) * NOISE, truncated=np.clip(0.35 * (1 - 2 * U), 0.02, 1)),
        with_columns(length=(700 - 200 * U) * NOISE, truncated=np.clip(0.35 * (1 - 2 * U), 0.02, 1)),
        "raise the token limit", "nothing",
    ),
)  # fmt: skip


def _without(name: str, **columns: np.ndarray) -> made.Columns:
    return {key: column for key, column in {**made.healthy(), **columns}.items() if key != name}
