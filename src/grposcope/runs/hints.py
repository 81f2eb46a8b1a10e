"""What the user says of a log that cannot be seen in it, and the question where nothing may be guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grposcope.errors import UserError
from grposcope.formatting import visible
from grposcope.runs.metrics import LOGGED, METRICS

LAST = -1
"""As `Hints.run`: the run that was begun last."""


@dataclass(frozen=True)
class Hints:
    """What the user says of a log.

    settings: under our names (group, kl, trl_version, …), where the log does not say them. columns: metric -> its key
    in the log; in console output also the number of its place in the line, "2" for the second number. average: average
    the rows of one step. run: number of the run, from 1, in a log of several; LAST for the one that was begun last.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    average: bool = False
    run: int | None = None

    def __post_init__(self) -> None:
        """UserError for a metric of `columns` that is none."""
        for name in self.columns:
            if name not in METRICS and name not in LOGGED and not name.startswith("component/"):
                some = ", ".join(metric for metric in METRICS if "/" not in metric)
                raise UserError(f"{visible(name, 60)!r} is no metric; it may be {some} or component/NAME")


class UndecidedError(UserError):
    """A log that can be read once the user says one thing more; `field` is the field of Hints that says it."""

    def __init__(self, message: str, field: str):
        super().__init__(message)
        self.field = field
