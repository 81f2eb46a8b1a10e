"""`grposcope compare`: runs side by side, by how much they differ, and where they part."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from grposcope.commands import log_flags as logs
from grposcope.commands.log_flags import LogFlags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag, flags_of

if TYPE_CHECKING:
    from grposcope.core.answer import Answer
    from grposcope.core.run import Run

DESCRIPTION = (
    "Compare runs with the first: which settings differ, by how much and since when each metric does, verdicts."
)
EXAMPLES = """\
examples:
  grposcope compare runs/a runs/b                  settings that differ, by how much each metric does, verdicts
  grposcope compare a.log b.log c.log              the first run is the one that others are compared with
  grposcope compare runs/a b.log --html both.html  also a page, with the curves over each other
"""


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope compare`."""

    paths: list[str] = flag(names=(), nargs="+", metavar="RUN", help="two or more runs, of any supported trainer")
    log: LogFlags = flags_of(LogFlags, log_paths="paths")
    json: bool = json_flag()
    html: Path | None = flag(metavar="FILE", help="also write a self-contained page about all of them")


def run(arguments: argparse.Namespace) -> int:
    """Print where the runs diverge, their verdicts, and the settings that differ."""
    from grposcope.instruments.runs.compare import answer
    from grposcope.render import document, terminal

    if len(arguments.paths) < 2:
        raise UserError("compare needs two runs or more; name another one after the first")
    runs = [logs.read(path, arguments) for path in arguments.paths]
    result = answer.of_runs(runs, [str(path) for path in arguments.paths])
    said = document.of_answer(result)
    say(arguments, terminal.text(result))
    if arguments.html:
        said["page"] = str(arguments.html)
        size = _page(runs, result, arguments.html)
        say(arguments, f"\npage: {arguments.html} ({size / 1e6:.1f} MB); open it in a browser")
    finish(arguments, said)
    return 0


def _page(runs: Sequence[Run], result: Answer, path: Path) -> int:
    """Write the page of all runs, with where they diverge on top; its size in bytes."""
    from grposcope import runs_page
    from grposcope.commands.report import write_page

    content = runs_page.document(runs)
    return write_page(replace(content, sections=(result, *content.sections)), path, "--html")
