"""`grposcope runs`: all runs below a folder in one table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag

if TYPE_CHECKING:
    from grposcope.core.run import Run
    from grposcope.instruments.runs.run_lines import RunLine
    from grposcope.logs import Hints
    from grposcope.logs.find import UnlistedFile

DESCRIPTION = (
    "List the runs in a folder and below it, newest first: verdict, held-out accuracy, reward, "
    "settings. grposcope report FOLDER makes a page of the same table, with a page for each run."
)
EXAMPLES = """\
examples:
  grposcope runs                     the runs below runs/
  grposcope runs experiments/logs    logs of any supported trainer
  grposcope runs --sort heldout      best held-out accuracy first
  grposcope runs --json | jq '.runs[] | select(.verdict | startswith("failing")) | .path'
"""

ORDERS = ("began", "heldout", "reward", "steps", "name", "verdict")


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope runs`."""

    folder: Path = flag(
        names=(), default=Path("runs"), nargs="?", metavar="FOLDER", help="folder to look in (default: runs)"
    )
    sort: str = flag(
        default="began",
        choices=ORDERS,
        help="sort by start (newest first), by a score (highest first), or by name (default: began)",
    )
    json: bool = json_flag()


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    from grposcope.instruments.runs import table
    from grposcope.logs import Hints
    from grposcope.render import document, terminal

    lines, problems, left_out = overview(arguments.folder, Hints())
    answer = table.of_lines(table.ordered(lines, arguments.sort), arguments.folder, problems)
    say(arguments, terminal.text(answer))
    for problem in problems:
        print(f"not read: {problem}", file=sys.stderr)
    if left_out:
        print(not_listed(left_out), file=sys.stderr)
    finish(arguments, document.of_answer(answer) | {"left_out": [omission.why for omission in left_out]})
    return 0


def not_listed(left_out: Sequence[UnlistedFile]) -> str:
    """How many files are not in the table and why, with one of each kind."""
    open_questions = [omission for omission in left_out if omission.undecided]
    others = [omission for omission in left_out if not omission.undecided]
    parts = []
    if open_questions:
        first = f"grposcope diagnose {open_questions[0].path} says more"
        parts.append(f"{len(open_questions)} with an open question, such as which column is the reward ({first})")
    if others:
        parts.append(f"{len(others)} cannot be read as the log of a run ({others[0].why})")
    count = len(left_out)
    return f"{count} file{'s' * (count > 1)} not listed: {'; '.join(parts)}."


def overview(folder: Path, hints: Hints) -> tuple[list[RunLine], list[str], list[UnlistedFile]]:
    """The lines of all runs below a folder, newest first, what could not be read, and files that are no runs.

    UserError where there is no run.
    """
    from grposcope.instruments.runs import run_lines
    from grposcope.logs.find import find

    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; name the folder that holds the runs")
    lines, problems = [], []
    left_out: list[UnlistedFile] = []
    for run in find(folder, hints, left_out):
        if run.run is None:
            problems.append(run.problem)
        else:
            settled = _settled(run.run, run.path, hints)
            lines.append(replace(run_lines.of_run(settled), path=run.path))
        if sys.stderr.isatty():
            print(f"\r{len(lines)} runs", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    if not lines:
        first = [*problems, *(omission.why for omission in left_out)]
        reason = f"; the first problem: {first[0]}" if first else ""
        raise UserError(f"{folder} holds no run that can be read; name the folder of a run, or a trainer's log{reason}")
    return run_lines.named_apart(lines, folder), problems, left_out


def _settled(run: Run, path: Path, hints: Hints) -> Run:
    """A run with the settings that lie in its folder, as its own page and verdict have it."""
    from grposcope import logs
    from grposcope.commands import log_flags

    config = log_flags.config_beside(argparse.Namespace(config=None), path, True)
    return log_flags.settled(
        run, config, lambda stated: logs.read(path, replace(hints, settings={**stated, **hints.settings}))
    )
