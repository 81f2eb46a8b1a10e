"""How many passes TRL makes on one batch of rollouts."""

from __future__ import annotations

from grposcope.core.settings import Settings


def generation_steps(settings: Settings) -> int | None:
    """Forward passes of a process of TRL on one batch of rollouts, where that does not depend on the processes."""
    if settings.says("generation_batch_size") and not settings.resolved:
        return None
    key = "steps_per_generation" if settings.says("steps_per_generation") else "gradient_accumulation_steps"
    return settings.whole(key)
