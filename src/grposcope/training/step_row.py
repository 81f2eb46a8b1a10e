"""The line of steps.jsonl; `runs.vocabulary` defines its numbers."""

from __future__ import annotations

import math
from typing import Any

from grposcope.training.rollouts import Batch
from grposcope.training.update import Update


def row_of(step: int, lr: float, batch: Batch, done: Update, seconds: float, fresh: bool) -> dict[str, Any]:
    """The line of steps.jsonl. Phases of sampling and grading count on the first step of a batch."""
    rollouts = batch.rollouts
    tokens = rollouts.mask.sum()
    sampled, graded = (batch.sample_seconds, batch.grade_seconds) if fresh else (0.0, 0.0)
    group = rollouts.groups[1]
    return {
        "step": step,
        "reward": float(batch.graded.mean()),
        "reward_std": float(batch.graded.std(-1).mean()) if group > 1 else math.nan,
        "dead_fraction": batch.dead,
        "entropy": float(rollouts.entropy.sum() / tokens),
        "kl": done.kl,
        "kl_old": done.kl_old,
        "length": float(rollouts.lengths.float().mean()),
        "truncated": float(rollouts.truncated.float().mean()),
        "loss": done.loss,
        "grad_norm": done.grad_norm,
        "clip_low": done.clip_low,
        "clip_high": done.clip_high,
        "lr": lr,
        "rollouts_trained": done.trained,
        "tokens": int(tokens),
        "seconds_sample": sampled,
        "seconds_grade": graded,
        "seconds_update": seconds,
        "tokens_per_second": int(tokens) / (batch.sample_seconds + batch.grade_seconds + seconds),
    }
