"""Draw the pictures of faults.md from simulated runs that `diagnose` has to name.

python docs/failures.py            # the pictures
python docs/failures.py --check    # only that diagnose names each mode on its run

A run is a record of 200 steps: smooth curves of the metrics of a healthy run, with what the failure changes, and noise.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from grposcope.core.finding import Finding
from grposcope.core.run import Run
from grposcope.core.text import number
from grposcope.faults.catalogue import faults
from grposcope.instruments.diagnosis import diagnose
from grposcope.logs import read

HERE = Path(__file__).parent
ROWS = 200
U = np.arange(ROWS) / (ROWS - 1)
"""Share of the run that is over, at each step."""

SHARES = {"reward", "heldout", "dead_fraction", "clip_high", "clip_low", "component/right"}
"""Curves that are drawn from 0 to 1."""

Columns = dict[str, Any]


class Failure(NamedTuple):
    "A fault in the gallery: what changes in a healthy run, and the metrics that are drawn."

    change: Callable[[np.random.Generator], Columns]
    drawn: tuple[str, ...]


def ramp(begin: float, end: float = 1.0) -> np.ndarray:
    """0 up to the share `begin` of the run, then a straight line to 1 at `end`."""
    return np.clip((U - begin) / (end - begin), 0, 1)


def around(curve: np.ndarray | float, spread: float, rng: np.random.Generator) -> np.ndarray:
    """A curve with independent noise."""
    return np.broadcast_to(curve, ROWS) + spread * rng.normal(size=ROWS)


def healthy(rng: np.random.Generator) -> Columns:
    """Columns of a run that learns: reward and held-out score rise, entropy falls by half, KL stays small."""
    gain = 1 - np.exp(-3 * U)
    return {
        "reward": around(0.3 + 0.4 * gain, 0.025, rng),
        "reward_std": around(0.42 - 0.05 * U, 0.015, rng),
        "dead_fraction": np.clip(around(0.15 + 0.05 * U, 0.02, rng), 0, 1),
        "entropy": around(0.8 - 0.4 * gain, 0.02, rng),
        "kl": np.abs(around(0.03 * U, 0.002, rng)),
        "length": around(220 + 30 * U, 5, rng),
        "truncated": np.clip(around(0.03, 0.01, rng), 0, 1),
        "grad_norm": np.exp(around(math.log(0.5), 0.12, rng)),
        "clip_low": np.clip(around(0.01, 0.002, rng), 0, 1),
        "clip_high": np.clip(around(0.01, 0.002, rng), 0, 1),
        "loss": around(0.02, 0.004, rng),
        "lr": np.full(ROWS, 1e-6),
        "heldout": 0.3 + 0.35 * gain,
    }


def _swings(rng: np.random.Generator, grows: float) -> Columns:
    return {
        "reward": around(0.5 + (0.06 + grows * U) * np.sin(2 * math.pi * U * 8), 0.02, rng),
        "heldout": 0.45 + 0 * U,
    }


def _spikes(rng: np.random.Generator) -> Columns:
    norm = np.exp(around(math.log(0.5), 0.12, rng))
    norm[[60, 61, 118, 160]] = 25, 18, 30, 22
    return {"grad_norm": norm, "clip_low": np.zeros(ROWS), "clip_high": np.zeros(ROWS)}


def _nan(rng: np.random.Generator) -> Columns:
    norm = np.exp(around(math.log(0.5), 0.12, rng))
    norm[140:146] = np.nan
    return {"grad_norm": norm}


def _failures_as_zeros(rng: np.random.Generator) -> Columns:
    errors = np.where(rng.random(ROWS) < 0.3, rng.uniform(0.1, 0.4, ROWS), 0.0)
    return {"agent/errors": errors, "reward": healthy(rng)["reward"] * (1 - errors)}


def _muted(rng: np.random.Generator) -> Columns:
    return {
        "groups": [
            {
                "step": int(step),
                "problem": f"p{k}",
                "rewards": (right + 0.5 * form).tolist(),
                "truncated": [False] * 8,
                "components": {"right": right.tolist(), "form": form.tolist()},
            }
            for step in range(1, ROWS + 1, 4)
            for k in range(8)
            for right, form in [
                ((rng.random(8) < 0.5).astype(float), np.where(rng.random(8) < 0.01, 0.5, float(rng.random() < 0.4)))
            ]
        ],
        "weights": {"right": 1.0, "form": 0.5},
    }


def _mismatch(rng: np.random.Generator, kl: np.ndarray) -> Columns:
    return {"mismatch/k3": np.abs(kl * np.exp(around(0.0, 0.05, rng)) + 1e-5)}


def _parts(one: np.ndarray, other: np.ndarray) -> Columns:
    return {"component/right": one, "component/form": other, "reward": one + other}


def _paid_by_length(rng: np.random.Generator) -> Columns:
    length = around(200 + 60 * U, 15, rng)
    return {"length": length, "reward": length / 500}


def _cancelling(rng: np.random.Generator) -> Columns:
    common = rng.normal(size=ROWS)
    return _parts(around(0.5 + 0.3 * common, 0.02, rng), around(-0.3 * common, 0.02, rng))


FAILURES: Mapping[str, Failure] = {
    "repeated data": Failure(
        lambda rng: {"epoch": np.where(np.arange(ROWS) < 120, np.arange(ROWS), np.arange(ROWS) - 120) / 150},
        ("epoch", "reward"),
    ),
    "room for sequences": Failure(
        lambda rng: {
            "prompt_length/clip_ratio": around(0.3, 0.02, rng),
            "prompt_length/max": np.full(ROWS, 512.0),
            "prompt_length/min": around(90, 5, rng),
        },
        ("prompt_length/clip_ratio", "reward"),
    ),
    "selective dropping": Failure(
        lambda rng: {"rollouts": np.round(around(64 - 44 * ramp(0.3), 1, rng))}, ("rollouts", "reward")
    ),
    "wrong old log-probabilities": Failure(
        lambda rng: {
            "lr": 1e-6 * np.minimum(1, (np.arange(ROWS) + 1) / 30),
            "clip_high": np.clip(around(0.06, 0.003, rng), 0, 1),
            "clip_low": np.clip(around(0.05, 0.003, rng), 0, 1),
        },
        ("clip_high", "lr"),
    ),
    "wrong rewards": Failure(
        lambda rng: {"reward": around(0.3 + 0.3 * (np.arange(ROWS) >= 110), 0.025, rng), "heldout": 0.3 + 0 * U},
        ("reward", "heldout"),
    ),
    "group of one": Failure(
        lambda rng: {"group": 1, "reward": around(0.3, 0.025, rng), "heldout": 0.3 + 0 * U},
        ("reward", "heldout"),
    ),
    "no baseline": Failure(
        lambda rng: {
            "reward": around(0.3, 0.025, rng),
            "heldout": 0.3 + 0 * U,
            "advantage_max": 0 * U + 1,
            "reward_max": 0 * U + 1,
            "advantage_min": 0 * U,
            "reward_min": 0 * U,
        },
        ("advantage_max", "reward_max"),
    ),
    "zero learning rate": Failure(
        lambda rng: {"lr": np.zeros(ROWS), "reward": around(0.3, 0.025, rng), "heldout": 0.3 + 0 * U},
        ("lr", "reward"),
    ),
    "greedy sampling": Failure(
        lambda rng: {
            "entropy": np.full(ROWS, 1e-7),
            "grad_norm": np.zeros(ROWS),
            "kl": np.zeros(ROWS),
            "dead_fraction": np.ones(ROWS),
            "reward": around(0.4, 0.05, rng),
            "heldout": 0.4 + 0 * U,
        },
        ("entropy", "dead_fraction"),
    ),
    "hot sampling": Failure(
        lambda rng: {
            "temperature": 2.0,
            "entropy": around(4.0, 0.05, rng),
            "reward": np.clip(around(0.02, 0.01, rng), 0, 1),
            "dead_fraction": np.clip(around(0.9, 0.02, rng), 0, 1),
            "heldout": 0.3 + 0 * U,
        },
        ("reward", "entropy"),
    ),
    "reversed sign": Failure(
        lambda rng: {
            "reward": np.clip(around(0.3 * np.exp(-15 * U), 0.02, rng), 0, 1),
            "kl": np.abs(around(0.1 * U, 0.002, rng)),
            "entropy": around(0.8 + 0.2 * U, 0.02, rng),
            "heldout": 0.3 * np.exp(-15 * U),
        },
        ("reward", "kl"),
    ),
    "update not applied": Failure(
        lambda rng: {"kl": np.zeros(ROWS), "reward": around(0.3, 0.025, rng), "heldout": 0.3 + 0 * U},
        ("kl", "grad_norm"),
    ),
    "kl penalty outweighs the reward": Failure(
        lambda rng: {
            "kl": (kl := np.abs(around(0.002, 0.0005, rng)) + 1e-4),
            "loss": 20 * kl,
            "reward": around(0.3, 0.025, rng),
            "heldout": 0.3 + 0 * U,
        },
        ("kl", "loss"),
    ),
    "lost gradient": Failure(
        lambda rng: {
            "grad_norm": np.zeros(ROWS),
            "reward": around(0.3, 0.025, rng),
            "kl": np.zeros(ROWS),
            "heldout": 0.3 + 0 * U,
        },
        ("grad_norm", "reward_std"),
    ),
    "no token trained on": Failure(
        lambda rng: {
            "grad_norm": np.zeros(ROWS),
            "mismatch/k3": np.zeros(ROWS),
            "reward": around(0.3, 0.025, rng),
            "heldout": 0.3 + 0 * U,
        },
        ("grad_norm", "mismatch/k3"),
    ),
    "high learning rate": Failure(
        lambda rng: {
            "kl": np.concatenate([[0.0], around(0.4 + 4 * ramp(0), 0.05, rng)[1:]]),
            "reward": around(0.5 - 0.4 * ramp(0, 0.4), 0.025, rng),
            "heldout": 0.5 - 0.4 * ramp(0, 0.4),
        },
        ("kl", "reward"),
    ),
    "low learning rate": Failure(
        lambda rng: {
            "kl": np.abs(around(1e-4 * U, 1e-6, rng)),
            "lr": np.full(ROWS, 1e-7),
            "reward": around(0.3, 0.012, rng),
            "heldout": 0.3 + 0 * U,
        },
        ("kl", "reward"),
    ),
    "weights lost at a restart": Failure(
        lambda rng: {
            "kl": np.abs(around(0.1 * np.where(U < 0.6, U, U - 0.6), 0.0005, rng)),
            "reward": around(0.3 + 0.6 * np.where(U < 0.6, U, U - 0.6), 0.02, rng),
            "heldout": 0.3 + 0.6 * np.where(U < 0.6, U, U - 0.6),
        },
        ("kl", "reward"),
    ),
    "reference moves along": Failure(
        lambda rng: {"kl": np.abs(around(0.1 * np.where(U < 0.6, U, U - 0.6), 0.0005, rng))},
        ("kl", "reward"),
    ),
    "wrong reference": Failure(
        lambda rng: {
            "kl": np.abs(around(0.4, 0.012, rng)),
            "reward": around(0.35, 0.025, rng),
            "heldout": 0.35 + 0 * U,
        },
        ("kl", "reward"),
    ),
    "outage": Failure(
        lambda rng: {
            "reward": np.where(np.arange(ROWS) % 20 == 19, around(0.02, 0.005, rng), around(0.4 + 0.3 * U, 0.02, rng)),
            "length": np.where(np.arange(ROWS) % 20 == 19, 4000.0, around(900, 30, rng)),
            "heldout": 0.4 + 0.3 * U,
        },
        ("reward", "length"),
    ),
    "trained beyond the end": Failure(
        lambda rng: {
            "length": (width := np.round(around(700, 60, rng))),
            "length_min": width,
            "length_max": width,
        },
        ("length_min", "length_max"),
    ),
    "collapsed calls": Failure(
        lambda rng: {
            "agent/calls": np.clip(around(2.0 - 1.95 * ramp(0.2, 0.5), 0.08, rng), 0, None),
            "agent/turns": np.clip(around(3.0 - 1.95 * ramp(0.2, 0.5), 0.08, rng), 1, None),
            "reward": around(0.4 - 0.15 * ramp(0.2, 0.5), 0.025, rng),
            "heldout": 0.4 - 0.15 * ramp(0.2, 0.5),
        },
        ("agent/calls", "reward"),
    ),
    "no calls": Failure(
        lambda rng: {
            "agent/calls": np.zeros(ROWS),
            "reward": around(0.3, 0.025, rng),
            "heldout": 0.3 + 0 * U,
        },
        ("agent/calls", "reward"),
    ),
    "looping": Failure(
        lambda rng: {
            "agent/calls": np.abs(around(2.0 + 4.0 * ramp(0.2, 0.9), 0.1, rng)),
            "agent/turns": np.abs(around(3.0 + 4.0 * ramp(0.2, 0.9), 0.1, rng)),
            "reward": around(0.35, 0.025, rng),
            "heldout": 0.35 + 0 * U,
        },
        ("agent/turns", "reward"),
    ),
    "turn limit": Failure(
        lambda rng: {
            "agent/stop_turns": np.clip(around(0.6, 0.03, rng), 0, 1),
            "agent/turns": around(7.0, 0.1, rng),
            "reward": around(0.35, 0.025, rng),
            "heldout": 0.35 + 0 * U,
        },
        ("agent/stop_turns", "reward"),
    ),
    "failing tools": Failure(
        lambda rng: {
            "agent/calls": around(2.0, 0.05, rng),
            "agent/call_failures": np.clip(around(0.05 + 0.8 * (U > 0.5), 0.02, rng), 0, 1),
            "reward": around(0.5 - 0.3 * (U > 0.5), 0.025, rng),
            "heldout": 0.5 - 0.3 * (U > 0.5),
        },
        ("agent/call_failures", "reward"),
    ),
    "malformed calls": Failure(
        lambda rng: {
            "agent/calls": around(2.0, 0.05, rng),
            "agent/bad_calls": np.clip(around(0.05 + 0.8 * ramp(0.3, 0.8), 0.02, rng), 0, 1),
            "reward": around(0.5 - 0.3 * ramp(0.3, 0.8), 0.025, rng),
            "heldout": 0.5 - 0.3 * ramp(0.3, 0.8),
        },
        ("agent/bad_calls", "reward"),
    ),
    "failures as zeros": Failure(_failures_as_zeros, ("agent/errors", "reward")),
    "ends not counted": Failure(
        lambda rng: {
            "agent/turns": around(3.0, 0.05, rng),
            "truncated": np.clip(around(0.96, 0.01, rng), 0, 1),
            "length": around(330, 12, rng),
            "length_max": around(900, 60, rng),
        },
        ("truncated", "length"),
    ),
    "prompt decides the reward": Failure(
        lambda rng: {
            "dead_fraction": np.ones(ROWS),
            "reward_std": np.zeros(ROWS),
            "grad_norm": np.zeros(ROWS),
            "loss": np.zeros(ROWS),
            "kl": np.zeros(ROWS),
            "reward": around(0.4, 0.05, rng),
            "component/right": around(0.4, 0.05, rng),
            "component_std/right": around(0.45, 0.02, rng),
            "heldout": 0.4 + 0 * U,
        },
        ("component_std/right", "dead_fraction"),
    ),
    "end not recognised": Failure(
        lambda rng: {
            "truncated": np.clip(around(0.96, 0.01, rng), 0, 1),
            "length": around(330, 12, rng),
            "length_max": around(900, 60, rng),
        },
        ("truncated", "length"),
    ),
    "answers shorten": Failure(
        lambda rng: {
            "length": around(700 - 400 * ramp(0.1, 0.7), 8, rng),
            "truncated": np.clip(around(0.36 * (1 - ramp(0.1, 0.6)), 0.01, rng), 0, 1),
        },
        ("length", "truncated"),
    ),
    "filter runs out": Failure(
        lambda rng: {
            "num_gen_batches": np.round(around(5 + 4 * U, 0.5, rng)),
            "reward": around(0.05, 0.01, rng),
            "heldout": 0.05 + 0 * U,
        },
        ("num_gen_batches", "reward"),
    ),
    "skipped updates": Failure(
        lambda rng: {
            "trained": (rng.random(ROWS) < 0.1).astype(float),
            "reward": around(1.3, 0.1, rng),
            "heldout": 0.3 + 0 * U,
        },
        ("trained", "reward"),
    ),
    "accumulation not scaled": Failure(
        lambda rng: {"grad_norm": around(700.0, 60.0, rng), "clip_fraction": np.zeros(ROWS)}, ("grad_norm", "reward")
    ),
    "coarse weights": Failure(
        lambda rng: {
            "weights_moved": np.clip(around(0.02, 0.002, rng), 0, 1),
            "reward": around(0.3, 0.025, rng),
            "heldout": 0.3 + 0 * U,
        },
        ("weights_moved", "reward"),
    ),
    "correction drops most": Failure(
        lambda rng: {"importance/masked_sequences": np.clip(around(0.65, 0.03, rng), 0, 1)},
        ("importance/masked_sequences", "reward"),
    ),
    "inputs differ": Failure(lambda rng: _mismatch(rng, np.full(ROWS, 0.4)), ("mismatch/k3",)),
    "unbounded ratio": Failure(lambda rng: {"grad_norm": _spikes(rng)["grad_norm"]}, ("grad_norm", "clip_low")),
    "degenerate output": Failure(
        lambda rng: {
            "truncated": np.where(U < 0.6, np.clip(around(0.03, 0.01, rng), 0, 1), 1.0),
            "reward": np.where(U < 0.6, around(0.5, 0.03, rng), 0.0),
            "heldout": np.where(U < 0.6, 0.5, 0.0),
        },
        ("truncated", "reward"),
    ),
    "kl against its penalty": Failure(
        lambda rng: {
            "kl": 1e-3 * np.exp(9 * U + 0.05 * rng.normal(size=ROWS)),
            "kl_coef": np.full(ROWS, 0.01),
            "reward": around(0.3 + 0.2 * ramp(0, 0.5) - 0.4 * ramp(0.7), 0.025, rng),
            "heldout": 0.5 - 0.3 * ramp(0.7),
        },
        ("kl", "reward"),
    ),
    "unseen truncation": Failure(
        lambda rng: {
            "length": around(900 + 2600 * ramp(0.1), 40, rng),
            "length_max": around(4010, 25, rng),
            "truncated": np.zeros(ROWS),
            "reward": around(0.5 - 0.25 * ramp(0.5), 0.025, rng),
            "heldout": 0.5 - 0.25 * ramp(0.5),
        },
        ("length", "length_max"),
    ),
    "non-finite": Failure(
        _nan,
        ("grad_norm", "reward"),
    ),
    "ratio overflow": Failure(
        lambda rng: _nan(rng) | {"mismatch/k3": np.where(np.arange(ROWS) == 140, np.inf, 2e-4 * 300**U)},
        ("mismatch/k3", "reward"),
    ),
    "old log-probabilities of the sampler": Failure(
        lambda rng: {"kl_old": around(0.25 + 0.4 * U, 0.02, rng), "length": around(400 + 800 * U, 10, rng)},
        ("kl_old", "length"),
    ),
    "learning rate off schedule": Failure(
        lambda rng: {"lr": 1e-6 * np.minimum((np.arange(ROWS) % 120 + 1) / 15, 1)},
        ("lr", "reward"),
    ),
    "growing oscillation": Failure(
        lambda rng: _swings(rng, 0.3),
        ("reward",),
    ),
    "reward hacking": Failure(
        lambda rng: {
            "reward": around(0.3 + 0.5 * U, 0.025, rng),
            "heldout": 0.3 + 0.25 * ramp(0, 0.4) - 0.3 * ramp(0.4),
        },
        ("reward", "heldout"),
    ),
    "kl blow-up": Failure(
        lambda rng: {
            "kl": around(0.02 + 3 * ramp(0.5) ** 2, 0.01, rng),
            "reward": around(0.5 - 0.3 * ramp(0.6), 0.025, rng),
            "heldout": 0.5 - 0.3 * ramp(0.6),
        },
        ("kl", "reward"),
    ),
    "constant reward": Failure(
        lambda rng: {"reward": np.where(U < 0.5, around(0.4, 0.025, rng), 1.0), "heldout": 0.4 - 0.2 * ramp(0.5)},
        ("reward", "heldout"),
    ),
    "saturated": Failure(
        lambda rng: {
            "reward": np.clip(around(0.97 + 0.025 * U, 0.003, rng), 0, 1),
            "dead_fraction": np.clip(around(0.9 + 0.05 * U, 0.01, rng), 0, 1),
            "heldout": 0.9 + 0 * U,
        },
        ("dead_fraction", "reward"),
    ),
    "entropy collapse": Failure(
        lambda rng: {
            "entropy": around(0.8 * np.exp(-8 * ramp(0.2)), 0.0, rng) * np.exp(0.05 * rng.normal(size=ROWS)),
            "reward": around(0.45 - 0.1 * U, 0.025, rng),
            "heldout": 0.45 - 0.1 * U,
        },
        ("entropy", "reward"),
    ),
    "entropy explosion": Failure(
        lambda rng: {
            "entropy": around(0.8 + 3.5 * ramp(0.3), 0.05, rng),
            "reward": around(0.5 - 0.35 * ramp(0.3), 0.025, rng),
            "heldout": 0.5 - 0.35 * ramp(0.3),
        },
        ("entropy", "reward"),
    ),
    "starved": Failure(
        lambda rng: {
            "reward": np.clip(around(0.02, 0.006, rng), 0, 1),
            "dead_fraction": np.clip(around(0.93, 0.015, rng), 0, 1),
            "heldout": 0.02 + 0 * U,
        },
        ("dead_fraction", "reward"),
    ),
    "dead after a fall": Failure(
        lambda rng: {
            "reward": np.where(U < 0.5, np.clip(around(0.5, 0.03, rng), 0, 1), 0.0),
            "dead_fraction": np.where(U < 0.5, np.clip(around(0.15, 0.02, rng), 0, 1), 1.0),
            "reward_std": np.where(U < 0.5, around(0.4, 0.01, rng), 0.0),
            "heldout": None,
        },
        ("reward", "dead_fraction"),
    ),
    "never paid": Failure(
        lambda rng: {**_parts(around(0.3 + 0.3 * U, 0.025, rng), np.zeros(ROWS))},
        ("component/form", "component/right"),
    ),
    "oscillation": Failure(
        lambda rng: _swings(rng, 0.0),
        ("reward",),
    ),
    "length": Failure(
        lambda rng: {
            "length": around(220 + 900 * ramp(0.2), 15, rng),
            "reward": around(0.4, 0.025, rng),
            "heldout": 0.4 + 0 * U,
        },
        ("length", "reward"),
    ),
    "cancelling components": Failure(
        _cancelling,
        ("component/right", "component/form"),
    ),
    "empty steps": Failure(
        lambda rng: {
            "grad_norm": np.where(rng.random(ROWS) < 0.6, 0.0, 0.5),
            "reward": around(0.3, 0.025, rng),
            "heldout": 0.3 + 0 * U,
        },
        ("grad_norm",),
    ),
    "gradient explosion": Failure(
        lambda rng: {
            "grad_norm": np.exp(around(math.log(0.5) + 6 * ramp(0.5), 0.15, rng)),
            "reward": around(0.5 - 0.2 * ramp(0.6), 0.025, rng),
            "heldout": 0.5 - 0.2 * ramp(0.6),
        },
        ("grad_norm", "reward"),
    ),
    "gradient spikes": Failure(
        _spikes,
        ("grad_norm",),
    ),
    "clip saturation": Failure(
        lambda rng: {
            "clip_low": np.clip(around(0.15 + 0.15 * U, 0.01, rng), 0, 1),
            "clip_high": np.clip(around(0.15 + 0.15 * U, 0.01, rng), 0, 1),
        },
        ("clip_high", "clip_low"),
    ),
    "held-out decline": Failure(
        lambda rng: {"reward": around(0.5, 0.025, rng), "heldout": 0.6 - 0.3 * ramp(0.3)},
        ("heldout", "reward"),
    ),
    "reward decline": Failure(
        lambda rng: {"reward": around(0.6 - 0.35 * ramp(0.4), 0.025, rng), "heldout": 0.6 - 0.35 * ramp(0.4)},
        ("reward", "heldout"),
    ),
    "weights never arrived": Failure(lambda rng: _mismatch(rng, 0.05 * U**1.5), ("mismatch/k3",)),
    "wrong weights at the sampler": Failure(
        lambda rng: _mismatch(rng, np.where(U < 0.6, 2e-4, 0.02 + 0.2 * (U - 0.6))), ("mismatch/k3",)
    ),
    "growing lag": Failure(
        lambda rng: _mismatch(rng, 2e-4 * 300 ** ramp(0.3)) | {"staleness/mean": around(1 + 7 * ramp(0.3), 0.1, rng)},
        ("mismatch/k3", "staleness/mean"),
    ),
    "sampler temperature differs": Failure(
        lambda rng: _mismatch(rng, np.full(ROWS, 0.03)) | {"temperature": 0.7}, ("mismatch/k3",)
    ),
    "truncated sampler": Failure(
        lambda rng: {
            "mismatch/k1": np.full(ROWS, -math.log(0.7)),
            "mismatch/k3": around(0.7 - 1 - math.log(0.7), 1e-4, rng),
        },
        ("mismatch/k1", "mismatch/k3"),
    ),
    "sampler mismatch": Failure(lambda rng: _mismatch(rng, 2e-4 * 300**U), ("mismatch/k3",)),
    "sampler numerics differ": Failure(lambda rng: _mismatch(rng, np.full(ROWS, 0.03)), ("mismatch/k3",)),
    "muted component": Failure(
        _muted,
        ("reward",),
    ),
    "zero loss": Failure(
        lambda rng: {
            "loss": np.where(U < 0.1, 0.0, 0.0),
            "grad_norm": np.where(rng.random(ROWS) < 0.95, 0.0, 0.4),
            "reward": around(0.3, 0.02, rng),
            "heldout": 0.3 + 0 * U,
        },
        ("loss", "grad_norm"),
    ),
    "length pays": Failure(_paid_by_length, ("reward", "length")),
    "no learning": Failure(
        lambda rng: {"reward": around(0.4, 0.012, rng), "heldout": 0.4 + 0 * U},
        ("reward", "heldout"),
    ),
}
"""Mode -> its simulated failure, in the order of the rules."""


def record(folder: Path, name: str, seed: int = 0) -> Path:
    """Write the simulated run of a fault, or a healthy one by any other name, as a record that every command reads."""
    rng = np.random.default_rng(seed)
    columns = healthy(rng) | (FAILURES[name].change(rng) if name in FAILURES else {})
    groups, heldout = columns.pop("groups", []), columns.pop("heldout")
    settings = {"steps": ROWS, "group": columns.pop("group", 8), "prompts": 8}
    stated = {"reward_weights": columns.pop("weights", None), "temperature": columns.pop("temperature", None)}
    settings |= {setting: value for setting, value in stated.items() if value is not None}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"format": 2, "settings": settings, "task": "simulated"}))
    with (folder / "steps.jsonl").open("w") as file:
        for i in range(ROWS):
            row = {key: "NaN" if math.isnan(values[i]) else float(values[i]) for key, values in columns.items()}
            file.write(json.dumps({"step": i + 1, **row}) + "\n")
    with (folder / "evals.jsonl").open("w") as file:
        for i in range(9, ROWS if heldout is not None else 0, 10):
            value = float(np.clip(heldout[i] + 0.012 * rng.normal(), 0, 1))
            score = {"value": value, "se": 0.02, "n": 500, "flag": ""}
            file.write(json.dumps({"step": i + 1, "pass@1": score}) + "\n")
    if groups:
        (folder / "groups.jsonl").write_text("".join(json.dumps(group) + "\n" for group in groups))
    return folder


def named(folder: Path, name: str, of: str = "") -> tuple[Run, Finding]:
    """The run of a fault and its finding; SystemExit where `diagnose` does not name the fault. of: another's run."""
    run = read(record(folder, of or name))
    found = {finding.fault: finding for finding in diagnose(run)}
    if name not in found or found[name].status != "present":
        flagged = [mode for mode, finding in found.items() if finding.status == "present"]
        raise SystemExit(f"{name} is not named on its run; present: {', '.join(flagged) or 'nothing'}")
    return run, found[name]


def picture(run: Run, drawn: Sequence[str], onset: int | None) -> str:
    """The curves as an SVG: a panel each, side by side, with a dashed line at the onset."""
    width, height, parts = 300, 120, []
    for k, name in enumerate(drawn):
        steps, values = _curve(run, name)
        known = values[np.isfinite(values)]
        low, high = float(known.min()), float(known.max())
        if name in SHARES and low >= 0 and high <= 1.05:
            low, high = 0.0, 1.0
        log = low > 0 and high > 30 * low
        y = np.log(values) if log else values
        bottom, top = (math.log(low), math.log(high)) if log else (low, high)
        x0, span = k * (width + 20) + 44, width - 50
        at = lambda step, x0=x0, span=span: x0 + span * step / ROWS  # noqa: E731
        rows = height - 14 - (height - 34) * (y - bottom) / ((top - bottom) or 1)
        line = " ".join(f"{at(s):.0f},{v:.1f}" for s, v in zip(steps, rows, strict=True) if math.isfinite(v))
        parts += [
            f'<text x="{x0}" y="12">{name.replace("heldout", "held-out score")}</text>',
            f'<text x="{x0 - 4}" y="24" text-anchor="end">{number(high)}</text>',
            f'<text x="{x0 - 4}" y="{height - 12}" text-anchor="end">{number(low)}</text>',
            f'<path d="M{x0} {height - 14}h{span}" stroke="#999"/>',
            f'<polyline points="{line}" fill="none" stroke="{("#2166ac", "#c8501e")[k]}" stroke-width="1.5"/>',
        ]
        if onset is not None:
            parts.append(f'<path d="M{at(onset):.0f} 18V{height - 14}" stroke="#c0392b" stroke-dasharray="4 3"/>')
    size = len(drawn) * (width + 20)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {height}" width="{size}" '
        'font-family="sans-serif" '
        f'font-size="10" fill="#555"><rect width="{size}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _curve(run: Run, name: str) -> tuple[np.ndarray, np.ndarray]:
    if name == "heldout":
        kept = np.array([metric == "pass@1" for metric in run.evaluations.metric])
        return run.evaluations.step[kept], run.evaluations.value[kept]
    return run.table["step"][::2], run.table[name][::2]


def slug(mode: str) -> str:
    """The name of a mode's picture."""
    return mode.replace(" ", "-")


def main() -> None:
    """Check every fault, then draw the pictures."""
    parser = argparse.ArgumentParser(description="draw the gallery of faults")
    parser.add_argument("--check", action="store_true", help="only check that diagnose names each mode")
    check = parser.parse_args().check
    if missing := {name for name, fault in faults().items() if fault.log is not None} - set(FAILURES):
        raise SystemExit(f"no run for {', '.join(sorted(missing))}")
    found, pictures = {}, HERE / "pictures" / "failures"
    with TemporaryDirectory() as folder:
        for mode, failure in FAILURES.items():
            run, found[mode] = named(Path(folder) / slug(mode), mode)
            if not check:
                pictures.mkdir(parents=True, exist_ok=True)
                (pictures / f"{slug(mode)}.svg").write_text(picture(run, failure.drawn, found[mode].onset))


if __name__ == "__main__":
    main()
