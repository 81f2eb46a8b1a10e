"""Where the rollouts of a probe came from, if they were not drawn for it: part of probe.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from grposcope.core.estimate import NOT_MEASURED, Estimate

DOUBT = 5.0
"""Size of z from which on rollouts are said not to be the policy's own: by chance, less than once in a million."""


@dataclass(frozen=True)
class RolloutSource:
    """Rollouts that a trainer wrote as text.

    engine, path, step: who wrote them, to which file, at which optimiser step. weights: of the reward functions, by
    name. forms: prompts by how their token ids were found (`instruments.gradient.retokenize`). changed_prompts,
    changed_completions: texts that their ids do not spell when decoded. truncated: completions that fill the limit.
    length, length_logged: mean tokens of a completion, as encoded again and as the trainer logged. excess: mean of
    log π(y_t) + H_t per token in nats, 0 for a policy's own rollouts; z: in units of its standard error.
    """

    engine: str = ""
    path: str = ""
    step: int | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    forms: Mapping[str, int] = field(default_factory=dict)
    changed_prompts: int = 0
    changed_completions: int = 0
    truncated: int = 0
    length: float = math.nan
    length_logged: float = math.nan
    excess: Estimate = NOT_MEASURED
    z: float = math.nan
    notes: tuple[str, ...] = ()

    @property
    def foreign(self) -> bool:
        """Whether the rollouts are not the policy's own, beyond chance."""
        return abs(self.z) > DOUBT
