"""Post alarms to a URL as small JSON documents, from a background thread, so that the training is never delayed."""

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
"""Seconds that the server has to answer one attempt."""

ATTEMPTS = 2
"""Attempts to deliver one document."""

PAUSE = 1.0
"""Seconds between two attempts."""

WAITING = 100
"""Most documents that wait to be sent; further ones are dropped."""


class Webhook:
    """Sends documents in order. failures: a line for each document that did not arrive, with the reason."""

    def __init__(self, url: str):
        """UserError for a URL that is not http or https."""
        self.url = checked(url)
        self.failures: list[str] = []
        self._queue: queue.Queue[bytes] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None

    def send(self, content: Mapping[str, Any]) -> None:
        """Queue a document and return at once."""
        try:
            self._queue.put_nowait(json.dumps(content).encode())
        except queue.Full:
            self.failures.append(f"webhook: {WAITING} documents wait already; one was dropped")
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._deliver, name="grposcope-webhook", daemon=True)
            self._thread.start()

    def wait(self, seconds: float = ATTEMPTS * TIMEOUT + PAUSE) -> None:
        """Wait at most `seconds` until the queued documents are sent; call it at the end of a program."""
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
        reason = ""
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
                reason = f"answered {error.code}"
                error.close()
            except Exception as error:  # whatever goes wrong here, the run goes on
                reason = str(getattr(error, "reason", "") or error or type(error).__name__)
        self.failures.append(f"webhook: {reason}; given up after {ATTEMPTS} attempts")


def checked(url: str) -> str:
    """Return the URL; UserError for one that is not http or https with a host."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or any(letter.isspace() or not letter.isprintable() for letter in url):
        raise UserError(f"webhook {url!r} is no URL of http or https; write it like https://example.org/hook")
    return url


def _opener() -> urllib.request.OpenerDirector:
    """Opener for http and https through the proxies of the environment; it follows no redirects."""
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
