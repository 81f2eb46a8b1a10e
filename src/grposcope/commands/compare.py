"""`grposcope compare`: runs side by side, and the step where they part."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import HELP
from grposcope.errors import UserError

if TYPE_CHECKING:
    from grposcope.diagnosis.compare_runs import Parting
    from grposcope.runs.run import Run

EXAMPLES = """\
examples:
  grposcope compare runs/a runs/b                  settings that differ, verdicts, and where each metric parts
  grposcope compare a.log b.log c.log              the first run is the one that others are compared with
  grposcope compare runs/a b.log --html both.html  also a page, with the curves over each other
"""

LEVEL = 0.05
"""Adjusted p-value below which a metric is said to part."""


def add(commands: Any) -> None:
    """Add the command to the subparsers of `grposcope`."""
    command = commands.add_parser(
        "compare",
        help=HELP["compare"],
        description="Compare runs with the first: verdicts, settings, and whether and when each metric parts.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument(
        "paths", nargs="+", type=Path, metavar="RUN", help="two or more runs, of any supported trainer"
    )
    command.add_argument("--json", action="store_true", help="print only the JSON document")
    command.add_argument("--html", type=Path, metavar="FILE", help="also write a self-contained page about all of them")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print verdicts, differing settings and partings."""
    from dataclasses import asdict

    from grposcope.diagnosis import diagnose
    from grposcope.diagnosis.compare_runs import partings
    from grposcope.diagnosis.verdict import sentence
    from grposcope.files import dumps
    from grposcope.runs import read
    from grposcope.runs.run import labels

    if len(arguments.paths) < 2:
        raise UserError("compare needs two runs or more; name another one after the first")
    runs = [read(path) for path in arguments.paths]
    verdicts = [sentence(found, diagnose(found)) for found in runs]
    parted = [partings(runs[0], other) for other in runs[1:]]
    changed, ends, apart = _changed(runs), _ends(runs), _kept_apart(runs)
    names = labels(runs)
    if not arguments.json:
        print(_screen(names, verdicts, changed, ends, apart, parted))
    document: dict[str, Any] = {
        "runs": [str(path) for path in arguments.paths],
        "verdicts": verdicts,
        "settings": changed,
        "ends": ends,
        "not_compared": apart,
        "partings": [
            {"run": str(path), "metrics": [asdict(p) for p in found]}
            for path, found in zip(arguments.paths[1:], parted, strict=True)
        ],
    }
    if arguments.html:
        document["page"] = str(arguments.html)
        size = _page(runs, names, parted, arguments.html)
        if not arguments.json:
            print(f"\npage: {arguments.html} ({size / 1e6:.1f} MB); open it in a browser")
    print(dumps(document))
    return 0


def _ends(runs: Sequence[Run]) -> dict[str, list[float | None]]:
    """Metric -> its mean over the last fifth of each run's own rows; None where a run has none."""
    import numpy as np

    from grposcope.diagnosis.compare_runs import WATCHED

    found: dict[str, list[float | None]] = {}
    for name in dict.fromkeys(name for name in WATCHED if any(name in run.table for run in runs)):
        row: list[float | None] = []
        for run in runs:
            values = run.table.get(name, np.empty(0))[-max(1, run.steps // 5) :]
            values = values[np.isfinite(values)]
            row.append(float(values.mean()) if len(values) else None)
        found[name] = row
    return found


def _kept_apart(runs: Sequence[Run]) -> list[str]:
    """Quantities that the runs log under different definitions, which are never compared, a line each."""
    from grposcope.runs.metrics import VARIANTS, variant

    lines = []
    for quantity, relatives in VARIANTS.items():
        have = [{name for name in relatives if name in run.table} for run in runs]
        if all(have) and not set.intersection(*have):
            nearest = dict.fromkeys(str(variant(quantity, run.table)) for run in runs)
            lines.append(f"{quantity}: {' and '.join(nearest)} are different quantities")
    return lines


def _page(runs: Sequence[Run], names: Sequence[str], parted: Sequence[Sequence[Parting]], path: Path) -> int:
    """The page of all runs, with where they part on top; its size in bytes."""
    from dataclasses import replace

    from grposcope.report import page
    from grposcope.report.elements import PageTable, Section

    rows = [
        (name, p.metric, f"{p.difference:+.4g}", f"{p.se:.2g}", _since(p), f"{p.adjusted:.2g}")
        for name, found in zip(names[1:], parted, strict=True)
        for p in sorted(found, key=lambda p: p.adjusted)
    ]
    header = ("run", "metric", f"minus {names[0]}", "standard error", "parts", "adjusted p")
    table = PageTable("", header, rows, "Differences over the last fifth of the common steps; p by Holm over metrics.")
    said = [_parts(name, names[0], found) for name, found in zip(names[1:], parted, strict=True)]
    first = Section("parting", "Where they part", said, tables=[table])
    content = page.document(runs)
    try:
        return page.write(replace(content, sections=(first, *content.sections)), path)
    except UserError as error:
        raise UserError(str(error).replace("--out", "--html")) from None


def _parts(name: str, other: str, found: Sequence[Parting]) -> str:
    apart = [p for p in found if p.adjusted < LEVEL]
    first = min(apart, key=lambda p: p.step, default=None)
    said = "no metric parts beyond noise"
    if first is not None:
        said = f"they part at step {first.step:,}, first {first.metric}"
    return f"{name} beside {other}: {said}"


def _since(p: Parting) -> str:
    return f"from step {p.step:,} [{p.low:,}, {p.high:,}]" if p.adjusted < LEVEL else "within noise"


def _changed(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Settings that are not the same in all runs."""
    tables = [dict(found.config.get("settings", {})) for found in runs]
    names = dict.fromkeys(name for table in tables for name in table)
    rows = {name: [table.get(name) for table in tables] for name in names}
    return {name: row for name, row in rows.items() if any(value != row[0] for value in row)}


def _screen(
    names: Sequence[str],
    verdicts: Sequence[str],
    changed: dict[str, list[Any]],
    ends: dict[str, list[float | None]],
    apart: Sequence[str],
    parted: Sequence[Sequence[Parting]],
) -> str:
    """Where they part, then verdicts, settings, metrics side by side, and each metric's difference."""
    from grposcope.formatting import number, visible

    lines = [_parts(name, names[0], found) for name, found in zip(names[1:], parted, strict=True)]
    lines += ["", *(f"{name}: {verdict}" for name, verdict in zip(names, verdicts, strict=True))]
    if changed:
        lines += ["", "settings that differ:"]
        lines += [f"  {name}: {' · '.join(map(str, values))}" for name, values in changed.items()]
    width = max(max(map(len, names)), 12)
    lines += ["", f"  {'mean of the last fifth':24}" + "".join(f" {name:>{width}}" for name in names)]
    for metric, values in ends.items():
        cells = "".join(f" {'not logged' if value is None else number(value):>{width}}" for value in values)
        lines.append(f"  {metric:24}{cells}")
    lines += [f"  not compared, {line}" for line in apart]
    for name, found in zip(names[1:], parted, strict=True):
        lines += ["", f"{name} minus {names[0]}, last fifth of the common steps:"]
        for p in found:
            error = f" ± {p.se:.2g}" if math.isfinite(p.se) else ""
            lines.append(f"  {p.metric:18} {p.difference:+.4g}{error}  {_since(p)} (adjusted p = {p.adjusted:.2g})")
    return "\n".join(visible(line, 2000) for line in lines)
