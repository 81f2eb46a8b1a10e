"""Runs of other programs that a verdict can be written into: W&B, MLflow, TensorBoard, trackio.

Each writes into a run that is there already and that the user named, and never begins one. It leaves a panel or text of
the verdict, a number (`alerts.SEVERITIES`), and for an alarm what the program has for alerts; nothing else of the run
is touched. The libraries are imported here alone, in a process of its own (`watch.deliver`), since they print, wait and
keep threads as they please.
"""

from __future__ import annotations

import html
import importlib.util
import inspect
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.logs.formats.tensorboard import VERDICT
from grposcope.watch.alerts import SEVERITIES, Alert, to_trackio, to_wandb

LONGEST = 5000
"""Characters of a tag of MLflow."""


class RefusedError(Exception):
    """A destination that does not exist, or that may not be written to: to try again would not help."""


@dataclass(frozen=True)
class Destination:
    """Where to write: one of DESTINATIONS, and the run in its words. `str` gives KIND:PLACE."""

    kind: str
    place: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"


def destination(text: str) -> Destination:
    """The destination KIND:PLACE; UserError for another kind, a place that cannot be one, or a missing package."""
    kind, _, place = text.partition(":")
    if kind not in DESTINATIONS:
        forms = ", ".join(f"{name}:{one.form}" for name, one in DESTINATIONS.items())
        raise UserError(f"{text!r} is not a destination; give one of {forms}")
    known = DESTINATIONS[kind]
    if not place or (problem := known.problem(place)):
        more = f" ({problem})" if place else ""
        raise UserError(f"{text!r} names no run of {kind}{more}; write {kind}:{known.form}")
    if importlib.util.find_spec(kind) is None:
        raise UserError(f"{kind}:… needs the package {kind}, which is not installed; pip install {kind}")
    return Destination(kind, place)


def deliver(where: Destination, alerts: Sequence[Alert]) -> None:
    """Write the alerts into the run, in their order. RefusedError where that can never work; else any exception."""
    DESTINATIONS[where.kind].write(where.place, alerts)


def is_verdict(alert: Alert) -> bool:
    """Whether an alert is the verdict on the run as a whole, which is shown and raises no alarm."""
    return not alert.fault


def _panel(alert: Alert) -> str:
    """The whole of an alert as text."""
    return f"{alert.title}\n\nstep {alert.step:,} of {alert.run}\n\n{alert.text}"


def _severity(alert: Alert) -> float:
    return SEVERITIES.get(alert.grade, 0.0)


def _wandb(place: str, alerts: Sequence[Alert]) -> None:
    """A panel `grposcope/verdict`, its history by step, the summary, and W&B's own alerts."""
    import wandb

    *entity, project, name = _wandb_parts(place)
    common: dict[str, Any] = {"console": "off", "silent": True, "disable_git": True, "save_code": False,
                              "x_disable_stats": True, "x_disable_meta": True,
                              "x_save_requirements": False}  # fmt: skip
    if os.environ.get("WANDB_MODE") == "offline":
        settings = wandb.Settings(mode="offline", **common)
    else:
        try:
            wandb.Api(timeout=20).run("/".join((*entity, project, name)))
        except ValueError as error:  # no such run, or it may not be read
            raise RefusedError(str(error)) from None
        settings = wandb.Settings(
            mode="shared", x_primary=False, x_label="grposcope", x_update_finish_state=False, **common
        )
    with tempfile.TemporaryDirectory() as scratch:
        folder = None if settings.mode == "offline" else scratch
        run = wandb.init(entity=entity[0] if entity else None, project=project, id=name, dir=folder, settings=settings)
        _to_run_of_wandb(run, alerts)


def _to_run_of_wandb(run: Any, alerts: Sequence[Alert]) -> None:
    import wandb

    run.define_metric("grposcope/step", hidden=True)
    run.define_metric("grposcope/*", step_metric="grposcope/step")
    for alert in alerts:
        if is_verdict(alert):
            panel = wandb.Html(f"<pre>{html.escape(_panel(alert))}</pre>", inject=False)
            run.log({"grposcope/verdict": panel, "grposcope/severity": _severity(alert), "grposcope/step": alert.step})
            run.summary["grposcope/verdict_text"] = alert.title
        else:
            to_wandb(run, alert)
    run.finish()


def _wandb_parts(place: str) -> list[str]:
    """[entity,] project, id of a path or address of a run."""
    path = place.partition("://")[2].partition("/")[2].partition("?")[0] if "://" in place else place
    return [part for part in path.split("/") if part and part != "runs"]


def _wandb_problem(place: str) -> str:
    return "" if len(_wandb_parts(place)) in (2, 3) else "a path of a run has two or three parts"


def _mlflow(place: str, alerts: Sequence[Alert]) -> None:
    """Tags `grposcope/verdict`, `grposcope/grade` and `grposcope/alert`, and the metric `grposcope/severity`."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # it is tried again later anyway
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    client = MlflowClient()
    try:
        client.get_run(place)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "PERMISSION_DENIED", "INVALID_PARAMETER_VALUE"):
            raise RefusedError(str(error)) from None
        raise
    for alert in alerts:
        if is_verdict(alert):
            client.set_tag(place, "grposcope/verdict", _panel(alert)[:LONGEST])
            client.set_tag(place, "grposcope/grade", alert.grade)
            client.log_metric(place, "grposcope/severity", _severity(alert), step=alert.step)
        else:
            client.set_tag(place, "grposcope/alert", _panel(alert)[:LONGEST])


def _tensorboard(place: str, alerts: Sequence[Alert]) -> None:
    """Texts and points in event files of our own: `grposcope/verdict`, `grposcope/alarm/<mode>`; without torch."""
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    if not Path(place).is_dir():
        raise RefusedError(f"there is no folder {place}")
    writer = EventFileWriter(str(Path(place) / VERDICT))
    for alert in alerts:
        tag = "grposcope/verdict" if is_verdict(alert) else f"grposcope/alarm/{alert.fault.replace(' ', '_')}"
        text = summary_pb2.Summary.Value(
            tag=f"{tag}/text_summary",
            tensor=tensor_pb2.TensorProto(dtype=7, string_val=[_panel(alert).encode()]),
            metadata=summary_pb2.SummaryMetadata(
                plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text")
            ),
        )
        point = summary_pb2.Summary.Value(tag=tag, simple_value=_severity(alert))
        summary = summary_pb2.Summary(value=[text, point])
        writer.add_event(event_pb2.Event(wall_time=time.time(), step=alert.step, summary=summary))
    writer.close()


def _trackio(place: str, alerts: Sequence[Alert]) -> None:
    """A text `grposcope/verdict`, the metric `grposcope/severity`, and trackio's own alerts."""
    import trackio

    project, _, name = place.partition("/")
    known = inspect.signature(trackio.init).parameters
    quiet = {key: False for key in ("embed", "auto_log_gpu", "auto_log_cpu") if key in known}
    try:
        run = trackio.init(project=project, name=name, resume="must", **quiet)
    except ValueError as error:
        raise RefusedError(str(error)) from None
    for alert in alerts:
        if is_verdict(alert):
            panel = trackio.Markdown(_panel(alert)) if hasattr(trackio, "Markdown") else alert.title
            run.log({"grposcope/verdict": panel, "grposcope/severity": _severity(alert), "grposcope/step": alert.step})
        else:
            to_trackio(trackio, alert)
    run.finish()


@dataclass(frozen=True)
class Kind:
    """How a program's run is named, what is wrong with such a name (empty if nothing), and how to write into it."""

    form: str
    problem: Callable[[str], str]
    write: Callable[[str, Sequence[Alert]], None]


DESTINATIONS = {
    "wandb": Kind("[ENTITY/]PROJECT/RUN_ID", _wandb_problem, _wandb),
    "mlflow": Kind("RUN_ID", lambda place: "" if place.isalnum() else "a run has an id of letters and digits", _mlflow),
    "tensorboard": Kind("FOLDER", lambda place: "" if Path(place).is_dir() else "there is no such folder",
                        _tensorboard),
    "trackio": Kind("PROJECT/RUN", lambda place: "" if all(place.partition("/")) else "it has a project and a name",
                    _trackio),
}  # fmt: skip
"""Name of a program, which is that of its package -> how to write into a run of it."""
