"""Writes the verdict and alarms of a watched run into a run of another program, and loses none of them.

What is to be written waits in a file until it arrived, also beyond the end of the watch and of the machine's network; a
failure is said once and tried again later, ever more seldom. A change may arrive twice, where the way back was lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from grposcope.core.files import atomic, dumps
from grposcope.watch.alerts import Alert
from grposcope.watch.deliver import REFUSED
from grposcope.watch.destinations import Destination
from grposcope.watch.receivers.program import RefusedError

TIMEOUT = 90.0
"""Seconds that one delivery may take."""

AGAIN, LONGEST_PAUSE = 30.0, 600.0
"""Seconds until the first further attempt; twice as many until each next one, up to the latter."""

KEPT = 1000
"""Most changes that wait for a destination; the oldest are dropped."""

Delivery = Callable[[Destination, Sequence[Alert]], None]


class Writer:
    """Writes alerts to a destination from a thread of its own, those that an earlier watch could not write first.

    name: for lines about failures. deliver: writes some alerts, or raises an exception (`RefusedError`: for good).
    """

    def __init__(self, where: Destination, deliver: Delivery | None = None, folder: Path | None = None):
        self.name = str(where)
        self._where = where
        self._deliver = deliver or _in_a_process
        self._path = (folder or _state_folder()) / f"{hashlib.sha256(self.name.encode()).hexdigest()[:16]}.jsonl"
        self._lock = threading.Condition()
        self._waiting: deque[Alert] = deque(_kept(self._path), KEPT)
        self._failed: deque[str] = deque()
        self._last_failure = ""
        self._closed = self._hurry = False
        self._thread: threading.Thread | None = None
        if self._waiting:
            self._start()

    def send(self, alert: Alert) -> None:
        """Keep an alert until it is written, and return at once."""
        with self._lock:
            if self._closed:
                return
            if len(self._waiting) == KEPT:
                self._failed.append(f"{self.name}: {KEPT} changes are already waiting; the oldest was dropped")
            self._waiting.append(alert)
            self._keep()
            self._lock.notify()
        self._start()

    def failures(self) -> list[str]:
        """A line for each new reason why something could not be written; each line once."""
        return [self._failed.popleft() for _ in range(len(self._failed))]

    def wait(self, until: float) -> None:
        """Wait until all is written, at the latest until this value of `time.monotonic`; then say what is kept."""
        with self._lock:
            self._hurry = True
            self._lock.notify()
        while time.monotonic() < until:
            with self._lock:
                if not self._waiting or self._closed or (self._last_failure and not self._hurry):
                    break
            time.sleep(0.02)
        with self._lock:
            if self._waiting and not self._closed:
                self._failed.append(
                    f"{self.name}: {len(self._waiting)} changes are not written yet; they are kept in {self._path} and "
                    "written by the next watch with this destination"
                )

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"grposcope-{self._where.kind}", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        pause = AGAIN
        while not self._closed:
            with self._lock:
                while not self._waiting:
                    self._lock.wait()
                batch = list(self._waiting)
            try:
                self._deliver(self._where, batch)
            except RefusedError as error:
                with self._lock:
                    self._closed = True
                    self._waiting.clear()
                    self._keep()
                self._failed.append(f"{self.name}: {error}; nothing is written there")
            except Exception as error:  # whatever goes wrong here, the watch goes on
                reason = str(error) or type(error).__name__
                if reason != self._last_failure:
                    self._failed.append(f"{self.name}: {reason}; the change is kept and tried again later")
                with self._lock:
                    self._last_failure, self._hurry = reason, False
                    self._lock.wait_for(lambda: self._hurry, pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                with self._lock:
                    written = set(map(id, batch))
                    while self._waiting and id(self._waiting[0]) in written:
                        self._waiting.popleft()
                    self._last_failure, pause = "", AGAIN
                    self._keep()

    def _keep(self) -> None:
        """Write what waits to the file; without it, where there is nothing or the disk refuses."""
        with contextlib.suppress(OSError):
            if not self._waiting:
                self._path.unlink(missing_ok=True)
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with atomic(self._path) as file:
                file.write("".join(dumps(asdict(alert)) + "\n" for alert in self._waiting).encode())


def _in_a_process(where: Destination, alerts: Sequence[Alert]) -> None:
    """Deliver in a process of its own, which may print, hang and fail."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "grposcope.watch.deliver", str(where)],
            input=dumps([asdict(alert) for alert in alerts]),
            capture_output=True, text=True, timeout=TIMEOUT, start_new_session=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ConnectionError(f"no answer within {TIMEOUT:g} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        reason = lines[-1].strip() if lines else f"exit status {done.returncode}"
        raise RefusedError(reason) if done.returncode == REFUSED else ConnectionError(reason)


def _state_folder() -> Path:
    """Folder for what is kept until it can be written."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "grposcope" / "unsent"


def _kept(path: Path) -> list[Alert]:
    """What an earlier watch kept; lines that hold no alert are passed over."""
    alerts = []
    with contextlib.suppress(OSError):
        for line in path.read_text("utf-8", "replace").splitlines():
            with contextlib.suppress(ValueError, TypeError):
                alerts.append(Alert(**json.loads(line)))
    return alerts
