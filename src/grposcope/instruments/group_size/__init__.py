"""The error of one gradient at every group size, from the Gram matrix of a probe, and what rewards alone can say.

Groups whose rewards are all equal carry no gradient: how many there are, where, and how many chance explains.
"""

from dataclasses import dataclass

from grposcope.core.instrument import Command, Instrument


@dataclass(frozen=True)
class PlanSettings:
    """What a plan depends on besides the run. ValueError, which begins with the name of the field, where one is off.

    budget: what a batch may cost, None for the cost of the probe. prompt_cost, rollout_cost: of reading a prompt and of
    writing one rollout. multiple: rollouts of a batch are a multiple of it. recipe: that is trained, None for what the
    run or else the probe says, or rloo. groups: sizes to show. layers: whether each layer is planned too. truncated:
    keep or drop rollouts that were cut. last: steps of a run without probes. replicates, seed: of the bootstrap.
    """

    budget: float | None = None
    prompt_cost: float = 0.0
    rollout_cost: float = 1.0
    multiple: int = 1
    recipe: str | None = None
    groups: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    layers: bool = False
    truncated: str = "keep"
    last: int = 50
    replicates: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("last", 1), ("replicates", 20), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} {getattr(self, name)} must be at least {least}")


GROUP_SIZE = Instrument(
    "group_size",
    "How many rollouts per prompt?",
    answers="grposcope.instruments.group_size.answer",
    settings=PlanSettings,
    commands=(
        Command(
            "plan",
            "plan the next one",
            "choose the rollouts per prompt, from a probe or a run's rewards",
            "grposcope.instruments.group_size.command",
        ),
    ),
    uses=("gradient",),
)
DEAD_GROUPS = Instrument(
    "dead_groups",
    "Which groups teach nothing?",
    answers="grposcope.instruments.group_size.dead_groups_answer",
)
INSTRUMENTS = (GROUP_SIZE, DEAD_GROUPS)
