"""Posts alarms to a URL as small JSON documents, from a thread of its own: what it reports on is never delayed."""

from __future__ import annotations

import json
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from grposcope.errors import UserError

TIMEOUT = 5.0
"""Seconds for one attempt."""

ATTEMPTS = 2
"""Attempts for one document."""

PAUSE = 1.0
"""Seconds between them."""

WAITING = 100
"""Documents that wait at most; further ones are dropped."""


class Webhook:
    """Sends documents in order. failures: why the last ones that were given up did not arrive, a line each."""

    def __init__(self, url: str):
        """UserError where the URL is not one of http or https."""
        self.url = checked(url)
        self.failures: list[str] = []
        self._queue: queue.Queue[bytes] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None

    def send(self, content: Mapping[str, Any]) -> None:
        """Queue a document; returns at once."""
        try:
            self._queue.put_nowait(json.dumps(content).encode())
        except queue.Full:
            self.failures.append(f"webhook: {WAITING} documents wait already; one was dropped")
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._deliver, name="grposcope-webhook", daemon=True)
            self._thread.start()

    def wait(self, seconds: float = ATTEMPTS * TIMEOUT + PAUSE) -> None:
        """Give what is queued at most `seconds` to leave, at the end of a program."""
        ends = time.monotonic() + seconds
        while self._queue.unfinished_tasks and time.monotonic() < ends:
            time.sleep(0.02)
        if self._queue.unfinished_tasks:
            self.failures.append(f"webhook: not answered within {seconds:g} s")

    def _deliver(self) -> None:
        while True:
            data = self._queue.get()
            try:
                self._post(data)
            finally:
                self._queue.task_done()

    def _post(self, data: bytes) -> None:
        said = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE)
            try:
                request = urllib.request.Request(
                    self.url, data, {"Content-Type": "application/json", "User-Agent": "grposcope"}
                )
                with _opener().open(request, timeout=TIMEOUT):
                    return
            except urllib.error.HTTPError as error:
                said = f"answered {error.code}"
                error.close()
            except Exception as error:  # whatever it is, the run goes on
                said = str(getattr(error, "reason", "") or error or type(error).__name__)
        self.failures.append(f"webhook: {said}; given up after {ATTEMPTS} attempts")


def checked(url: str) -> str:
    """The URL; UserError where it is not one of http or https with a host."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine or any(letter.isspace() or not letter.isprintable() for letter in url):
        raise UserError(f"webhook {url!r} is no URL of http or https; write it like https://example.org/hook")
    return url


def _opener() -> urllib.request.OpenerDirector:
    """Speaks http and https, through the proxies of the environment, and follows no redirects."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.HTTPDefaultErrorHandler,
    ):
        opener.add_handler(handler())
    return opener
