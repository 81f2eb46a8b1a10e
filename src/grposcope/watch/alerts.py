"""Alerts, what others are told of an alarm, and threads that deliver them, so that no training waits for a receiver.

A receiver is a function of an alert that may take its time, hang or fail: a program that shows the run
(`watch.receivers`), or a URL (`watch.webhook`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

WAITING = 100
"""Most alerts that wait for a receiver; further ones are dropped."""

PATIENCE = 11.0
"""Seconds that the end of a program waits for all receivers together."""


@dataclass(frozen=True)
class Alert:
    """What a receiver is told. title: the grade, the fault and since when. text: why, and what to do.

    run: which run it is about. document: all of it for programs, `text` in it being the whole alert in one line.
    """

    run: str
    title: str
    text: str
    grade: str
    fault: str = ""
    step: int = 0
    document: Mapping[str, Any] = field(default_factory=dict)


Receiver = Callable[[Alert], None]
"""Delivers an alert, or raises an exception that says why it could not."""


class Delivers(Protocol):
    """What takes alerts and delivers them while others go on. name: for lines about failures."""

    name: str

    def send(self, alert: Alert) -> None:
        """Take an alert and return at once."""
        ...

    def failures(self) -> list[str]:
        """A line for each alert that did not arrive; each line once."""
        ...

    def wait(self, until: float) -> None:
        """Wait for what was taken, at the latest until this value of `time.monotonic`."""
        ...


class Sender:
    """Hands alerts to a receiver, one after the other, from a thread of its own. name: for lines about failures."""

    def __init__(self, name: str, receiver: Receiver):
        self.name, self._receiver = name, receiver
        self._failed: deque[str] = deque()
        self._queue: queue.Queue[Alert] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None

    def send(self, alert: Alert) -> None:
        """Queue an alert and return at once."""
        try:
            self._queue.put_nowait(alert)
        except queue.Full:
            self._failed.append(f"{self.name}: {WAITING} alerts are already waiting; one was dropped")
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._deliver, name=f"grposcope-{self.name}", daemon=True)
            self._thread.start()

    def failures(self) -> list[str]:
        """A line for each alert that did not arrive, with the reason; each line once."""
        return [self._failed.popleft() for _ in range(len(self._failed))]

    def wait(self, until: float) -> None:
        """Wait until the queued alerts are delivered, at the latest until this value of `time.monotonic`."""
        while self._queue.unfinished_tasks:
            if time.monotonic() >= until:
                self._failed.append(f"{self.name}: no answer in time; the alert may be lost")
                return
            time.sleep(0.02)

    def _deliver(self) -> None:
        while True:
            alert = self._queue.get()
            try:
                self._receiver(alert)
            except Exception as error:  # whatever goes wrong here, the run goes on
                self._failed.append(f"{self.name}: {error or type(error).__name__}")
            finally:
                self._queue.task_done()


def wait(senders: Sequence[Delivers], seconds: float = PATIENCE) -> list[str]:
    """Wait for all senders, `seconds` together; returns a line per alert that did not arrive."""
    until = time.monotonic() + seconds
    for sender in senders:
        sender.wait(until)
    return failures(senders)


def failures(senders: Sequence[Delivers]) -> list[str]:
    """A line for each alert that has not arrived at one of the senders' receivers; each line once."""
    return [line for sender in senders for line in sender.failures()]
