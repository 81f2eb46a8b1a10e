"""Synthetic probes in the format that `grposcope probe --out` writes, from scores that are known.

Gram, rewards, dead groups and tokens belong to each other; ranks and sparsity are plausible numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import dumps

from grposcope.instruments.gradient.probe_record import ProbeGram, write_gram

WIDTH = 1
"""Entries of the score in each layer."""

RANKS = ("stable", "participation", "entropy", "entropy_sq", "energy_90", "energy_95", "energy_99", "threshold_0.1",
         "threshold_0.01")  # fmt: skip


def estimate(value: float, se: float = 0.1, n: int = 8, flag: str = "") -> dict[str, Any]:
    """An estimate as JSON has it."""
    return {"value": value, "se": se, "n": n, "flag": flag}


def layer_names(blocks: int) -> list[str]:
    """Two matrices a block, and the embedding."""
    kinds = ("self_attn.q_proj", "mlp.up_proj")
    return [f"model.layers.{b}.{kind}.weight" for b in range(blocks) for kind in kinds] + ["model.embed_tokens.weight"]


def make(
    folder: Path,
    prompts: int = 64,
    group: int = 6,
    seed: int = 0,
    step: int | None = None,
    texts: Sequence[str] = (),
    blocks: int = 3,
    rewards: np.ndarray | None = None,
    gradients: Sequence[str] = ("grpo", "grpo, G=2", "nll"),
    **content: Any,
) -> Path:
    """Write a probe into `folder` and return it.

    texts: completions; gradients: names of its weightings; content: entries of probe.json to change.
    """
    rng = np.random.default_rng(seed)
    names = layer_names(blocks)
    scores = rng.normal(size=(prompts, group, WIDTH * len(names)))
    directions = 0.5 * rng.normal(size=scores.shape[-1]) + rng.normal(size=(prompts, scores.shape[-1]))
    if rewards is None:  # prompts differ in what is right, and in how hard they are
        hard = rng.normal(0, 3, (prompts, 1))
        rewards = (np.einsum("pgd,pd->pg", scores, directions) > hard).astype(float)
    flat = scores.reshape(prompts * group, -1)
    parts = flat.reshape(len(flat), len(names), WIDTH).transpose(1, 0, 2)
    truncated = np.zeros(rewards.shape, bool)
    layers = parts @ parts.transpose(0, 2, 1)
    write_gram(folder, ProbeGram(flat @ flat.T, rewards, truncated, layers, tuple(names)))
    found = _content(prompts, group, rewards, names, gradients, rng)
    (folder / "probe.json").write_text(dumps({**found, **({} if step is None else {"step": step}), **content}))
    lines = [row for x in range(prompts) for row in _rollouts(x, rewards[x], texts, rng)]
    (folder / "tokens.jsonl").write_text("".join(dumps(line) + "\n" for line in lines))
    return folder


def edit(folder: Path, **content: Any) -> Path:
    """Change entries of probe.json."""
    path = folder / "probe.json"
    path.write_text(dumps(json.loads(path.read_text()) | content))
    return folder


def _content(
    prompts: int, group: int, rewards: np.ndarray, names: list[str], settings: Sequence[str], rng: np.random.Generator
) -> dict[str, Any]:
    dead, p = (rewards == rewards[:, :1]).all(1), float(rewards.mean())
    ranks = {name: 1.5 + 0.5 * i for i, name in enumerate(RANKS)}
    live = np.flatnonzero(~dead)
    gaps = {int(x): rng.normal(-0.2, 0.1) for x in live}
    token = {"gini": 0.85, "hoyer": 0.64, "top_1": 0.2, "top_5": 0.78, "top_20": 0.99}
    parameter = {"gini": 0.7, "hoyer": 0.6, "top_1": 0.6, "below_0.1": 0.99, "below_0.01": 0.8, "below_0.001": 0.3,
                 "visible_sgd": 0.0004, "visible_adam": 0.977}  # fmt: skip
    return {
        "format": 1, "model": "tiny", "task": "arithmetic", "seed": 0, "recipe": "grpo", "tier": "exact",
        "complete": True, "prompts": prompts, "group": group, "rollouts": prompts * group,
        "tokens": prompts * group * 3, "truncated": 0.0, "solved": p, "self_check": 7e-8, "left_out": [],
        "share_left_out": 0.0, "skipped": {},
        "settings": {
            name: {
                "layer": {rank: estimate(v + 0.2 * i, 0.1, len(names)) for rank, v in ranks.items()},
                "rollout": ranks,
                "token": None if i else ranks,
            }
            for i, name in enumerate(settings)
        },
        "groups": {"dead": estimate(float(dead.mean()), float(dead.std() / prompts**0.5), prompts),
                   "dead_if_alike": p**group + (1 - p) ** group, "dead_at": {}},
        "two_classes": {name: estimate(0.99 + 0.005 * i, 0.001) for i, name in enumerate(("plain", "reduced"))}
        | {"distinct": estimate(0.99, 0.001)},
        "baseline": {
            "mean": estimate(0.28), "optimal": estimate(0.11), "covariance": estimate(-0.2, 0.05),
            "excess_mean": estimate(0.5, 0.3), "excess_none": estimate(0.03, 0.1),
            "verdict": "the best constant baseline lies below the group mean",
        },
        "credit": {"cancelled": 0.2, "shared": 0.6, "common": 0.3},
        "token_sparsity": token,
        "parameter_sparsity": {name: estimate(v, 0.0) for name, v in parameter.items()},
        "layers": [_layer(name, i, settings, rng) for i, name in reversed(list(enumerate(names)))],
        "baselines": [
            {"prompt": x, "mean": estimate(0.3), "optimal": estimate(0.1), "verdict": "",
             "covariance": estimate(gaps.get(x, float("nan")), 0.1 if x in gaps else float("nan"))}
            for x in range(prompts)
        ],
    }  # fmt: skip


def _layer(name: str, i: int, settings: Sequence[str], rng: np.random.Generator) -> dict[str, Any]:
    values = np.sort(rng.gamma(1, 1, 20) * 0.5 ** np.arange(20))[::-1]
    x = values**2
    spectrum = {
        "values": values.tolist(), "size": 20, "frobenius": float(x.sum()) ** 0.5, "left_out": 0.0, "bounds": None,
        "ranks": {rank: float(x.sum() / x[0]) + k for k, rank in enumerate(RANKS)},
    }  # fmt: skip
    inside = name.startswith("model.layers.")
    return {
        "name": name, "role": name.split(".")[-2], "depth": int(name.split(".")[2]) if inside else None,
        "shape": [20, 30], "score_norm": 1.0 + i, "spectra": dict.fromkeys(settings, spectrum),
    }  # fmt: skip


def _rollouts(x: int, rewards: np.ndarray, texts: Sequence[str], rng: np.random.Generator) -> list[dict[str, Any]]:
    """Three tokens each: one that all write, one that half of them write, one of their own (or the text)."""
    spread = rewards.std()
    weights = -(rewards - rewards.mean()) / spread if spread > 0 else np.zeros(len(rewards))
    norms = rng.random(3) + 0.1
    halves = np.arange(len(rewards)) % 2
    rows = []
    for i, reward in enumerate(rewards):
        last = texts[(x * len(rewards) + i) % len(texts)] if texts else f"{i}."
        parts = ["A", "BC"[halves[i]], *(last[k : k + 50] for k in range(0, min(len(last), 5000), 50))]
        own = len(parts) - 2
        norm = [norms[0], norms[1], *([norms[2]] * own)]
        same = [np.full(len(rewards), True), halves == halves[i], *([np.arange(len(rewards)) == i] * own)]
        net = [abs(weights[s].sum()) / s.sum() * n for s, n in zip(same, norm, strict=True)]
        rows.append({
            "problem": f"train-{x}", "prompt": f"{x}+1=", "completion": "".join(parts), "reward": float(reward),
            "tokens": parts, "weight": [weights[i]] * len(parts), "norm": norm,
            "mass": [abs(weights[i]) * n for n in norm], "net": net, "sharers": [int(s.sum()) for s in same],
        })  # fmt: skip
    return rows
