"""Whether work fits into memory, said before it begins: the rollouts of a batch, and what passes over them take.

The numbers of `check` are lower bounds: what is refused cannot work, what is not refused still may not.
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


ROOM = 0.9
"""Share of the free memory that work with a model may take."""


def refuse_if_full(what: str, needed: float, free: float, remedy: str, error: type[UserError] = UserError) -> None:
    """`error` in one line where `needed` bytes are more than ROOM of the free ones, with the remedy."""
    if needed > ROOM * free:
        raise error(f"{what} would take about {_size(needed)} and {_size(free)} are free; {remedy}")


def foretold(what: str, needed: float, seconds: float | None = None, of: str = "") -> str:
    """The line that says what work with a model will take. of: what the time is the time of, such as a step."""
    after = "" if seconds is None else f", and about {_duration(seconds)}{of}"
    return f"{what} will take about {_size(needed)} above the loaded model{after}"


def _size(count: float) -> str:
    """Bytes in words."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _duration(seconds: float) -> str:
    """Seconds in words."""
    minutes = seconds / 60
    return (
        f"{minutes / 60:.1f} hours"
        if minutes >= 90
        else f"{minutes:.0f} minutes"
        if seconds >= 90
        else (f"{max(seconds, 1):.0f} s")
    )
