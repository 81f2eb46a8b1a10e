"""`grposcope runs`: all runs below a folder in one table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands.output import add_json, finish, say
from grposcope.errors import UserError

if TYPE_CHECKING:
    from grposcope.facts.overview import RunLine
    from grposcope.runs import Hints

DESCRIPTION = (
    "List the runs in a folder and below it, newest first: verdict, held-out accuracy, course of the reward, settings. "
    "`grposcope report FOLDER` makes a page of the same table, with a page for each run."
)
EXAMPLES = """\
examples:
  grposcope runs                     the runs below runs/
  grposcope runs experiments/logs    logs of any supported trainer
  grposcope runs --sort heldout      best held-out accuracy first
  grposcope runs --json | jq '.runs[] | select(.verdict | startswith("failing")) | .path'
"""

ORDERS = ("began", "heldout", "reward", "steps", "name", "verdict")


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    command.add_argument("folder", nargs="?", type=Path, default=Path("runs"), metavar="FOLDER",
                         help="folder to look in (default: runs)")  # fmt: skip
    command.add_argument("--sort", choices=ORDERS, default="began",
                         help="the newest or the highest first, or the order of names (default: began)")  # fmt: skip
    add_json(command)


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    from grposcope.facts.overview import sentence
    from grposcope.runs import Hints

    lines, problems = overview(arguments.folder, Hints())
    lines = ordered(lines, arguments.sort)
    say(arguments, sentence(lines, len(problems)))
    say(arguments, screen(lines))
    for problem in problems:
        print(f"not read: {problem}", file=sys.stderr)
    finish(arguments, {"folder": str(arguments.folder), "runs": [entry(line) for line in lines], "not_read": problems})
    return 0


def overview(folder: Path, hints: Hints) -> tuple[list[RunLine], list[str]]:
    """The lines of all runs below a folder, newest first, and what could not be read; UserError where there is none."""
    from grposcope.facts import overview
    from grposcope.runs.find import find

    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; name the folder that holds the runs")
    lines, problems = [], []
    for found in find(folder, hints):
        if found.run is None:
            problems.append(found.problem)
        else:
            lines.append(replace(overview.of_run(found.run), path=found.path))
        if sys.stderr.isatty():
            print(f"\r{len(lines)} runs", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    if not lines:
        reason = f"; the first problem: {problems[0]}" if problems else ""
        raise UserError(
            f"{folder} holds no run of a kind that can be read; name the folder of one, or a trainer's log{reason}"
        )
    return overview.named_apart(lines, folder), problems


def ordered(lines: Sequence[RunLine], order: str) -> list[RunLine]:
    """The lines in the order asked for; those without a value come last."""
    worst = {"failing": 0, "warning": 1, "cannot tell": 2, "healthy": 3}
    keys: dict[str, Any] = {
        "began": lambda line: 0,  # as they are
        "heldout": lambda line: -line.heldout.value if line.heldout is not None else 2.0,
        "reward": lambda line: -line.reward.value if line.reward.n else float("inf"),
        "steps": lambda line: -line.steps,
        "name": lambda line: line.name,
        "verdict": lambda line: worst[line.word],
    }
    return sorted(lines, key=keys[order])


def screen(lines: Sequence[RunLine]) -> str:
    """The table for the terminal; settings that no run records have no column."""
    from grposcope.facts.overview import SETTINGS, shown_reward
    from grposcope.formatting import sparkline, table, visible

    settings = [name for name in SETTINGS if any(line.setting(name) for line in lines)]
    header = ("run", "verdict", "held-out", "reward", "course", "steps", "status", *settings)
    rows = [
        (
            visible(line.name, 40),
            line.verdict.conclusion.partition(", since")[0].partition(": ")[2] if line.word == "failing" else line.word,
            line.shown_heldout.partition(" (")[0],
            shown_reward(line),
            sparkline(line.curve, 16),
            f"{line.steps:,}",
            line.status,
            *(visible(line.setting(name), 24) for name in settings),
        )
        for line in lines
    ]
    return table([header, *rows])


def entry(line: RunLine) -> dict[str, Any]:
    """The line as JSON."""
    return {
        "path": str(line.path),
        "name": line.name,
        "engine": line.engine,
        "status": line.status,
        "verdict": str(line.verdict),
        "steps": line.steps,
        "heldout": None if line.heldout is None else vars(line.heldout),
        "reward": vars(line.reward),
        "began": line.began,
        "settings": line.settings,
        "curve": line.curve,
    }
