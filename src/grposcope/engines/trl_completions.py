"""Groups of rollouts out of TRL's completions/completions_….parquet, the one place where it shows single rewards.

TRL writes the file after it logs, if log_completions is on: the rollouts of the last batch that was
generated, prompt by prompt, with a column per reward function. A rollout's reward is their weighted sum, absent
ones left out, as in TRL; NaN where all are absent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

SHOWN = 60
"""Characters of a prompt, its last ones, that are kept beside its hash as the name of the problem."""


def file(output: Path, step: int) -> Path:
    """Where TRL writes the completions that it logged at `step`."""
    return output / "completions" / f"completions_{step:05d}.parquet"


def read(path: Path, step: int, names: Sequence[str], weights: Sequence[float] | None, size: int) -> list[dict]:
    """Rows for groups.jsonl. names: the reward functions; weights: theirs, None for ones; size: rollouts in a group.

    ValueError, saying why, where the file does not hold whole groups of `size` or lacks a reward function.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(pa.BufferReader(path.read_bytes())) as file:  # threads would only be waited for
            lacking = [name for name in ("prompt", *names) if name not in file.schema_arrow.names]
            if lacking or not names:
                raise ValueError(f"lacks the column {lacking[0]!r}" if lacking else "holds no reward")
            table = file.read(["prompt", *names], use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"cannot be read ({(str(error).splitlines() or ['unknown'])[0]})") from None
    parts = np.array([table[name].to_numpy() for name in names], np.float64)
    scale = np.ones(len(names)) if weights is None else np.asarray(weights, np.float64)
    rewards = np.where(np.isnan(parts).all(0), np.nan, np.nansum(parts * scale[:, None], 0))
    prompts = [problem(prompt) for prompt in table["prompt"].to_pylist()]
    if size < 1 or len(prompts) % size:
        raise ValueError(f"has {len(prompts)} rollouts, which are no whole groups of {size}")
    found = []
    for begin in range(0, len(prompts), size):
        if len(set(prompts[begin : begin + size])) > 1:
            raise ValueError(f"mixes prompts within groups of {size}")
        found.append({"step": step, "problem": prompts[begin], "rewards": rewards[begin : begin + size].tolist()})
    return found


def problem(prompt: Any) -> str:
    """A short name of a prompt, text or conversation, that no other is likely to have: hash, and how it ends."""
    if isinstance(prompt, list):
        parts = [str(part.get("content", part)) if isinstance(part, dict) else str(part) for part in prompt]
        text = "\n".join(parts)
    else:
        text = str(prompt)
    end = " ".join(text[-2 * SHOWN :].split())[-SHOWN:]
    return f"{hashlib.sha256(text.encode()).hexdigest()[:8]} {end}"
