"""Post alerts to a URL: as JSON for programs, or as the messages that Slack and Discord take.

The host of the URL says which. Other hosts that take Slack's messages (Mattermost, a proxy) are written slack:URL.

URLs of chats are secrets themselves. A program of one's own can tell our messages from anybody's by a name and password
in the URL (https://NAME:PASSWORD@HOST/…), or by a bearer token in the variable TOKEN of the environment.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from grposcope.core.errors import UserError
from grposcope.watch.alerts import Alert, Sender

TIMEOUT = 5.0
"""Seconds that the server has to answer one attempt."""

ATTEMPTS = 2
"""Attempts to deliver one alert."""

PAUSE = 1.0
"""Seconds between two attempts."""

LONGEST = 1900
"""Characters of a message in a chat; Discord takes 2,000."""

TOKEN = "GRPOSCOPE_WEBHOOK_TOKEN"
"""Variable of the environment with the bearer token for programs; chats are not sent it."""

_SECRET = re.compile(r"[A-Za-z0-9_-]{16,}")

Message = Callable[[Alert], Mapping[str, Any]]
"""Makes the JSON document to post of an alert."""


def webhook(place: str) -> Sender:
    """A sender to this URL, or slack:URL, or discord:URL; UserError for what is no URL of http or https."""
    message, url = read_place(place)
    return Sender("webhook", partial(_post, url, message))


def read_place(address: str) -> tuple[Message, str]:
    """How a message to this URL, slack:URL or discord:URL is written, and the URL; UserError where it is none."""
    kind, _, rest = address.partition(":")
    if kind in MESSAGES:
        return MESSAGES[kind], _checked(rest)
    host = urlsplit(_checked(address)).hostname or ""
    for name, domains in HOSTS.items():
        if host in domains or host.endswith(tuple(f".{domain}" for domain in domains)):
            return MESSAGES[name], address
    return _document, address


def open_to_all(address: str) -> str:
    """Why others may read or fake what is posted to this place, and the remedy, in a line; empty if they cannot."""
    message, url = read_place(address)
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_local(host):
        return ""
    if parts.scheme == "http":
        return f"posts to {host} over http can be read and changed on the way; use https"
    secret = message is not _document or _authorization(url) or _SECRET.search(f"{parts.path}?{parts.query}")
    return "" if secret else f"{host} cannot verify who posts, because the URL holds no secret; set {TOKEN}"


def _authorization(url: str) -> str:
    """What the header Authorization says: name and password of the URL, or else the token; empty without either."""
    parts = urlsplit(url)
    if parts.username or parts.password:
        both = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        return "Basic " + base64.b64encode(both.encode()).decode()
    token = os.environ.get(TOKEN, "").strip()
    return f"Bearer {token}" if token else ""


def _is_local(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _document(alert: Alert) -> Mapping[str, Any]:
    return alert.document


def _slack(alert: Alert) -> Mapping[str, Any]:
    """A message of Slack's incoming webhooks; what is in the alert cannot mention anybody or make a link."""
    title, text = (_slack_text(text) for text in (alert.title, f"{alert.run}: {alert.text}"))
    return {"text": f"*{title}*\n{text}"}


def _discord(alert: Alert) -> Mapping[str, Any]:
    """A message of Discord's webhooks; what is in the alert cannot mention anybody."""
    return {"content": f"**{alert.title}**\n{alert.run}: {alert.text}"[:LONGEST], "allowed_mentions": {"parse": []}}


MESSAGES: dict[str, Message] = {"slack": _slack, "discord": _discord}
"""Name of a chat -> how its messages are written."""

HOSTS = {"slack": ("hooks.slack.com", "hooks.slack-gov.com"), "discord": ("discord.com", "discordapp.com")}
"""Name of a chat -> the hosts of its webhooks."""


def _slack_text(text: str) -> str:
    return text[:LONGEST].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _post(url: str, message: Message, alert: Alert) -> None:
    """Post an alert; an exception with the reason if no attempt succeeds."""
    data, reason = json.dumps(message(alert)).encode(), ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE)
        try:
            headers = {"Content-Type": "application/json", "User-Agent": "grposcope"}
            if message is _document and (authorization := _authorization(url)):
                headers["Authorization"] = authorization
            request = urllib.request.Request(_without_password(url), data, headers)
            with _opener().open(request, timeout=TIMEOUT):
                return
        except urllib.error.HTTPError as error:
            reason = f"answered {error.code}"
            error.close()
        except Exception as error:
            reason = str(getattr(error, "reason", "") or error or type(error).__name__)
    raise ConnectionError(f"{reason}; given up after {ATTEMPTS} attempts")


def _checked(url: str) -> str:
    """Return the URL; UserError for one that is not http or https with a host."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if valid and parts.scheme == "http" and parts.password and not _is_local(parts.hostname or ""):
        raise UserError(f"a password for {parts.hostname} would go over http, where others can read it; use https")
    if not valid or any(letter.isspace() or not letter.isprintable() for letter in url):
        raise UserError(f"webhook {url!r} is not an http or https URL; write it like https://example.org/hook")
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
