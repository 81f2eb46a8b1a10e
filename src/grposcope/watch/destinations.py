"""Runs of other programs that a verdict can be written into: W&B, MLflow, TensorBoard, trackio.

Each writes into a run that is there already and that the user named, and never begins one. It leaves a panel or text of
the verdict, a number (`receivers.program.SEVERITIES`), and for an alarm what the program has for alerts; nothing else
of the run is touched. The libraries are imported in a process of its own (`watch.deliver`), since they print, wait and
keep threads as they please.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

from grposcope.core.errors import UserError
from grposcope.watch.alerts import Alert
from grposcope.watch.receivers import mlflow, tensorboard, trackio, wandb


@dataclass(frozen=True)
class Destination:
    """Where to write: one of DESTINATIONS, and the run in its words. `str` gives KIND:PLACE."""

    kind: str
    place: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"


def destination(text: str) -> Destination:
    """The destination KIND:PLACE; UserError for another kind, a place that cannot be one, or a missing package."""
    kind, _, where = text.partition(":")
    if kind not in DESTINATIONS:
        forms = ", ".join(f"{name}:{kind_of.form}" for name, kind_of in DESTINATIONS.items())
        raise UserError(f"{text!r} is not a destination; give one of {forms}")
    form = DESTINATIONS[kind]
    if not where or (problem := form.problem(where)):
        more = f" ({problem})" if where else ""
        raise UserError(f"{text!r} names no run of {kind}{more}; write {kind}:{form.form}")
    if importlib.util.find_spec(kind) is None:
        raise UserError(f"{kind}:… needs the package {kind}, which is not installed; pip install {kind}")
    return Destination(kind, where)


def deliver(where: Destination, alerts: Sequence[Alert]) -> None:
    """Write the alerts into the run, in their order. RefusedError where that can never work; else any exception."""
    DESTINATIONS[where.kind].write(where.place, alerts)


DESTINATIONS = {
    "wandb": wandb.PROGRAM,
    "mlflow": mlflow.PROGRAM,
    "tensorboard": tensorboard.PROGRAM,
    "trackio": trackio.PROGRAM,
}
"""Name of a program, which is that of its package -> how to write into a run of it."""
