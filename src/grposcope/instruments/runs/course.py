"""Plain curves of recorded metrics: the spread of rewards, the policy, completions, the update, the critic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grposcope.core.answer import Answer
from grposcope.core.metrics import COMPLETIONS, CRITIC, POLICY, SPREAD, UPDATE
from grposcope.core.run import Run
from grposcope.render.curves import of_metrics

spread = of_metrics("spread", "How much do rewards differ within a group?", SPREAD)
policy = of_metrics("policy", "How does the policy move?", POLICY)
completions = of_metrics("completions", "How long are the completions?", COMPLETIONS)
update = of_metrics("update", "How large are the updates?", UPDATE)
critic = of_metrics("critic", "How well does the critic predict rewards?", CRITIC)


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """The curves of every part of training that is recorded."""
    drawn = (build(runs) for build in (spread, policy, completions, update, critic))
    return [figure for figure in drawn if figure is not None]
