"""How much memory a pass will take, before it is started, and how much there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from grposcope.errors import UserError


@contextmanager
def saved_bytes(skip: set[int]) -> Iterator[Callable[[], int]]:
    """Count the bytes autograd keeps for the backward pass; `skip` holds data pointers not to count (weights)."""
    seen: dict[int, int] = {}

    def pack(array: Tensor) -> Tensor:
        storage = array.untyped_storage()
        if storage.data_ptr() not in skip:
            seen[storage.data_ptr()] = storage.nbytes()
        return array

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda array: array):
        yield lambda: sum(seen.values())


def available(device: torch.device) -> float:
    """Bytes free on the device; on a CPU those the system says it can hand out, infinite where it does not say."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return float("inf")


def check(needed: float, device: torch.device) -> None:
    """UserError where `needed` bytes are more than there are."""
    free = available(device)
    if needed > 0.9 * free:
        raise UserError(
            f"the probe would take about {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; "
            "use fewer --prompts, a smaller --group or --max-tokens, or --checkpointing"
        )
