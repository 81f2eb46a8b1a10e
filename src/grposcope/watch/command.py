"""`grposcope watch`: a run in progress in the terminal, whichever trainer writes it."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from typing import TYPE_CHECKING

from grposcope.commands import log_flags as logs
from grposcope.commands.output import add_json, finish, say
from grposcope.commands.watch_flags import add_webhook, senders, wanted_by
from grposcope.core.errors import UserError

if TYPE_CHECKING:
    from grposcope.watch.follow import Watcher

DESCRIPTION = (
    "Follow a run while it is written: progress, the main metrics as sparklines, and what is wrong "
    "with it, each failure reported once when it begins. Exit status: 0 when the run has ended or on Ctrl-C, 1 as "
    "soon as something that --fail-on names is flagged, 2 where nothing can be followed."
)
EXAMPLES = """\
examples:
  grposcope watch runs/demo                        until the run ends; Ctrl-C leaves, the run goes on
  grposcope watch outputs                          output folder of TRL, with or without the callback
  grposcope watch train.log --set group=8          console output of verl, OpenRLHF or TRL; JSONL, CSV, W&B folders
  grposcope watch runs/demo --every 10             look every ten seconds, for a folder synced from elsewhere
  grposcope watch runs/demo --once                 one look
  grposcope watch RUN --fail-on failing            leave with exit status 1 when learning stops or reverses
  grposcope watch RUN --webhook https://hooks.slack.com/services/…       tell Slack; other URLs get JSON
  grposcope watch RUN --serve                        the page in a browser, renewed as the run grows
"""


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    from grposcope.instruments.diagnosis.rules import RULES

    what = command.add_argument_group("what")
    what.add_argument(
        "path", metavar="RUN", help="folder or log of a run, of any supported trainer; it need not exist yet"
    )
    logs.add_flags(command, "path")
    how = command.add_argument_group("how")
    how.add_argument("--once", action="store_true", help="print one look and leave")
    how.add_argument("--serve", nargs="?", const="8800", metavar="PORT",
                     help="also serve the page of the run to browsers on this machine, renewed as the run grows; "
                          "HOST:PORT for another address, with a token (default: 8800)")  # fmt: skip
    add_json(how)
    how.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="time between looks (default: 1.0)")
    alarm = command.add_argument_group("alarms")
    alarm.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="GRADE|MODE",
        help="leave with exit status 1 when a mode of this grade or worse (failing, warning, note) is first flagged, "
        "except `no learning` and `zero loss`, which any run shows at first, or when this mode is; may be given more "
        "than once. Modes: " + ", ".join(RULES),
    )
    add_webhook(alarm, "each new flag")


def run(arguments: argparse.Namespace) -> int:
    """Look again and again until the run has ended, something of --fail-on is flagged, Ctrl-C, or once."""
    from grposcope.core.text import visible
    from grposcope.logs.hints import LAST
    from grposcope.watch import alerts
    from grposcope.watch.follow import Watcher
    from grposcope.watch.wording import alarm_alert

    if not arguments.every > 0:
        raise UserError(f"--every {arguments.every:g} must be above 0")
    fatal, told = wanted_by("--fail-on", arguments.fail_on), wanted_by("--alert-on", arguments.alert_on or ["warning"])
    hooks = senders(arguments.webhook)
    place, number = logs.numbered(arguments.path)
    hints = logs.hints(arguments, number or LAST)
    server = None
    if arguments.serve:
        from grposcope.watch.serve import serve

        server = serve(place, hints, arguments.serve)
        print(f"page: {server.url}", file=sys.stderr)
    watcher = Watcher(place, hints, minor=fatal.modes | told.modes)
    shown, failed = "", False
    try:
        while True:
            now = time.time()
            new = watcher.look(now)
            if arguments.once and watcher.problem and place.exists():
                raise UserError(logs.asked(watcher.question, watcher.problem, place))
            shown = _show(watcher, now, shown, arguments)
            ending = [alarm for alarm in new if fatal.covers(alarm.mode, alarm.grade)]
            for alarm in new:
                if alarm in ending or told.covers(alarm.mode, alarm.grade):
                    for hook in hooks:
                        hook.send(alarm_alert(alarm, str(place)))
            failed = bool(ending)
            if arguments.once or failed or (watcher.ended and server is None):
                break
            time.sleep(arguments.every)
    except KeyboardInterrupt:
        pass
    if server is not None:
        server.shutdown()
    for line in alerts.wait(hooks):
        print(visible(line), file=sys.stderr)
    finish(arguments, watcher.summary(time.time()))
    return int(failed)


def _show(watcher: Watcher, now: float, shown: str, arguments: argparse.Namespace) -> str:
    """Print the screen: in place on a terminal, elsewhere only if it changed. Returns it without its last line."""
    screen = watcher.screen(now, shutil.get_terminal_size((100, 24)).columns)
    news = screen.partition("\nlast written")[0]
    if sys.stdout.isatty() and not (arguments.once or arguments.json):
        print(f"\x1b[H\x1b[J{screen}", flush=True)
    elif news != shown:
        say(arguments, screen)
        sys.stdout.flush()
    return news
