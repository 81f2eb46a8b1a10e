"""Serves the page of a run on this machine, made anew as the run grows, and its metrics for Prometheus.

Standard-library HTTP, without an account. On a loopback address any program of this machine may look, if it asks by a
loopback name, so that no other site can reach the page through the browser; on another address a token is asked for, in
the address or as a bearer token.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from grposcope import runs_page
from grposcope.core.answer import HEADLINE, Answer
from grposcope.core.errors import UserError
from grposcope.logs import Hints, read
from grposcope.render import page

PATIENCE = 5.0
"""A page is made anew at most once in PATIENCE times as long as making it takes, and at most once a second."""

FILES = 5000
"""Files of a run that are looked at for news."""

TOKEN = "GRPOSCOPE_TOKEN"
"""Variable of the environment that holds the token to ask for; without it, each server makes one of its own."""

SHORTEST = 16
"""Characters of a token at least."""


class _LivePage:
    """The page of a run, made anew when something asks for it and the run has changed."""

    def __init__(self, path: Path, hints: Hints):
        self.path, self.hints = path, hints
        self._lock = threading.Lock()
        self._html, self._version = b"", ""
        self._made, self._took = -1e9, 0.0

    def current(self) -> tuple[bytes, str]:
        """The page as HTML and its version, which changes when the page does."""
        with self._lock:
            if time.monotonic() - self._made > max(1.0, PATIENCE * self._took):
                began = time.monotonic()
                version = _state(self.path)
                if version != self._version:
                    self._html, self._version = self._render(), version
                self._made, self._took = time.monotonic(), time.monotonic() - began
            return self._html, self._version

    def _render(self) -> bytes:
        try:
            content = runs_page.document([read(self.path, self.hints)])
        except UserError as error:
            content = page.Document(
                (self.path.name,),
                Answer("headline", HEADLINE, sentence="Nothing to show yet.", text=[f"{error}."]),
                (),
            )
        return page.html(content, live=True).encode()


class Server(ThreadingHTTPServer):
    """An HTTP server: the live page at /, its version at /version, and at /metrics what `metrics` makes.

    url: what to open in a browser; metrics_url: what Prometheus scrapes. metrics: from the header Accept to a body and
    its content type; None until there are any.
    """

    daemon_threads = True

    def __init__(self, live: _LivePage, host: str, port: int):
        self.live = live
        self.loopback = _is_loopback(host)
        self.metrics: Callable[[str], tuple[bytes, str]] | None = None
        self.token = "" if self.loopback else _token()
        super().__init__((host, port), _Handler)
        bound = f"[{host}]" if ":" in host else host
        query = f"?token={quote(self.token, safe='')}" if self.token else ""
        self.url = f"http://{bound}:{self.server_port}/{query}"
        self.metrics_url = f"http://{bound}:{self.server_port}/metrics{query}"

    def start(self) -> None:
        """Serve in a thread of its own, until `shutdown`."""
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 30

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if not self._allowed(parse_qs(address.query).get("token", [""])[0]):
            self.send_error(HTTPStatus.FORBIDDEN, "open the address that grposcope watch printed")
        elif address.path == "/":
            self._answer(self.server.live.current()[0], "text/html; charset=utf-8")
        elif address.path == "/version":
            self._answer(self.server.live.current()[1].encode(), "text/plain")
        elif address.path == "/metrics" and self.server.metrics is not None:
            self._metrics(self.server.metrics)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _metrics(self, metrics: Callable[[str], tuple[bytes, str]]) -> None:
        try:
            self._answer(*metrics(self.headers.get("Accept", "")))
        except UserError as error:
            self.send_error(HTTPStatus.NOT_IMPLEMENTED, str(error))

    def _allowed(self, token: str) -> bool:
        if self.server.loopback:
            name = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
            return _is_loopback(name)
        kind, _, bearer = self.headers.get("Authorization", "").partition(" ")
        offered = bearer if kind.lower() == "bearer" else token
        return secrets.compare_digest(offered.encode(), self.server.token.encode())

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        for name, value in {
            "Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
        }.items():  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not printed: the terminal belongs to the run."""


def _token() -> str:
    """The token of the environment, or a new one; UserError for one that could be guessed."""
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(SHORTEST)
    if len(token) < SHORTEST:
        raise UserError(f"{TOKEN} has {len(token)} characters; give at least {SHORTEST}, or unset it to get a new one")
    return token


def _address(text: str) -> tuple[str, int]:
    """Host and port of PORT or HOST:PORT; UserError for what is neither."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UserError(
            f"{text!r} is not an address; give a port such as 8800, or a host and a port such as 127.0.0.1:8800"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def serve(path: Path, hints: Hints, where: str) -> Server:
    """A server of the page of `path`, running; UserError where the address cannot be had."""
    host, port = _address(where)
    try:
        server = Server(_LivePage(path, hints), host, port)
    except OSError as error:
        raise UserError(
            f"cannot serve on {host}:{port}: {error.strerror or error}; choose another port, or 0 for any that is free"
        ) from None
    server.start()
    return server


def _is_loopback(host: str) -> bool:
    """Whether a host is this machine and no other can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _state(path: Path) -> str:
    """Sizes and times of the files of a run, as a word that changes when one of them does."""
    files = sorted(path.rglob("*"))[:FILES] if path.is_dir() else [path]
    marks = []
    for file in files:
        try:
            about = file.stat()
        except OSError:
            continue
        if file.name not in (".lock", "page.html") and file.is_file():
            marks.append((str(file), about.st_size, about.st_mtime_ns))
    return f"{hash(tuple(marks)) & 0xFFFFFFFFFFFFFFFF:016x}"
