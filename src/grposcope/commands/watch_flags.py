"""Flags of the commands that raise alarms: whom to tell, and of what."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grposcope.core.errors import UserError

if TYPE_CHECKING:
    from grposcope.watch.alarms import Wanted
    from grposcope.watch.alerts import Sender
    from grposcope.watch.write_to import Writer


def add_webhook(group: argparse._ActionsContainer, what: str) -> None:
    """Declare --webhook, which tells of `what`, and --alert-on."""
    group.add_argument(
        "--webhook",
        action="append",
        default=[],
        metavar="URL",
        help=f"POST {what} to this URL: as a message for hooks.slack.com, Discord, slack:URL or discord:URL, as JSON "
        "for any "
        "other, with the environment variable GRPOSCOPE_WEBHOOK_TOKEN as a bearer token. May be given more than once",
    )
    group.add_argument(
        "--alert-on",
        action="append",
        default=[],
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


def add_write_to(group: argparse._ActionsContainer) -> None:
    """Declare --write-to, which names runs of other programs to write into."""
    group.add_argument(
        "--write-to",
        action="append",
        default=[],
        metavar="KIND:RUN",
        help="write the verdict into one of your runs each time it changes, and the alarms that --webhook would "
        "report: "
        "wandb:[ENTITY/]PROJECT/RUN_ID, mlflow:RUN_ID, tensorboard:FOLDER, trackio:PROJECT/RUN; the run must exist. "
        "May be given more than once",
    )


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
