"""What the user says of a log that cannot be seen in it, and the question where nothing may be guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.metrics import LOGGED, METRICS
from grposcope.core.text import number, visible

LAST = -1
"""As `Hints.run`: the run that was begun last."""


@dataclass(frozen=True)
class Hints:
    """What the user says of a log.

    settings: under our names (group, kl, trl_version, …), where the log does not say them. columns: metric -> its key
    in the log; in console output also the number of its place in the line, "2" for the second number. average: average
    the rows of one step. run: number of the run, from 1, in a log of several; LAST for the one that was begun last.
    scope: the environment, domain or agent that is meant, "" for the whole run.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    average: bool = False
    run: int | None = None
    scope: str = ""

    def __post_init__(self) -> None:
        """UserError for a metric of `columns` that is none."""
        for name in self.columns:
            if not is_metric(name):
                some = ", ".join(metric for metric in METRICS if "/" not in metric)
                raise UserError(f"{visible(name, 60)!r} is not a metric; use {some} or component/NAME")


def is_metric(name: str) -> bool:
    """Whether a column of a log may be given as the metric `name`."""
    return name in METRICS or name in LOGGED or name.startswith("component/")


@dataclass(frozen=True)
class Seen:
    """A key of a log that was not made a run: how many values it has, the first and the last.

    candidate: whether it may be the reward.
    """

    key: str
    values: int
    first: float
    last: float
    candidate: bool = False

    def __str__(self) -> str:
        return f"{visible(self.key, 60)} ({number(self.first)} → {number(self.last)}, {self.values:,} rows)"


class UnreadError(UserError):
    """A log whose rows were found but could not be made a run; `seen` are its keys."""

    def __init__(self, message: str, seen: Sequence[Seen] = ()):
        super().__init__(message)
        self.seen = tuple(seen)


class UndecidedError(UnreadError):
    """A log that can be read once the user says one thing more.

    field: that of Hints that says it. example: METRIC=KEY of a likely answer, where the field is `columns`.
    """

    def __init__(self, message: str, field: str, seen: Sequence[Seen] = (), example: str = ""):
        super().__init__(message, seen)
        self.field, self.example = field, example
