"""Allocation: which problems a batch draws, how many rollouts each gets, and what that does to the objective.

`ALLOCATORS` names them for settings and flags; an allocator with settings is written with them,
`optimal:floor=0.1,weights=none`. Forecasts of success rates are in `forecast` and `scores`, the policies in `picks`,
the theory in `optimal`; `training` drives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grposcope.allocation.norms import DEFAULT, Norms
from grposcope.errors import UserError
from grposcope.named import Choice, Decimal, Setting, Text, Whole, nearest, read_settings


@dataclass(frozen=True)
class Allocator:
    """One way to spend the rollouts of a batch.

    help: what it is, for a list. objective: whose gradient it estimates. forecasts: whether it needs the history of
    success rates. settings: by name, those that `name:key=value` sets.
    """

    help: str
    objective: str
    forecasts: bool = False
    settings: Mapping[str, Setting] = field(default_factory=dict)


_HISTORY = Text("", "record of a run on the same problems to learn success rates from first")

ALLOCATORS: dict[str, Allocator] = {
    "uniform": Allocator(
        "every problem in turn, a group each",
        "every problem counts the same: unbiased",
        settings={"forecast": Choice(("no", "yes"), "forecast success rates all the same, to see how well"),
                  "history": _HISTORY},
    ),
    "resample": Allocator(
        "groups whose rewards are all equal are replaced by further problems (DAPO)",
        "favours problems of middling success: a problem counts by the chance that its group is live",
    ),
    "filter": Allocator(
        "problems whose group is forecast to be dead are skipped",
        "problems that are skipped count only as often as they are taken all the same",
        forecasts=True,
        settings={
            "dead": Decimal(0.8, 0.0, 1.0, "chance of a dead group above which a problem is skipped"),
            "explore": Decimal(0.1, 0.0, 1.0, "share of these that is taken all the same"),
            "history": _HISTORY,
        },
    ),
    "two-stage": Allocator(
        "two rollouts for many problems, the rest for those where they differ (as in SPEED)",
        "favours problems of middling success, which count 2p(1-p); pooled=yes is biased beyond that",
        settings={
            "pooled": Choice(("no", "yes"), "whether the screening rollouts are trained on too"),
            "first": Whole(2, 2, "rollouts of the screening"),
            "largest": Whole(32, 2, "most further rollouts of a problem"),
        },
    ),
    "optimal": Allocator(
        "problems drawn, and group sizes chosen, for the least error of the gradient, weighted back",
        "every problem counts the same: unbiased with leave-one-out advantages; weights=none favours problems that are "
        "drawn often",
        forecasts=True,
        settings={
            "weights": Choice(("inverse", "none"), "whether groups are weighted by 1/q"),
            "sizes": Choice(("own", "one", "given"), "group sizes: one per problem, one for all, or the run's"),
            "largest": Whole(32, 2, "largest group"),
            "floor": Decimal(0.2, 0.0, 1.0, "share of the draws that is uniform, so that weights stay below 1/floor"),
            "pool": Whole(1024, 2, "problems among which a batch is drawn"),
            "separation": Decimal(DEFAULT.separation, 0.0, 1e9, "‖μ₊ − μ₋‖²/E‖s‖² at p = 1/2; a probe measures it"),
            "power": Decimal(DEFAULT.separation_power, -2.0, 2.0, "its dependence on p(1-p)"),
            "alignment": Decimal(DEFAULT.alignment, 0.0, 1.0, "‖E g‖² over (E ‖g‖)²"),
            "history": _HISTORY,
        },
    ),
}  # fmt: skip
"""Name of a setting -> allocator."""

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Group sizes that the optimal draw chooses from."""


@dataclass(frozen=True)
class ChosenAllocator:
    """An allocator with the values of its settings. text: as it was asked for."""

    text: str
    name: str
    allocator: Allocator
    values: Mapping[str, Any]

    @property
    def plain(self) -> bool:
        """Whether problems are taken in turn, a group of one size each."""
        return self.name in ("uniform", "resample")

    @property
    def forecasts(self) -> bool:
        """Whether success rates are forecast."""
        return self.allocator.forecasts or self.values.get("forecast") == "yes"

    @property
    def ragged(self) -> bool:
        """Whether the groups of a batch differ in size."""
        return self.name == "two-stage" or self.values.get("sizes") == "own"

    @property
    def objective(self) -> str:
        """Whose gradient is estimated, with these settings."""
        if self.name == "optimal" and self.values["weights"] == "none":
            return "favours problems that are drawn often, those whose rollouts teach most"
        if self.name == "optimal":
            return "every problem counts the same: unbiased with leave-one-out advantages"
        if self.name == "two-stage" and self.values["pooled"] == "yes":
            return (
                "biased: the screening rollouts are trained on and are a selection; groups of 8 keep 0.30 of the "
                "gradient of a problem solved at 0.05 and 0.52 at 0.5"
            )
        return self.allocator.objective

    @property
    def norms(self) -> Norms:
        """The norms of gradients that the optimal draw assumes."""
        power, separation = self.values["power"], self.values["separation"]
        return Norms(separation * 0.25**-power, power, alignment=self.values["alignment"])


def described() -> str:
    """The allocators and what each does, in one line."""
    listed = "; ".join(f"{name}, {one.help}" for name, one in ALLOCATORS.items())
    return f"where rollouts are spent: {listed}"


def chosen(text: str) -> ChosenAllocator:
    """The allocator that `name` or `name:key=value,key=value` asks for; UserError for what there is not."""
    name, _, given = text.partition(":")
    if name not in ALLOCATORS:
        raise UserError(f"unknown allocate {text!r}{nearest(name, ALLOCATORS)}; use one of {', '.join(ALLOCATORS)}")
    known = ALLOCATORS[name]
    return ChosenAllocator(text, name, known, read_settings("allocate", text, name, given, known.settings))
