"""Flags of the commands that raise alarms: whom to tell, and of what."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grposcope.core.errors import UserError
from grposcope.core.flag import flag

if TYPE_CHECKING:
    from grposcope.watch.alarms import Wanted
    from grposcope.watch.alerts import Sender
    from grposcope.watch.write_to import Writer


def webhook_flag(what: str, group: str = "") -> Any:
    """The field of a command's settings that is --webhook, which tells of `what`."""
    return flag(
        default=[],
        group=group,
        action="append",
        metavar="URL",
        help=f"POST {what} to this URL: as a message for hooks.slack.com, Discord, slack:URL or discord:URL, as JSON "
        "for any other, with the environment variable GRPOSCOPE_WEBHOOK_TOKEN as a bearer token. May be given more "
        "than once",
    )


def alert_flag(group: str = "") -> Any:
    """The field of a command's settings that is --alert-on."""
    return flag(
        default=[],
        group=group,
        action="append",
        metavar="GRADE|FAULT",
        help="what --webhook reports: this grade or worse, or this fault, and always what --fail-on names "
        "(default: warning); may be given more than once",
    )


def senders(urls: Sequence[str]) -> list[Sender]:
    """A sender for each URL of --webhook; UserError for what is none. A URL that anybody may use is said."""
    from grposcope.watch.webhook import open_to_all, webhook

    hooks = [webhook(url) for url in urls]
    for url in urls:
        if doubt := open_to_all(url):
            print(f"--webhook: {doubt}", file=sys.stderr)
    return hooks


def writers(places: Sequence[str]) -> list[Writer]:
    """A writer for each place of --write-to; UserError for what is none."""
    from grposcope.watch.destinations import destination
    from grposcope.watch.write_to import Writer

    try:
        return [Writer(where) for where in [destination(address) for address in places]]
    except UserError as error:
        raise UserError(f"--write-to {error}") from None


def wanted_by(flag: str, names: Sequence[str], modes: Sequence[str] | None = None) -> Wanted:
    """The modes and the grade that a flag names; UserError for what is neither. modes: as in `alarms.wanted`."""
    from grposcope.watch.alarms import wanted

    try:
        return wanted(names, modes)
    except UserError as error:
        raise UserError(f"{flag} {error}") from None
