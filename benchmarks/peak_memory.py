"""Peak memory of a process or of a GPU, as the benchmarks read it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")


def reset_peak(device: str = "cpu") -> None:
    """Let `peak_memory` begin anew; on a CPU where Linux allows it."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: str = "cpu") -> float:
    """GB at the most since the last reset: what PyTorch allocated on a GPU, what the process held on a CPU."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated() / 1e9
    line = next(one for one in STATUS.read_text().splitlines() if one.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e9
