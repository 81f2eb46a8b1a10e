"""`grposcope watch`: a running run in the terminal."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from grposcope.commands import HELP

EXAMPLES = """\
examples:
  grposcope watch runs/demo               until the run ends; Ctrl-C leaves, the run goes on
  grposcope watch runs/demo --every 10    look every ten seconds, for a folder synced from elsewhere
  grposcope watch runs/demo --once        one look
"""


def add(commands: Any) -> None:
    """Add the command to the subparsers of `grposcope`."""
    watch = commands.add_parser(
        "watch",
        help=HELP["watch"],
        description="Follow a run while it is written: progress, time left, and the main metrics as sparklines.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = watch.add_argument_group("what")
    what.add_argument("folder", metavar="RUN", help="folder of the run; it need not have begun")
    how = watch.add_argument_group("how")
    how.add_argument("--once", action="store_true", help="print one look and leave")
    how.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="time between looks (default: 1.0)")
    watch.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Look again and again until the run has ended, Ctrl-C, or once."""
    from grposcope.errors import UserError
    from grposcope.report import live
    from grposcope.runs.store import dumps

    if not arguments.every > 0:
        raise UserError(f"--every {arguments.every:g} must be above 0")
    watched = live.Watched(Path(arguments.folder))
    terminal, shown = sys.stdout.isatty(), ""
    try:
        while True:
            now = time.time()
            watched.look(now)
            frame = live.frame(watched, now, shutil.get_terminal_size((100, 24)).columns)
            if terminal and not arguments.once:
                print(f"\x1b[H\x1b[J{frame}", flush=True)
            elif (changed := frame.partition("\nlast written")[0]) != shown:
                print(frame, flush=True)
                shown = changed
            if arguments.once or watched.ended:
                break
            time.sleep(arguments.every)
    except KeyboardInterrupt:
        pass
    print(dumps(live.summary(watched, time.time())))
    return 0
