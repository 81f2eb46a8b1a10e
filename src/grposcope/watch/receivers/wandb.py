"""Weights & Biases: alerts of a run, its verdict as a panel, and the metrics of our own training."""

from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from grposcope.watch.alerts import Alert, Receiver
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


def _alert_of(run: Any, alert: Alert) -> None:
    """Raise an alert of a run of W&B, which passes it on by mail or to Slack as its user has chosen."""
    run.alert(title=alert.title[:63], text=f"{alert.run}: {alert.text}", level=LEVELS.get(alert.grade, "INFO"))


def _of_process(folder: Path) -> Receiver:
    """Alerts of the run of W&B that is active when the alert comes."""

    def receive(alert: Alert) -> None:
        import wandb

        if wandb.run is None:
            raise RuntimeError("no run is active in this process")
        _alert_of(wandb.run, alert)

    return receive


def _logger(folder: Path, config: Mapping[str, Any], done: int) -> MetricLogger:
    """A run of the training itself, to which a resumed one is added."""
    import wandb

    name = folder.resolve().name
    run = wandb.init(project="grposcope", name=name, id=name, resume="allow", dir=str(folder), config=dict(config))
    return ProjectRun("wandb", run, partial(_alert_of, run))


def _write(place: str, alerts: Sequence[Alert]) -> None:
    """A panel `grposcope/verdict`, its history by step, the summary, and W&B's own alerts."""
    import wandb

    *entity, project, name = _parts_of(place)
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
        _to_run(run, alerts)


def _to_run(run: Any, alerts: Sequence[Alert]) -> None:
    import wandb

    run.define_metric("grposcope/step", hidden=True)
    run.define_metric("grposcope/*", step_metric="grposcope/step")
    for alert in alerts:
        if is_verdict(alert):
            text = wandb.Html(f"<pre>{html.escape(panel(alert))}</pre>", inject=False)
            run.log({"grposcope/verdict": text, "grposcope/severity": severity(alert), "grposcope/step": alert.step})
            run.summary["grposcope/verdict_text"] = alert.title
        else:
            _alert_of(run, alert)
    run.finish()


def _parts_of(address: str) -> list[str]:
    """[entity,] project, id of a path or address of a run."""
    path = address.partition("://")[2].partition("/")[2].partition("?")[0] if "://" in address else address
    return [word for word in path.split("/") if word and word != "runs"]


def _problem(address: str) -> str:
    """What keeps this from being the path of a run, empty if nothing."""
    return "" if len(_parts_of(address)) in (2, 3) else "a path of a run has two or three parts"


PROGRAM = Program("[ENTITY/]PROJECT/RUN_ID", _problem, _write, _of_process, _logger)
