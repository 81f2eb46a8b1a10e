"""Flags of the commands that raise alarms: whom to tell, and of what."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grposcope.core.errors import UserError

if TYPE_CHECKING:
    from grposcope.watch.alarms import Wanted
    from grposcope.watch.alerts import Sender


def add_webhook(group: argparse._ActionsContainer, what: str) -> None:
    """Declare --webhook, which tells of `what`, and --alert-on."""
    group.add_argument(
        "--webhook",
        action="append",
        default=[],
        metavar="URL",
        help=f"POST {what} to this URL: a message to hooks.slack.com or Discord, or where slack:URL or discord:URL is "
        "written; JSON to any other. May be given more than once",
    )
    group.add_argument(
        "--alert-on",
        action="append",
        default=[],
        metavar="GRADE|MODE",
        help="what --webhook tells of: this grade or worse, or this mode, and always what --fail-on names "
        "(default: warning); may be given more than once",
    )


def senders(urls: Sequence[str]) -> list[Sender]:
    """A sender for each URL of --webhook; UserError for what is none."""
    from grposcope.watch.webhook import webhook

    return [webhook(url) for url in urls]


def wanted_by(flag: str, given: Sequence[str]) -> Wanted:
    """The modes and the grade that a flag names; UserError for what is neither."""
    from grposcope.watch.alarms import wanted

    try:
        return wanted(given)
    except UserError as error:
        raise UserError(f"{flag} {error}") from None
