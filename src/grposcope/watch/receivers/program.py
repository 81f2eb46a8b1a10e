"""What the programs that show a run have in common: an alert as their text and number, and a run that logs metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from grposcope.watch.alerts import Alert, Receiver

SEVERITIES = {"failing": 3.0, "warning": 2.0, "note": 1.0}
"""Grade -> height of the point that is drawn."""

LEVELS = {"failing": "ERROR", "warning": "WARN"}
"""Grade -> level of an alert in W&B and trackio; INFO for others."""


class RefusedError(Exception):
    """A destination that does not exist, or that may not be written to: to try again would not help."""


def is_verdict(alert: Alert) -> bool:
    """Whether an alert is the verdict on the run as a whole, which is shown and raises no alarm."""
    return not alert.fault


def panel(alert: Alert) -> str:
    """The whole of an alert as text."""
    return f"{alert.title}\n\nstep {alert.step:,} of {alert.run}\n\n{alert.text}"


def severity(alert: Alert) -> float:
    """How bad an alert is, as a number; 0 for a grade that has none."""
    return SEVERITIES.get(alert.grade, 0.0)


class MetricLogger(Protocol):
    """Takes the metrics of every optimiser step, and what goes wrong. name: of LOGGERS."""

    name: str

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log the metrics of an optimiser step."""
        ...

    def alert(self, alert: Alert) -> None:
        """Tell of an alarm; it may take its time, or fail."""
        ...

    def close(self) -> None:
        """Flush and close."""
        ...


class ProjectRun:
    """A run of Weights & Biases or trackio, whose interfaces are the same but for alerts, which `told` raises."""

    def __init__(self, name: str, run: Any, told: Receiver):
        self.name, self._run, self.alert = name, run, told

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log the metrics of an optimiser step."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """End the run."""
        self._run.finish()


@dataclass(frozen=True)
class Program:
    """All that we write into a program that shows runs.

    form: how its run is named, for a message. problem: what is wrong with such a name, empty if nothing. write: puts
    alerts, in their order, into the run of that name; RefusedError where that can never work. open_receiver: of alerts
    in the process that trains, for a record in this folder; None where there is none. open_logger: of a training, from
    the run's folder, its settings and the steps already logged; None where there is none.
    """

    form: str
    problem: Callable[[str], str]
    write: Callable[[str, Sequence[Alert]], None]
    open_receiver: Callable[[Path], Receiver] | None = None
    open_logger: Callable[[Path, Mapping[str, Any], int], MetricLogger] | None = None
