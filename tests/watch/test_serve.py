"""The live page: it is renewed as the run grows, and nobody else gets it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from grposcope.core.errors import UserError
from grposcope.logs import Hints
from grposcope.watch import serve
from grposcope.watch.serve import Server, _address, _is_loopback, _LivePage


def rows(count: int) -> str:
    return "".join(json.dumps({"step": i + 1, "reward": 0.1 * i, "kl": 0.01}) + "\n" for i in range(count))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text(rows(8))
    return path


@pytest.fixture
def server(log: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(serve, "PATIENCE", 0.0)
    running = serve.serve(log, Hints(), "0")
    yield running
    running.shutdown()


def got(url: str, host: str = "") -> str:
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read().decode()


def test_the_page_is_renewed_as_the_run_grows(log: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    before, version = got(server.url), got(f"{server.url}version")
    assert "connect-src 'self'" in before
    assert got(f"{server.url}version") == version
    log.write_text(rows(50))
    server.live._made = -1e9  # as after a second
    assert got(f"{server.url}version") != version
    assert got(server.url) != before


def test_a_run_that_is_not_there_yet_says_so(tmp_path: Path) -> None:
    html, _ = _LivePage(tmp_path / "later", Hints()).current()
    assert b"Nothing to show yet" in html


def test_other_sites_cannot_reach_it_through_the_browser(server: Server) -> None:
    assert got(server.url, f"localhost:{server.server_port}")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        got(server.url, "evil.example:80")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        got(f"{server.url}../etc/passwd")


def test_another_address_asks_for_its_token(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_is_loopback", lambda host: False)
    running = Server(_LivePage(log, Hints()), "127.0.0.1", 0)
    running.start()
    try:
        plain, _, token = running.url.partition("?token=")
        assert len(token) >= 16
        assert "GRPOscope" in got(running.url)
        for wrong in (plain, f"{plain}?token=", f"{plain}?token=x{token}"):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                got(wrong)
    finally:
        running.shutdown()


def test_addresses() -> None:
    assert _address("8800") == ("127.0.0.1", 8800)
    assert _address("0.0.0.0:80") == ("0.0.0.0", 80)
    assert _address("[::1]:80") == ("::1", 80)
    for text in ("", "localhost", "a:b", "1:99999"):
        with pytest.raises(UserError, match="is not an address"):
            _address(text)
    assert _is_loopback("127.3.2.1")
    assert _is_loopback("::1")
    assert not _is_loopback("0.0.0.0")
    assert not _is_loopback("example.org")


def test_a_port_in_use_is_named(server: Server, log: Path) -> None:
    with pytest.raises(UserError, match=f"cannot serve on 127.0.0.1:{server.server_port}.*choose another port"):
        serve.serve(log, Hints(), str(server.server_port))
