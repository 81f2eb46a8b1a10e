"""Allocation: which problems a batch draws, and what that does to the objective.

`ALLOCATORS` names the ways for settings and flags; an allocator with settings is written with them,
`filter:dead=0.9`. Forecasts of success rates are in `forecast`, the policies in `picks`; `training` and TRL's sampler
drive whatever the table names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from grposcope.core.capabilities import (
    CHOICE,
    FURTHER_ROLLOUTS,
    MINIBATCHES,
    MODEL_PASS,
    ONE_PROCESS,
    PAIRS,
    Capability,
    Lack,
    Part,
)
from grposcope.core.errors import UserError
from grposcope.core.named_settings import Decimal, Setting, Text, nearest, read_settings
from grposcope.lab.allocation import picks
from grposcope.lab.allocation.picks import AllocationPlan, CandidateProblems, Values

LOOKED_AT = 16
"""CandidateProblems that are looked at for each problem of a batch."""

RETIRED = ("optimal", "two-stage")
"""Allocators of earlier versions, for the error that names what is left; why they went: experiments/allocation.md."""


@dataclass(frozen=True)
class Allocator:
    """One way to choose the problems of a batch.

    help: what it is, for a list. objective: whose gradient it estimates, a clause. picks: the policy, from what a batch
    is picked from and the settings; success rates are then forecast. None where problems come in turn. replaces_dead:
    whether further problems are drawn in the place of dead groups. settings: by name, those that `name:key=value` sets;
    of these the run itself reads `history`, a record to learn success rates from first.
    """

    help: str
    objective: str
    picks: Callable[[CandidateProblems, Values], AllocationPlan] | None = None
    replaces_dead: bool = False
    settings: Mapping[str, Setting] = field(default_factory=dict)


ALLOCATORS: dict[str, Allocator] = {
    "uniform": Allocator("every problem in turn, one group each", "every problem counts the same: unbiased"),
    "resample": Allocator(
        "groups whose rewards are all equal are replaced by further problems (DAPO)",
        "favours problems of middling success: a problem counts by the chance that its group is live",
        replaces_dead=True,
        settings={
            "above": Decimal(
                0.0, 0.0, 1.0, "mean share of dead groups of six batches above which it begins; 0: at once", closed=True
            )
        },
    ),
    "filter": Allocator(
        "problems whose group is forecast to be dead are skipped",
        "skipped problems count only as often as they are drawn anyway",
        picks=picks.without_dead,
        settings={
            "dead": Decimal(0.8, 0.0, 1.0, "chance of a dead group above which a problem is skipped"),
            "explore": Decimal(0.1, 0.0, 1.0, "share of these problems that is drawn anyway"),
            "history": Text("", "record of a run on the same problems to learn success rates from first"),
        },
    ),
}
"""Name of a setting -> allocator."""


@dataclass(frozen=True)
class ChosenAllocator:
    """An allocator with the values of its settings. text: as it was asked for."""

    text: str
    name: str
    allocator: Allocator
    values: Values

    @property
    def plain(self) -> bool:
        """Whether problems are taken in turn, so that no success rate is forecast."""
        return self.allocator.picks is None

    @property
    def consequence(self) -> str:
        """What it does to the objective, in a sentence."""
        return f"allocate {self.text}: {self.allocator.objective}"

    def part(self) -> Part:
        """What the allocator needs of a run and takes from it."""
        needs = frozenset() if self.plain else frozenset({PAIRS, ONE_PROCESS})
        lacks: dict[Capability, Lack] = {}
        if not self.plain:
            lacks[FURTHER_ROLLOUTS] = Lack("does not count more than that", "")
            lacks[MODEL_PASS] = Lack("does not wait for it", "")
            lacks[MINIBATCHES] = Lack("draws batches of varying numbers of groups", "")
        chooses = frozenset({CHOICE}) if self.allocator.replaces_dead or not self.plain else frozenset()
        return Part(f"allocate {self.text}", "leave out allocate", needs | chooses, lacks=lacks)


def chosen(text: str) -> ChosenAllocator:
    """The allocator that `name` or `name:key=value,key=value` asks for; UserError for an unknown name or setting."""
    name, _, options = text.partition(":")
    if name in RETIRED:
        raise UserError(f"allocate {text}: this way was retired; use one of {', '.join(ALLOCATORS)}")
    if name not in ALLOCATORS:
        raise UserError(f"unknown allocate {text!r}{nearest(name, ALLOCATORS)}; use one of {', '.join(ALLOCATORS)}")
    allocator = ALLOCATORS[name]
    return ChosenAllocator(text, name, allocator, read_settings("allocate", text, name, options, allocator.settings))
