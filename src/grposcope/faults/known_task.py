"""What is known of a task and its machine beside the settings of a run that has not begun."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grposcope.core.run import Run

if TYPE_CHECKING:
    from grposcope.instruments.dynamics.stability import UpdateRule
    from grposcope.instruments.gradient.probe_record import ProbeRecord


@dataclass(frozen=True)
class Known:
    """What is known of the task and the machine beside the settings; None for what is not.

    success: probability that a rollout of a typical prompt is rewarded. run: an earlier run on the same task. probe: a
    probe of the model on the task. world: processes that train. rule: update rule of the earlier run with its
    curvature κ, `rule_source`: where κ comes from, or why there is none.
    """

    success: float | None = None
    run: Run | None = None
    probe: ProbeRecord | None = None
    world: int | None = None
    rule: UpdateRule | None = None
    rule_source: str = ""
