"""Allocation: which problems a batch draws, how many rollouts each gets, and what that does to the objective.

`ALLOCATORS` names them for settings and flags; an allocator with settings is written with them,
`optimal:floor=0.1,weights=none`. Forecasts of success rates are in `forecast` and `scores`, the policies in `picks`,
the theory in `optimal`; `training` and TRL's sampler drive whatever the table names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from numpy.typing import NDArray

from grposcope.allocation import picks
from grposcope.allocation.norms import DEFAULT
from grposcope.allocation.picks import Ints, Offer, Picks, Values
from grposcope.errors import UserError
from grposcope.named import Choice, Decimal, Setting, Text, Whole, nearest, read_settings

LOOKED_AT = 16
"""Candidates, for each problem of a batch, of an allocator without a setting `pool`."""


@dataclass(frozen=True)
class Allocator:
    """One way to spend the rollouts of a batch.

    help: what it is, for a list. objective: whose gradient it estimates, a clause, or that of some settings. picks: the
    policy, from what a batch is picked from and the settings; success rates are then forecast. None where problems come
    in turn, a group each, or are screened. second: where problems are screened, further rollouts of each, from whether
    its screening was mixed, the rollouts that are left, and the settings. replaces_dead: whether further problems are
    drawn in the place of dead groups. ragged: whether the groups of a batch differ in size, with these settings.
    given_size: settings with which each batch has the run's P groups of G, as TRL's must; None where there are none.
    leave_one_out: whether its objective is that of leave-one-out advantages only, which runs with others are told.

    settings: by name, those that `name:key=value` sets. Of these the run itself reads `pool`, the number of problems
    that are candidates, and `history`, a record to learn success rates from first; of an allocator with `second`, too,
    `first`, rollouts of the screening, and `pooled`, whether these are trained on.
    """

    help: str
    objective: str | Callable[[Values], str]
    picks: Callable[[Offer, Values], Picks] | None = None
    second: Callable[[NDArray, int, Values], Ints] | None = None
    replaces_dead: bool = False
    ragged: Callable[[Values], bool] = lambda values: False
    given_size: Mapping[str, str] | None = None
    leave_one_out: bool = False
    settings: Mapping[str, Setting] = field(default_factory=dict)


def _of_two_stages(values: Values) -> str:
    if values["pooled"] == "no":
        return "favours problems of middling success, which count 2p(1-p)"
    return (
        "biased: the screening rollouts are trained on and are a selection; groups of 8 keep 0.30 of the gradient of a "
        "problem solved at 0.05 and 0.52 at 0.5"
    )


def _of_optimal(values: Values) -> str:
    if values["weights"] == "none":
        return "favours problems that are drawn often, those whose rollouts teach most"
    return "every problem counts the same: unbiased with leave-one-out advantages"


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
        replaces_dead=True,
    ),
    "filter": Allocator(
        "problems whose group is forecast to be dead are skipped",
        "problems that are skipped count only as often as they are taken all the same",
        picks=picks.without_dead,
        given_size={},
        settings={
            "dead": Decimal(0.8, 0.0, 1.0, "chance of a dead group above which a problem is skipped"),
            "explore": Decimal(0.1, 0.0, 1.0, "share of these that is taken all the same"),
            "history": _HISTORY,
        },
    ),
    "two-stage": Allocator(
        "two rollouts for many problems, the rest for those where they differ (as in SPEED)",
        _of_two_stages,
        second=lambda mixed, left, values: picks.second_stage(mixed, left, values["largest"]),
        ragged=lambda values: True,
        settings={
            "pooled": Choice(("no", "yes"), "whether the screening rollouts are trained on too"),
            "first": Whole(2, 2, "rollouts of the screening"),
            "largest": Whole(32, 2, "most further rollouts of a problem"),
        },
    ),
    "optimal": Allocator(
        "problems drawn, and group sizes chosen, for the least error of the gradient, weighted back",
        _of_optimal,
        picks=picks.least_error,
        ragged=lambda values: values["sizes"] == "own",
        given_size={"sizes": "given"},
        leave_one_out=True,
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


@dataclass(frozen=True)
class ChosenAllocator:
    """An allocator with the values of its settings. text: as it was asked for."""

    text: str
    name: str
    allocator: Allocator
    values: Values

    @property
    def plain(self) -> bool:
        """Whether problems are taken in turn, a group of one size each."""
        return self.allocator.picks is None and self.allocator.second is None

    @property
    def forecasts(self) -> bool:
        """Whether success rates are forecast."""
        return self.allocator.picks is not None or self.values.get("forecast") == "yes"

    @property
    def ragged(self) -> bool:
        """Whether the groups of a batch differ in size."""
        return self.allocator.ragged(self.values)

    @property
    def objective(self) -> str:
        """Whose gradient is estimated, with these settings."""
        told = self.allocator.objective
        return told if isinstance(told, str) else told(self.values)

    def candidates(self, prompts: int) -> int:
        """Problems that a batch of so many is picked from."""
        return max(self.values.get("pool", LOOKED_AT * prompts), prompts)


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
