"""trackio: alerts of a run, its verdict as a text, and the metrics of our own training."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from grposcope.watch.alerts import Alert
from grposcope.watch.receivers.program import (
    LEVELS,
    MetricLogger,
    Program,
    ProjectRun,
    RefusedError,
    is_verdict,
    panel,
    severity,
)


def _alert_of(library: Any, alert: Alert) -> None:
    """Raise an alert of the current run of trackio."""
    level = getattr(library.AlertLevel, LEVELS.get(alert.grade, "INFO"))
    library.alert(title=alert.title, text=alert.text, level=level)


def _logger(folder: Path, config: Mapping[str, Any], done: int) -> MetricLogger:
    """A run of the training itself, to which a resumed one is added."""
    import trackio

    name = folder.resolve().name
    run = trackio.init(project="grposcope", name=name, resume="allow", config=dict(config))
    return ProjectRun("trackio", run, partial(_alert_of, trackio))


def _write(place: str, alerts: Sequence[Alert]) -> None:
    """A text `grposcope/verdict`, the metric `grposcope/severity`, and trackio's own alerts."""
    import trackio

    project, _, name = place.partition("/")
    parameters = inspect.signature(trackio.init).parameters
    quiet = {key: False for key in ("embed", "auto_log_gpu", "auto_log_cpu") if key in parameters}
    try:
        run = trackio.init(project=project, name=name, resume="must", **quiet)
    except ValueError as error:
        raise RefusedError(str(error)) from None
    for alert in alerts:
        if is_verdict(alert):
            text = trackio.Markdown(panel(alert)) if hasattr(trackio, "Markdown") else alert.title
            run.log({"grposcope/verdict": text, "grposcope/severity": severity(alert), "grposcope/step": alert.step})
        else:
            _alert_of(trackio, alert)
    run.finish()


PROGRAM = Program(
    "PROJECT/RUN",
    lambda place: "" if all(place.partition("/")) else "it has a project and a name",
    _write,
    open_logger=_logger,
)
