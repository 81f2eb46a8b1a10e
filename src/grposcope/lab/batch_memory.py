"""Whether the rollouts of a batch fit into memory, said before they are drawn.

The numbers are lower bounds: what is refused cannot work, what is not refused still may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from grposcope.core.errors import UserError

PER_TOKEN = 40
"""Bytes that a batch holds per token of a completion: its id, masks, log-probabilities, entropy, credit and weights."""

MOST = 100_000
"""Rollouts of a batch: more do not end in time."""


def free_memory() -> float:
    """Bytes that the system can still give; infinite where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return float("inf")


def check(
    sizes: Mapping[str, int], tokens: int | None = None, cached: float = 0, gram: bool = False,
    free: float | None = None, longest: str = "max_tokens",
) -> None:  # fmt: skip
    """UserError for rollouts that do not fit into memory, or are more than MOST.

    sizes: as messages name them, such as prompts and group, whose product is the number of rollouts. tokens: of a
    completion at most, where known, which a message calls `longest`. cached: bytes of a model's keys and values per
    token while it samples. gram: whether inner products of all rollouts are kept, 8 bytes each. free: bytes.
    """
    rollouts = 1
    for size in sizes.values():
        rollouts *= size
    said = " × ".join(f"{name} {size}" for name, size in sizes.items())
    if rollouts > MOST:
        raise UserError(f"{said} are more rollouts than the {MOST:,} that a batch may hold; lower one of them")
    needed = rollouts * (tokens or 1) * (PER_TOKEN + cached) + 8.0 * gram * rollouts**2
    left = free_memory() if free is None else free
    if needed > left:
        long = f" × {longest} {tokens}" if tokens else ""
        raise UserError(
            f"{said}{long} need {needed / 1e9:,.1f} GB of memory or more, and {left / 1e9:,.1f} GB are free; lower one "
            "of them"
        )
