"""Runs of W&B, MLflow and trackio by their address into rows; the package of each asks its server or store.

    wandb://ENTITY/PROJECT/RUN    or the address of the run's page
    mlflow://RUN_ID               of the store of MLFLOW_TRACKING_URI
    trackio://PROJECT/RUN         of the store on this machine

Nothing is written there. A row is a step, with all that was logged at it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.files import json_value
from grposcope.core.installing import install
from grposcope.core.text import visible
from grposcope.logs.columns import ColumnBuilder, RawLog

_ADDRESS = re.compile(r"(?P<kind>wandb|mlflow|trackio):/{1,2}(?P<place>[^/].*)")
_PAGE = re.compile(r"https?:/{1,2}(?:[\w.-]*\.)?wandb\.ai/(?P<place>[^?#]+)(?:[?#].*)?")

SECONDS = 30
"""Time that a server has for an answer."""

FORMS = {
    "wandb": "wandb://ENTITY/PROJECT/RUN",
    "mlflow": "mlflow://RUN_ID",
    "trackio": "trackio://PROJECT/RUN",
}
"""Kind -> how the address of a run looks."""


def address(path: str | Path) -> tuple[str, str] | None:
    """(kind, place) of a run that a program keeps; None for a path. A `Path` has lost one of the slashes."""
    text = str(path)
    if (page := _PAGE.fullmatch(text)) is not None:
        parts = [word for word in page["place"].split("/") if word != "runs"][:3]
        return "wandb", "/".join(parts)
    match = _ADDRESS.fullmatch(text)
    return None if match is None else (match["kind"], match["place"].strip("/"))


def read(kind: str, address: str) -> RawLog:
    """The rows and the configuration of a run; UserError that says what is missing: package, network, login or run."""
    if len([word for word in address.split("/") if word]) != len(FORMS[kind].partition("://")[2].split("/")):
        raise UserError(f"{kind}://{visible(address, 200)} is no address of a run; write {FORMS[kind]}")
    try:
        log = READERS[kind](address)
    except ModuleNotFoundError as error:
        raise UserError(f"{kind}:// needs the package {error.name}, which is not installed: {install(kind)}") from None
    except UserError:
        raise
    except Exception as error:  # of a package that is not ours, each with its own kinds of errors
        said = visible(" ".join(str(error).split()) or type(error).__name__, 300)
        raise UserError(
            f"{kind}://{visible(address, 200)} cannot be read: {said}; look at the network, the login ({LOGIN[kind]}) "
            "and the address, or give the files of the run"
        ) from None
    if not len(log.rows):
        raise UserError(f"{kind}://{visible(address, 200)} has logged no metric yet")
    return log


LOGIN = {
    "wandb": "wandb login, or WANDB_API_KEY and WANDB_BASE_URL",
    "mlflow": "MLFLOW_TRACKING_URI",
    "trackio": "TRACKIO_DIR",
}
"""Kind -> what says where it is and who asks."""


def _wandb(address: str) -> RawLog:
    import wandb

    run = wandb.Api(timeout=SECONDS).run(address)
    states = {"finished": "finished", "crashed": "failed", "failed": "failed", "killed": "interrupted"}
    config = {key: value for key, value in dict(run.config).items() if key != "_wandb"}
    rows = _rows(run.scan_history())
    return _log("wandb", address, rows, states.get(str(run.state), "running"), config, str(run.name or ""))


def _mlflow(address: str) -> RawLog:
    from mlflow import MlflowClient

    client = MlflowClient()
    run = client.get_run(address)
    by_step: dict[int, dict[str, Any]] = {}
    for key in run.data.metrics:
        for metric in sorted(client.get_metric_history(address, key), key=lambda measure: measure.timestamp):
            by_step.setdefault(int(metric.step), {})[key] = metric.value
    states = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "interrupted", "RUNNING": "running"}
    config = {key: _parameter(value) for key, value in dict(run.data.params).items()}
    rows = _rows({"step": step, **values} for step, values in sorted(by_step.items()))
    status = states.get(str(run.info.status), "unknown")
    return _log("mlflow", address, rows, status, config, str(run.info.run_name or ""))


def _trackio(address: str) -> RawLog:
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    project, _, name = address.partition("/")
    runs = [run for run in trackio.Api().runs(project) if name in (run.name, getattr(run, "id", None))]
    if not runs:
        raise UserError(f"trackio: the project {visible(project, 100)} has no run {visible(name, 100)}; name another")
    config = {key: value for key, value in (runs[-1].config or {}).items() if not key.startswith("_")}
    logged = SQLiteStorage.get_logs(project, runs[-1].name)
    rows = _rows({key: value for key, value in row.items() if key != "timestamp"} for row in logged)
    return _log("trackio", address, rows, "unknown", config, name)


READERS: Mapping[str, Callable[[str], RawLog]] = {"wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio}


def _rows(logged: Iterable[Mapping[str, Any]]) -> ColumnBuilder:
    rows = ColumnBuilder()
    for number, row in enumerate(logged, 1):
        rows.row(number, dict(row))
    return rows


def _log(kind: str, address: str, rows: ColumnBuilder, status: str, config: Mapping[str, Any], name: str) -> RawLog:
    notes = [f"read from {FORMS[kind].partition('://')[0]} by its address"]
    path = Path(f"{kind}:{address}")
    return RawLog(path, rows, status=status, notes=notes, logged=dict(config), place="history row", name=name)


def _parameter(value: str) -> Any:
    """A parameter of MLflow, which keeps them as text."""
    try:
        return json_value(value)
    except (ValueError, RecursionError):
        return {"True": True, "False": False, "None": None}.get(value, value)
