"""Kinds that a log of metrics shows: what is named first, what is advised, and that a sound twin is named nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_log import read_raw
from true_sentences import untrue

from grposcope.core.finding import Finding
from grposcope.faults.judge import diagnose
from grposcope.instruments.diagnosis import answer, screen
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read

N = 120
U = np.arange(N) / N
NAMES = {
    "reward": "reward", "reward_std": "reward_std", "kl": "kl", "entropy": "entropy", "grad_norm": "grad_norm",
    "loss": "loss", "length": "completions/mean_length", "truncated": "completions/clipped_ratio",
    "dead_fraction": "frac_reward_zero_std", "lr": "learning_rate", "clip_fraction": "clip_ratio/region_mean",
    "accuracy_reward": "rewards/accuracy_reward/mean", "format_reward": "rewards/format_reward/mean",
    "mismatch/abs": "sampling/sampling_logp_difference/mean",
}  # fmt: skip

SCORED = {"accuracy": "eval_accuracy"}

Columns = dict[str, np.ndarray]
Change = Callable[[np.random.Generator, Columns], Mapping[str, Any]]


def sound(rng: np.random.Generator) -> Columns:
    """Columns of a run that learns, as TRL logs them."""
    return {
        "loss": 0.01 * rng.normal(size=N), "grad_norm": 0.4 * np.exp(0.15 * rng.normal(size=N)),
        "learning_rate": np.full(N, 1e-6), "reward": 0.4 + 0.3 * U + 0.03 * rng.normal(size=N),
        "reward_std": 0.35 * np.exp(0.1 * rng.normal(size=N)),
        "frac_reward_zero_std": np.abs(0.1 + 0.03 * rng.normal(size=N)),
        "kl": (1e-4 + 0.02 * U) * np.exp(0.1 * rng.normal(size=N)), "entropy": 0.5 * np.exp(0.04 * rng.normal(size=N)),
        "completions/mean_length": 300 * np.exp(0.04 * rng.normal(size=N)),
        "completions/clipped_ratio": np.abs(0.02 + 0.01 * rng.normal(size=N)),
        "clip_ratio/region_mean": np.zeros(N),
    }  # fmt: skip


def lost(at: int, over: int = 3) -> np.ndarray:
    """0 up to a row, 1 a few rows later."""
    return np.clip((np.arange(N) - at) / over, 0, 1)


def flat(rng: np.random.Generator, level: float = 0.4) -> np.ndarray:
    return np.asarray(level + 0.02 * rng.normal(size=N))


def subtracted(rng: np.random.Generator, row: Columns) -> Columns:
    kl = 1e-4 * np.exp(11.5 * U) * np.exp(0.08 * rng.normal(size=N))
    return {"kl": kl, "loss": row["loss"] - 0.05 * kl}


def detached(rng: np.random.Generator, row: Columns) -> Columns:
    kl = (5 * U**1.5 + 1e-4) * np.exp(0.05 * rng.normal(size=N))
    return {"kl": kl, "loss": row["loss"] + 0.1 * kl, "reward": row["reward"] - 0.8 * np.clip(U - 0.5, 0, 1)}


def held(rng: np.random.Generator, row: Columns) -> Columns:
    kl = 0.0011 * np.exp(0.08 * rng.normal(size=N))
    return {"kl": kl, "loss": 0.02 * row["loss"] + 2 * kl, "reward": flat(rng)}


def renewed(rng: np.random.Generator, row: Columns) -> Columns:
    saw = 0.002 + 0.05 * (np.arange(N) % 20) / 20
    return {"kl": saw * np.exp(0.05 * rng.normal(size=N)), "reward": row["reward"] - 0.9 * np.clip(U - 0.4, 0, 1)}


def scaled(rng: np.random.Generator, row: Columns) -> Columns:
    factor = np.where(np.arange(N) < 50, 1.0, 16.0)
    return {"grad_norm": row["grad_norm"] * factor, "loss": row["loss"] * factor}


def never_a_number(rng: np.random.Generator, row: Columns) -> Columns:
    return {"rewards/accuracy/mean": row["reward"], "rewards/judge/mean": np.full(N, np.nan)}


def frozen_evaluation(rng: np.random.Generator, row: Columns) -> Columns:
    return {"eval_accuracy": np.where(np.arange(N) % 10 == 9, 0.3375, np.nan)}


def traded(rng: np.random.Generator, row: Columns) -> Columns:
    form, right = 0.3 + 0.69 * U + 0.01 * rng.normal(size=N), 0.45 - 0.4 * U + 0.02 * rng.normal(size=N)
    return {"rewards/accuracy_reward/mean": right, "rewards/format_reward/mean": form, "reward": form + right}


def by_heart(rng: np.random.Generator, row: Columns) -> Columns:
    score = 0.45 + 0.2 * np.clip(U / 0.3, 0, 1) - 0.25 * np.clip((U - 0.35) / 0.65, 0, 1) + 0.01 * rng.normal(size=N)
    return {"epoch": 12 * U, "reward": 0.45 + 0.5 * U + 0.02 * rng.normal(size=N),
            "eval_accuracy": np.where(np.arange(N) % 5 == 4, score, np.nan)}  # fmt: skip


def moves_alone(rng: np.random.Generator, row: Columns) -> Columns:
    kl = (0.25 * U + 1e-4) * np.exp(0.05 * rng.normal(size=N))
    return {"reward": flat(rng), "kl": kl, "entropy": row["entropy"] * (1 + U)}


def no_warm_up(rng: np.random.Generator, row: Columns) -> Columns:
    away = np.clip(np.arange(N) / 4, 0, 1)
    return {"kl": (1e-5 + 0.35 * away) * np.exp(0.05 * rng.normal(size=N)), "learning_rate": np.full(N, 5e-6),
            "reward": 0.4 - away * (0.3 - 0.28 * U) + 0.01 * rng.normal(size=N)}  # fmt: skip


def gibberish(rng: np.random.Generator, row: Columns) -> Columns:
    return {"entropy": 3.5 * np.exp(0.03 * rng.normal(size=N)), "reward": np.abs(1e-4 * rng.normal(size=N)),
            "completions/clipped_ratio": np.clip(0.94 + 0.01 * rng.normal(size=N), 0, 1),
            "completions/mean_length": 990 + 2 * rng.normal(size=N), "reward_std": np.full(N, 1e-4),
            "frac_reward_zero_std": np.full(N, 0.98)}  # fmt: skip


def too_many_updates(rng: np.random.Generator, row: Columns) -> Columns:
    reward = 0.4 + 0.3 * np.clip(4 * U, 0, 1) - 0.4 * np.clip(U - 0.35, 0, 1) + 0.02 * rng.normal(size=N)
    return {"clip_ratio/region_mean": 0.12 + 0.3 * np.clip(3 * U, 0, 1), "reward": reward,
            "kl": (1.2 * U**1.6 + 1e-4) * np.exp(0.05 * rng.normal(size=N))}  # fmt: skip


def oversized_step(rng: np.random.Generator, row: Columns) -> Columns:
    norm = row["grad_norm"].copy()
    norm[68:70] *= 60
    return {"grad_norm": norm, "kl": row["kl"] + 1.3 * lost(70), "entropy": row["entropy"] + 2.5 * lost(70),
            "reward": row["reward"] * (1 - lost(70))}  # fmt: skip


def bonus(rng: np.random.Generator, row: Columns) -> Columns:
    late = np.clip((U - 0.5) * 4, 0, 1)
    return {"entropy": 0.4 * np.exp(2.4 * U) * np.exp(0.03 * rng.normal(size=N)), "kl": row["kl"] + 0.7 * late,
            "reward": row["reward"] - 0.6 * late}  # fmt: skip


def apart(rng: np.random.Generator, row: Columns) -> Columns:
    grown = 0.006 * np.exp(4.6 * np.clip((U - 0.25) / 0.45, 0, 1)) * np.exp(0.05 * rng.normal(size=N))
    return {"sampling/sampling_logp_difference/mean": grown, "kl": row["kl"] + 1.5 * lost(90),
            "entropy": row["entropy"] + 3 * lost(90), "reward": row["reward"] * (1 - lost(90))}  # fmt: skip


def stopped(rng: np.random.Generator, row: Columns) -> Columns:
    grown = (0.006 + 0.3 * np.clip((U - 0.55) / 0.45, 0, 1)) * np.exp(0.05 * rng.normal(size=N))
    return {"sampling/sampling_logp_difference/mean": grown,
            "reward": 0.4 + 0.3 * np.clip(U / 0.55, 0, 1) + 0.02 * rng.normal(size=N)}  # fmt: skip


def in_turns(rng: np.random.Generator, row: Columns) -> Columns:
    turns = 1.1 + 4 * np.clip(1.5 * U, 0, 1)
    grown = (0.01 + 0.12 * np.clip((turns - 2.5) / 2.5, 0, 1)) * np.exp(0.05 * rng.normal(size=N))
    return {"sampling/sampling_logp_difference/mean": grown, "agent/turns": turns,
            "reward": row["reward"] - 0.6 * np.clip(U - 0.3, 0, 1)}  # fmt: skip


def climbing(rng: np.random.Generator, row: Columns) -> Columns:
    grown = np.exp(4.6 * np.clip((U - 0.4) / 0.3, 0, 1))
    late = np.clip((U - 0.6) / 0.4, 0, 1)
    return {"grad_norm": row["grad_norm"] * grown, "kl": row["kl"] + late, "reward": row["reward"] - 0.5 * late}


KINDS: dict[Change, tuple[str, str]] = {
    subtracted: ("kl against its penalty", "check the sign"),
    detached: ("kl against its penalty", "check the sign"),
    held: ("kl penalty outweighs the reward", "lower the coefficient"),
    renewed: ("reference moves along", "keep a frozen copy"),
    scaled: ("accumulation not scaled", "see what changed at that step"),
    never_a_number: ("never paid", "call the function by hand"),
    frozen_evaluation: ("held-out decline", "evaluate the first and the last checkpoint"),
    traded: ("reward hacking", "lower the weight of format_reward"),
    by_heart: ("held-out decline", "train on more problems"),
    moves_alone: ("no learning", "train twenty steps with a reward that is known"),
    no_warm_up: ("high learning rate", "start again with a warm-up"),
    gibberish: ("degenerate output", "read the first completion"),
    too_many_updates: ("clip saturation", "use fewer updates"),
    oversized_step: ("gradient spikes", "go back to "),
    bonus: ("entropy explosion", "lower the upper clip"),
    apart: ("sampler mismatch", "sample one batch"),
    stopped: ("weights never arrived", "find what happened at that step"),
    in_turns: ("sampler mismatch", "score a rollout of several turns"),
    climbing: ("gradient explosion", "clip the gradient"),
}
"""What a log shows -> the fault that is named first, and how the advice begins."""


def log(path: Path, change: Change, seed: int = 0) -> Path:
    """The log of a sound run, so changed."""
    rng = np.random.default_rng(seed)
    table = sound(rng)
    table |= change(rng, table)
    lines = []
    for k in range(N):
        row = {"step": k + 1, **{name: float(values[k]) for name, values in table.items()}}
        lines.append({name: value for name, value in row.items() if not (name.startswith("eval") and value != value)})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def present(path: Path) -> list[Finding]:
    return [finding for finding in diagnose(read(path)) if finding.present]


@pytest.mark.parametrize("change", KINDS, ids=lambda change: change.__name__)
def test_the_kind_is_named_first_and_what_is_said_is_true(tmp_path: Path, change: Change) -> None:
    path = log(tmp_path / "log.jsonl", change)
    run = read(path)
    findings = diagnose(run)
    first = next(finding for finding in findings if finding.present)
    fault, remedy = KINDS[change]
    assert (first.fault, first.remedy[: len(remedy)]) == (fault, remedy)
    shown = screen.text(run, verdict(run, findings), findings, answer.of_run(run, findings), "", 2000)
    assert [claim for claim in untrue(shown, read_raw(path, "step", NAMES, SCORED)) if path.name not in claim] == []


def as_it_is(rng: np.random.Generator, row: Columns) -> Columns:
    return {}


def with_a_penalty(rng: np.random.Generator, row: Columns) -> Columns:
    """A penalty in force, of a KL that rises soundly and then stays."""
    kl = (0.25 * (1 - np.exp(-4 * U)) + 1e-4) * np.exp(0.08 * rng.normal(size=N))
    return {"kl": kl, "loss": row["loss"] + 0.04 * kl}


def with_a_curriculum(rng: np.random.Generator, row: Columns) -> Columns:
    """A reward that stays as the problems become harder, and a held-out score that rises."""
    score = np.where(np.arange(N) % 10 == 9, 0.4 + 0.35 * U + 0.01 * rng.normal(size=N), np.nan)
    return {"reward": flat(rng), "eval_accuracy": score}


def with_an_offset(rng: np.random.Generator, row: Columns) -> Columns:
    """A loss that is constant beside its noise, and a KL that stays."""
    return {"loss": 0.002 + 2e-4 * rng.normal(size=N), "kl": 0.0011 * np.exp(0.08 * rng.normal(size=N)),
            "reward": row["reward"]}  # fmt: skip


def with_several_epochs(rng: np.random.Generator, row: Columns) -> Columns:
    """Several epochs, and a held-out score that rises with the reward."""
    score = np.where(np.arange(N) % 10 == 9, 0.4 + 0.3 * U + 0.01 * rng.normal(size=N), np.nan)
    return {"epoch": 8 * U, "eval_accuracy": score}


def with_a_rare_part(rng: np.random.Generator, row: Columns) -> Columns:
    """A part of the reward without a number in some rows: all its functions returned None there."""
    judge = np.where(np.arange(N) % 3 == 0, np.nan, 0.3 + 0.2 * U + 0.02 * rng.normal(size=N))
    return {"rewards/accuracy/mean": row["reward"], "rewards/judge/mean": judge}


@pytest.mark.parametrize(
    "change",
    [as_it_is, with_a_penalty, with_a_curriculum, with_an_offset, with_several_epochs, with_a_rare_part],
    ids=lambda change: change.__name__,
)
def test_nothing_is_named_of_a_sound_twin(tmp_path: Path, change: Change) -> None:
    for seed in range(2):
        assert present(log(tmp_path / "log.jsonl", change, seed)) == []
