"""Judges a run while it trains, and tells the loggers of its metrics of what goes wrong.

It reads the record as it is on the disk and draws no random number: the run stays the same bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from grposcope.diagnosis import alarm_file, alerts
from grposcope.diagnosis.alarms import BUDGET, FIRST, Alarms, wanted
from grposcope.facts.diagnosis import alarm_alert, alarm_line
from grposcope.formatting import visible
from grposcope.runs.native import reader
from grposcope.runs.tail import Pace
from grposcope.training.loggers import MetricLogger

SENT = wanted(["warning"])
"""What loggers are told of: warnings and failures."""


class LiveAlarms:
    """Looks at the record in `folder`, which has `done` steps, as it grows, and sends alarms to the loggers.

    say: prints a line above the progress bar. A failure is said once and ends the looking, never the training.
    """

    def __init__(self, folder: Path, loggers: Sequence[MetricLogger], done: int, say: Callable[[str], None]):
        self._folder, self._say, self._rows, self._broken = folder, say, done, False
        self._alarms = Alarms(alarm_file.cut_back(folder, done), done)
        self._pace = Pace(BUDGET, FIRST / BUDGET)
        self._senders = [alerts.Sender(logger.name, logger.alert) for logger in loggers]

    def step(self) -> None:
        """Take note of a further row, and judge the record if that is due."""
        self._rows += 1
        if self._senders and not self._broken and self._pace.ready() and self._alarms.due(self._rows):
            began = time.perf_counter()
            self._look()
            self._pace.spent(time.perf_counter() - began)

    def end(self) -> None:
        """Judge the whole record, and wait a little for the alerts to arrive."""
        if self._senders and not self._broken and self._rows > self._alarms.rows:
            self._look()
        for line in alerts.wait(self._senders):
            self._say(visible(line))

    def _look(self) -> None:
        try:
            run = reader.read(self._folder)
            new = self._alarms.look(run)
            alarm_file.append(self._folder, new)
            for alarm in new:
                self._say(visible(alarm_line(alarm), 1000))
                if SENT.covers(alarm.mode, alarm.grade):
                    alert = alarm_alert(alarm, str(self._folder))
                    for sender in self._senders:
                        sender.send(alert)
        except Exception as error:  # whatever goes wrong here, the run goes on
            self._broken = True
            self._say(f"no alarms from here on: {visible(str(error) or type(error).__name__, 500)}")
        for line in alerts.failures(self._senders):
            self._say(visible(line))
