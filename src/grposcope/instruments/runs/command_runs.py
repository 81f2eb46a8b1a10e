"""`grposcope runs`: all runs below a folder in one table."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag
from grposcope.core.metrics import variant
from grposcope.core.outline import outline
from grposcope.core.run import Floats, Run
from grposcope.instruments.diagnosis.verdict import findings_of, verdict
from grposcope.instruments.runs.run_lines import POINTS, SETTINGS, RunLine
from grposcope.signs import levels

if TYPE_CHECKING:
    from grposcope.instruments.runs.run_lines import RunLine
    from grposcope.logs import Hints
    from grposcope.logs.find import FoundLog

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
    answer = table.of_lines(_ordered(lines, arguments.sort), arguments.folder, problems)
    say(arguments, terminal.text(answer))
    for problem in problems:
        print(f"not read: {problem}", file=sys.stderr)
    if left_out:
        print(not_listed(left_out), file=sys.stderr)
    finish(arguments, document.of_answer(answer) | {"left_out": [omission.problem for omission in left_out]})
    return 0


def not_listed(left_out: Sequence[FoundLog]) -> str:
    """How many files are not in the table and why, with one of each kind."""
    open_questions = [omission for omission in left_out if omission.undecided]
    others = [omission for omission in left_out if not omission.undecided]
    parts = []
    if open_questions:
        first = f"grposcope diagnose {open_questions[0].path} says more"
        parts.append(f"{len(open_questions)} with an open question, such as which column is the reward ({first})")
    if others:
        parts.append(f"{len(others)} cannot be read as the log of a run ({others[0].problem})")
    count = len(left_out)
    return f"{count} file{'s' * (count > 1)} not listed: {'; '.join(parts)}."


def overview(folder: Path, hints: Hints) -> tuple[list[RunLine], list[str], list[FoundLog]]:
    """The lines of all runs below a folder, newest first, what could not be read, and files that are no runs.

    UserError where there is no run.
    """
    from grposcope.logs.find import find

    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; name the folder that holds the runs")
    lines, problems = [], []
    left_out: list[FoundLog] = []
    for run in find(folder, hints, left_out):
        if run.run is None:
            problems.append(run.problem)
        else:
            settled = _settled(run.run, run.path, hints)
            lines.append(replace(_line_of_run(settled), path=run.path))
        if sys.stderr.isatty():
            print(f"\r{len(lines)} runs", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    if not lines:
        first = [*problems, *(omission.problem for omission in left_out)]
        reason = f"; the first problem: {first[0]}" if first else ""
        raise UserError(f"{folder} holds no run that can be read; name the folder of a run, or a trainer's log{reason}")
    return _named_apart(lines, folder), problems, left_out


def _line_of_run(run: Run) -> RunLine:
    """The line of a run."""
    name = variant("reward", run.table)
    reward = run.table[name] if name is not None else np.full(run.steps, math.nan)
    seen, paid = levels.of_heldout(run), levels.of_reward(run)
    settings = {key: value for key in SETTINGS if (value := run.setting(key)) is not None}
    return RunLine(
        path=run.meta.source,
        name=run.meta.name,
        engine=run.meta.engine,
        status=run.meta.status,
        verdict=verdict(run, findings_of(run)),
        steps=run.steps,
        heldout=seen.last if seen is not None else None,
        shown_heldout=seen.shown(seen.last) if seen is not None else "none",
        reward=paid.last if paid is not None else outline(reward).last_tenth,
        curve=_small_curve(reward),
        settings=settings,
        began=_began(run),
    )


def _small_curve(values: Floats) -> tuple[float, ...]:
    """Means of a column (n,) over up to POINTS equal parts; parts without a finite value are left out."""
    parts = np.array_split(values, min(POINTS, len(values))) if len(values) else []
    finite = [values[np.isfinite(values)] for values in parts]
    return tuple(float(values.mean()) for values in finite if len(values))


def _began(run: Run) -> str:
    """When a run began: as its record says, else when its log was last written."""
    if started := run.config.get("started"):
        return str(started)
    try:
        return datetime.fromtimestamp(run.meta.source.stat().st_mtime).astimezone().isoformat(timespec="seconds")
    except OSError:
        return ""


def _named_apart(lines: Sequence[RunLine], folder: Path) -> list[RunLine]:
    """The lines with the path below `folder` as their names, newest first; those without a time come last."""
    named = [
        replace(line, name=str(line.path.relative_to(folder)) if line.path.is_relative_to(folder) else str(line.path))
        for line in lines
    ]
    return sorted(named, key=lambda line: (line.began, line.name), reverse=True)


def _ordered(lines: Sequence[RunLine], order: str) -> list[RunLine]:
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


def _settled(run: Run, path: Path, hints: Hints) -> Run:
    """A run with the settings that lie in its folder, as its own page and verdict have it."""
    from grposcope import logs
    from grposcope.commands import log_flags

    config = log_flags.config_beside(argparse.Namespace(config=None), path, True)
    return log_flags.settled(
        run, config, lambda stated: logs.read(path, replace(hints, settings={**stated, **hints.settings}))
    )
