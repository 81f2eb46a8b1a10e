"""Judges a run while it trains, says what goes wrong, a line each, and tells the loggers of its metrics.

It reads the record as it is on the disk, and the texts of some groups of each batch. It draws no random number of the
run, which stays the same bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grposcope.core.not_finite import MEASURED, not_finite_in
from grposcope.core.rollouts import Rollout
from grposcope.core.text import visible
from grposcope.logs.native import reader
from grposcope.logs.tail import Pace
from grposcope.watch import alarm_file, alerts
from grposcope.watch.alarms import BUDGET, FIRST, FREE, Alarms, wanted
from grposcope.watch.receivers.program import MetricLogger
from grposcope.watch.row_signs import RowSigns
from grposcope.watch.text_looks import GROUPS, TextLooks
from grposcope.watch.wording import alarm_alert, alarm_line

_TAKING = 0.001
"""Largest share of the time that keeping texts may take, but for the first rows."""

SENT = wanted(["warning"])
"""What loggers are told of: warnings and failures."""


class LiveAlarms:
    """Looks at the record in `folder`, which has `done` steps, as it grows; says alarms and sends them to the loggers.

    say: prints a line above the progress bar. A failure is said once and ends the looking, never the training.
    """

    def __init__(self, folder: Path, loggers: Sequence[MetricLogger], done: int, say: Callable[[str], None]):
        self._folder, self._say, self._rows, self._broken = folder, say, done, False
        self._alarms = Alarms(alarm_file.cut_back(folder, done), done)
        self._pace = Pace(BUDGET, FIRST / BUDGET)
        self._odd: set[str] = set()
        self._signs, self._changed = RowSigns(), False
        self._texts, self._taking = TextLooks(BUDGET), Pace(_TAKING)
        self._senders = [alerts.Sender(logger.name, logger.alert) for logger in loggers]

    def take(self, step: int, drawn: Callable[[int], Sequence[Rollout]]) -> None:
        """Keep the texts of some groups of a step; after the first rows, where there is time for it. drawn: at most so
        many groups."""
        if not self._broken and (self._rows < FREE or self._taking.ready()):
            began = time.perf_counter()
            self._texts.take(step, drawn(GROUPS))
            self._taking.spent(time.perf_counter() - began)

    def step(self, row: Mapping[str, Any]) -> None:
        """Take note of a further row; judge the record if that is due, at once if a metric is no longer finite."""
        self._rows += 1
        odd = not_finite_in(row)
        if self._rows == 1:
            self._odd |= odd & {*MEASURED}  # a term that the loss does not have
        urgent = not odd <= self._odd or self._alarms.free(self._rows)
        self._odd |= odd
        self._changed |= self._signs.take(row)
        if (urgent or self._alarms.due(self._rows, self._pace, self._changed)) and not self._broken:
            self._changed = False
            began = time.perf_counter()
            self._look()
            self._pace.spent(time.perf_counter() - began)

    def end(self) -> None:
        """Judge the whole record, and wait a little for the alerts to arrive."""
        if not self._broken and self._rows > self._alarms.rows:
            self._look(last=True)
        for line in alerts.wait(self._senders):
            self._say(visible(line))

    def _look(self, last: bool = False) -> None:
        try:
            run = reader.read(self._folder)
            new = self._alarms.look(run, self._texts.look(run.rollouts, now=last), last)
            alarm_file.append(self._folder, new)
            for alarm in (alarm for alarm in new if not self._alarms.follows(alarm)):
                self._say(visible(alarm_line(alarm), 1000))
                if SENT.covers(alarm.fault, alarm.grade):
                    alert = alarm_alert(alarm, str(self._folder))
                    for sender in self._senders:
                        sender.send(alert)
        except Exception as error:  # whatever goes wrong here, the run goes on
            self._broken = True
            self._say(f"no further alarms: {visible(str(error) or type(error).__name__, 500)}")
        for line in alerts.failures(self._senders):
            self._say(visible(line))
