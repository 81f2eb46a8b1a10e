"""`grposcope compare`: runs side by side, and the step where they diverge."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import logs
from grposcope.commands.output import add_json, finish, say
from grposcope.errors import UserError

if TYPE_CHECKING:
    from grposcope.facts.comparison import RunComparison
    from grposcope.runs.run import Run

DESCRIPTION = "Compare runs with the first: verdicts, settings, and whether and when each metric diverges."
EXAMPLES = """\
examples:
  grposcope compare runs/a runs/b                  settings that differ, verdicts, and where each metric diverges
  grposcope compare a.log b.log c.log              the first run is the one that others are compared with
  grposcope compare runs/a b.log --html both.html  also a page, with the curves over each other
"""


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    command.add_argument("paths", nargs="+", metavar="RUN", help="two or more runs, of any supported trainer")
    logs.add_flags(command, "paths")
    add_json(command)
    command.add_argument("--html", type=Path, metavar="FILE", help="also write a self-contained page about all of them")


def run(arguments: argparse.Namespace) -> int:
    """Print where the runs diverge, their verdicts, and the settings that differ."""
    from dataclasses import asdict

    from grposcope.facts.comparison import compare

    if len(arguments.paths) < 2:
        raise UserError("compare needs two runs or more; name another one after the first")
    runs = [logs.read(path, arguments) for path in arguments.paths]
    comparison = compare(runs)
    say(arguments, _screen(comparison))
    document: dict[str, Any] = {
        "runs": [str(path) for path in arguments.paths],
        "verdicts": comparison.verdicts,
        "settings": comparison.settings,
        "ends": comparison.ends,
        "not_compared": comparison.not_compared,
        "partings": [
            {"run": str(path), "metrics": [asdict(difference) for difference in divergence.metrics]}
            for path, divergence in zip(arguments.paths[1:], comparison.divergences, strict=True)
        ],
    }
    if arguments.html:
        document["page"] = str(arguments.html)
        size = _page(runs, comparison, arguments.html)
        say(arguments, f"\npage: {arguments.html} ({size / 1e6:.1f} MB); open it in a browser")
    finish(arguments, document)
    return 0


def _page(runs: Sequence[Run], comparison: RunComparison, path: Path) -> int:
    """Write the page of all runs, with where they diverge on top; its size in bytes."""
    from dataclasses import replace

    from grposcope.commands.report import write_page
    from grposcope.facts.comparison import since
    from grposcope.report import page
    from grposcope.report.elements import PageTable, Section

    rows = [
        (divergence.name, one.metric, f"{one.difference:+.4g}", f"{one.se:.2g}", since(one), f"{one.adjusted:.2g}")
        for divergence in comparison.divergences
        for one in sorted(divergence.metrics, key=lambda one: one.adjusted)
    ]
    header = ("run", "metric", f"minus {comparison.names[0]}", "standard error", "diverges", "adjusted p")
    table = PageTable("", header, rows, "Differences over the last fifth of the common steps; p by Holm over metrics.")
    text = [divergence.conclusion for divergence in comparison.divergences]
    first = Section("parting", "Where the runs diverge", text, tables=[table])
    content = page.document(runs)
    return write_page(replace(content, sections=(first, *content.sections)), path, "--html")


def _screen(comparison: RunComparison) -> str:
    """Text of a comparison: where the runs diverge, verdicts, settings, metrics side by side, and differences."""
    from grposcope.facts.comparison import since
    from grposcope.formatting import number, visible

    names = comparison.names
    lines = [divergence.conclusion for divergence in comparison.divergences]
    lines += ["", *(f"{name}: {verdict}" for name, verdict in zip(names, comparison.verdicts, strict=True))]
    if comparison.settings:
        lines += ["", "settings that differ:"]
        lines += [f"  {name}: {' · '.join(map(str, values))}" for name, values in comparison.settings.items()]
    width = max(max(map(len, names)), 12)
    lines += ["", f"  {'mean of the last fifth':24}" + "".join(f" {name:>{width}}" for name in names)]
    for metric, means in comparison.ends.items():
        cells = "".join(f" {'not logged' if mean is None else number(mean):>{width}}" for mean in means)
        lines.append(f"  {metric:24}{cells}")
    lines += [f"  not compared, {line}" for line in comparison.not_compared]
    for divergence in comparison.divergences:
        lines += ["", f"{divergence.name} minus {names[0]}, last fifth of the common steps:"]
        for one in divergence.metrics:
            error = f" ± {one.se:.2g}" if math.isfinite(one.se) else ""
            when = f"{since(one)} (adjusted p = {one.adjusted:.2g})"
            lines.append(f"  {one.metric:18} {one.difference:+.4g}{error}  {when}")
    return "\n".join(visible(line, 2000) for line in lines)
