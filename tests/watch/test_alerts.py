"""Alerts: in the words of each receiver, delivered in the background, harmless where they do not arrive."""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from grposcope.commands import watch_flags
from grposcope.core.errors import UserError
from grposcope.watch import alerts, webhook
from grposcope.watch.alerts import Alert, Sender
from grposcope.watch.receivers import tensorboard

HOSTILE = Alert(
    "runs/<!channel>", "failing: length", "it grew & grew <https://example.org|here> @everyone", "failing", "length", 7,
    {"text": "as one line"},
)  # fmt: skip


def test_a_receiver_that_hangs_holds_nothing_up() -> None:
    """What does not fit the queue is dropped and said; waiting for the rest ends, for all receivers together."""
    answered = threading.Event()
    hanging = [Sender(name, lambda _: answered.wait(30)) for name in ("one", "two")]
    began = time.monotonic()
    for _ in range(alerts.WAITING + 2):
        for sender in hanging:
            sender.send(HOSTILE)
    assert "one: 100 alerts are already waiting; one was dropped" in alerts.failures(hanging)
    said = alerts.wait(hanging, 0.05)
    assert said == [f"{name}: no answer in time; the alert may be lost" for name in ("one", "two")]
    assert alerts.failures(hanging) == []  # each line once
    assert time.monotonic() - began < 5
    answered.set()


def test_a_receiver_that_fails_gets_the_next_alert_all_the_same() -> None:
    got: list[str] = []

    def receive(alert: Alert) -> None:
        got.append(alert.fault)
        raise KeyError("nobody")

    sender = Sender("wandb", receive)
    sender.send(HOSTILE)
    sender.send(HOSTILE)
    assert alerts.wait([sender]) == ["wandb: 'nobody'"] * 2
    assert got == ["length", "length"]


@pytest.mark.parametrize(
    ("place", "keys"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", {"text"}),
        ("slack:http://127.0.0.1:1/hooks/x", {"text"}),
        ("https://discord.com/api/webhooks/1/x", {"content", "allowed_mentions"}),
        ("https://canary.discord.com/api/webhooks/1/x", {"content", "allowed_mentions"}),
        ("discord:https://example.org/x", {"content", "allowed_mentions"}),
        ("https://example.org/hooks.slack.com", {"text"}),  # JSON for programs, as are the others
        ("https://nothooks.slack.com.example.org/", {"text"}),
    ],
)
def test_the_place_decides_on_the_words(place: str, keys: set[str]) -> None:
    message, url = webhook.read_place(place)
    assert url.startswith("http")
    said = message(HOSTILE)
    assert set(said) == keys
    programs = "example.org" in url and not place.startswith("discord:")
    assert (said == HOSTILE.document) == programs


def test_nobody_is_mentioned_by_what_a_run_is_called() -> None:
    text = webhook._slack(HOSTILE)["text"]
    assert text.startswith("*failing: length*\nruns/&lt;!channel&gt;: it grew &amp; grew &lt;https")
    assert "<" not in text
    assert webhook._discord(HOSTILE)["allowed_mentions"] == {"parse": []}
    long = Alert("r", "t", "x" * 5000, "note")
    assert len(webhook._discord(long)["content"]) <= 2000
    assert len(webhook._slack(long)["text"]) <= 2000


@pytest.mark.parametrize("place", ["slack:", "slack:ftp://a/b", "discord:x", "file:///etc/passwd", "teams:https://a/b"])
def test_what_is_no_url_is_refused(place: str) -> None:
    with pytest.raises(UserError, match="is not an http or https URL"):
        webhook.webhook(place)


def test_tensorboard_shows_when_and_how_bad() -> None:
    calls: list[Any] = []
    writer = SimpleNamespace(
        add_text=lambda *a: calls.append(a), add_scalar=lambda *a: calls.append(a), flush=lambda: calls.append("flush")
    )
    tensorboard._alert_of(writer, Alert("r", "warning: kl blow-up", "it rose", "warning", "kl blow-up", 9))
    tag = "grposcope/alarm/kl_blow-up"
    assert calls == [(tag, "warning: kl blow-up: it rose", 9), (tag, 2.0, 9), "flush"]


@pytest.mark.parametrize(
    ("place", "doubt"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", ""),
        ("slack:https://chat.example.org/hooks/x", ""),
        ("https://example.org/hook", "cannot verify who posts"),
        ("https://example.org/hook/0123456789abcdefXYZ", ""),
        ("https://example.org/hook?key=0123456789abcdefXYZ", ""),
        ("https://me:secret@example.org/hook", ""),
        ("http://example.org/hook/0123456789abcdefXYZ", "over http can be read and changed on the way; use https"),
        ("http://127.0.0.1:9000/hook", ""),
        ("http://localhost/hook", ""),
    ],
)
def test_a_webhook_without_authentication_is_said(
    place: str, doubt: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.delenv(webhook.TOKEN, raising=False)
    assert doubt in webhook.open_to_all(place)
    assert bool(webhook.open_to_all(place)) == bool(doubt)
    watch_flags.senders([place])
    said = capsys.readouterr().err
    assert said.count("\n") == bool(doubt)
    monkeypatch.setenv(webhook.TOKEN, "abc")
    assert webhook.open_to_all(place) == "" or "over http" in doubt


def test_who_posts_is_said_to_programs_and_not_to_chats(monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[Any] = []

    class Opener:
        def open(self, request: Any, timeout: float) -> Any:
            posted.append((request.full_url, request.get_header("Authorization")))
            return contextlib.nullcontext()

    monkeypatch.setattr(webhook, "_opener", Opener)
    monkeypatch.setenv(webhook.TOKEN, "abc")
    for place in ("https://example.org/x", "https://me:p%40ss@example.org/x", "https://hooks.slack.com/services/x"):
        sender = webhook.webhook(place)
        sender.send(HOSTILE)
        assert alerts.wait([sender]) == []
    assert posted == [
        ("https://example.org/x", "Bearer abc"),
        ("https://example.org/x", "Basic " + base64.b64encode(b"me:p@ss").decode()),
        ("https://hooks.slack.com/services/x", None),
    ]
    with pytest.raises(UserError, match=r"a password for example\.org would go over http"):
        webhook.webhook("http://me:secret@example.org/x")
