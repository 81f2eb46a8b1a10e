"""What the processes of a TRL run say, and agree on."""

from __future__ import annotations

import logging
import sys
from typing import Any

logger = logging.getLogger("grposcope")


def say(line: str, level: int = logging.INFO) -> None:
    """Write a line to the log, and to the terminal above the progress bar unless the log is shown there."""
    handlers, target = [], logger
    while target is not None:
        handlers += target.handlers
        target = target.parent if target.propagate else None  # type: ignore[assignment]
    if handlers:
        logger.log(level, line)
    shown = [
        handler for handler in handlers
        if getattr(handler, "stream", None) in (sys.stderr, sys.stdout) and handler.level <= level
    ]  # fmt: skip
    if not (shown and logger.isEnabledFor(level)):
        from tqdm import tqdm

        tqdm.write(line, file=sys.stderr)


def anywhere(here: bool, args: Any) -> bool:
    """Whether `here` is true in any of the processes that train together; all of them have to call this."""
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return here
    anywhere = torch.tensor([float(here)], device=args.device)
    dist.all_reduce(anywhere, op=dist.ReduceOp.MAX)
    return bool(anywhere.item())
