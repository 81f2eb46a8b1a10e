"""MLflow: the verdict on a run and its last alarm as tags, and the severity as a metric."""

from __future__ import annotations

import os
from collections.abc import Sequence

from grposcope.watch.alerts import Alert
from grposcope.watch.receivers.program import Program, RefusedError, is_verdict, panel, severity

LONGEST = 5000
"""Characters of a tag."""


def _write(place: str, alerts: Sequence[Alert]) -> None:
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
            client.set_tag(place, "grposcope/verdict", panel(alert)[:LONGEST])
            client.set_tag(place, "grposcope/grade", alert.grade)
            client.log_metric(place, "grposcope/severity", severity(alert), step=alert.step)
        else:
            client.set_tag(place, "grposcope/alert", panel(alert)[:LONGEST])


PROGRAM = Program("RUN_ID", lambda place: "" if place.isalnum() else "a run has an id of letters and digits", _write)
