"""TensorBoard: alarms and verdict as texts and points, and the metrics of our own training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grposcope.logs.formats.tensorboard import VERDICT
from grposcope.watch.alerts import Alert, Receiver
from grposcope.watch.receivers.program import Program, RefusedError, is_verdict, panel, severity


def _alert_of(writer: Any, alert: Alert) -> None:
    """Write a text and a point, higher for a worse grade, at the step of the alarm: `grposcope/alarm/<fault>`."""
    tag = f"grposcope/alarm/{alert.fault.replace(' ', '_')}"
    writer.add_text(tag, f"{alert.title}: {alert.text}", alert.step)
    writer.add_scalar(tag, severity(alert), alert.step)
    writer.flush()


def _of_process(folder: Path) -> Receiver:
    """Event files of their own, which are begun at the first alert."""
    writers: list[Any] = []

    def receive(alert: Alert) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if not writers:
            writers.append(SummaryWriter(str(folder / "tensorboard")))
        _alert_of(writers[0], alert)

    return receive


class _TensorBoard:
    """Event files under `tensorboard/` in the run's folder. After a resume, what was logged later is purged."""

    name = "tensorboard"

    def __init__(self, folder: Path, config: Mapping[str, Any], done: int):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Write a scalar for every metric of a step."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def alert(self, alert: Alert) -> None:
        """Write the alarm as a text."""
        _alert_of(self._writer, alert)

    def close(self) -> None:
        """Write what is left and close the file."""
        self._writer.close()


def _write(place: str, alerts: Sequence[Alert]) -> None:
    """Texts and points in event files of our own: `grposcope/verdict`, `grposcope/alarm/<fault>`; without torch."""
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    if not Path(place).is_dir():
        raise RefusedError(f"there is no folder {place}")
    writer = EventFileWriter(str(Path(place) / VERDICT))
    for alert in alerts:
        tag = "grposcope/verdict" if is_verdict(alert) else f"grposcope/alarm/{alert.fault.replace(' ', '_')}"
        text = summary_pb2.Summary.Value(
            tag=f"{tag}/text_summary",
            tensor=tensor_pb2.TensorProto(dtype=7, string_val=[panel(alert).encode()]),
            metadata=summary_pb2.SummaryMetadata(
                plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text")
            ),
        )
        point = summary_pb2.Summary.Value(tag=tag, simple_value=severity(alert))
        summary = summary_pb2.Summary(value=[text, point])
        writer.add_event(event_pb2.Event(wall_time=time.time(), step=alert.step, summary=summary))
    writer.close()


PROGRAM = Program(
    "FOLDER",
    lambda place: "" if Path(place).is_dir() else "there is no such folder",
    _write,
    _of_process,
    _TensorBoard,
)
