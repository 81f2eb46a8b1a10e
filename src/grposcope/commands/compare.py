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
    from grposcope.diagnosis.apart import Parting
    from grposcope.runs.table import Run

EXAMPLES = """\
examples:
  grposcope compare runs/a runs/b                  settings that differ, verdicts, and where each metric parts
  grposcope compare a.log b.log c.log              the first run is the one that others are compared with
"""


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
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print verdicts, differing settings and partings."""
    from dataclasses import asdict

    from grposcope.diagnosis import diagnose
    from grposcope.diagnosis.apart import partings
    from grposcope.diagnosis.verdict import sentence
    from grposcope.runs import read
    from grposcope.runs.store import dumps

    if len(arguments.paths) < 2:
        raise UserError("compare needs two runs or more; name another one after the first")
    runs = [read(path) for path in arguments.paths]
    verdicts = [sentence(found, diagnose(found)) for found in runs]
    parted = [partings(runs[0], other) for other in runs[1:]]
    changed = _changed(runs)
    if not arguments.json:
        print(_screen(arguments.paths, verdicts, changed, parted))
    document = {
        "runs": [str(path) for path in arguments.paths],
        "verdicts": verdicts,
        "settings": changed,
        "partings": [
            {"run": str(path), "metrics": [asdict(p) for p in found]}
            for path, found in zip(arguments.paths[1:], parted, strict=True)
        ],
    }
    print(dumps(document))
    return 0


def _changed(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Settings that are not the same in all runs."""
    tables = [dict(found.config.get("settings", {})) for found in runs]
    names = dict.fromkeys(name for table in tables for name in table)
    rows = {name: [table.get(name) for table in tables] for name in names}
    return {name: row for name, row in rows.items() if any(value != row[0] for value in row)}


def _screen(
    paths: Sequence[Path],
    verdicts: Sequence[str],
    changed: dict[str, list[Any]],
    parted: Sequence[Sequence[Parting]],
) -> str:
    lines = []
    for path, found in zip(paths[1:], parted, strict=True):
        apart = [p for p in found if p.adjusted < 0.05]
        first = min(apart, key=lambda p: p.step, default=None)
        said = (
            "no metric parts beyond noise"
            if first is None
            else f"they part at step {first.step:,}, first {first.metric}"
        )
        lines.append(f"{path.name} beside {paths[0].name}: {said}")
    lines.append("")
    lines += [f"{path.name}: {verdict}" for path, verdict in zip(paths, verdicts, strict=True)]
    if changed:
        lines += ["", "settings that differ:"]
        lines += [f"  {name}: {' · '.join(map(str, values))}" for name, values in changed.items()]
    for path, found in zip(paths[1:], parted, strict=True):
        lines += ["", f"{path.name} minus {paths[0].name}, last fifth of the common steps:"]
        for p in found:
            since = f"from step {p.step:,} [{p.low:,}, {p.high:,}]" if p.adjusted < 0.05 else "within noise"
            error = f" ± {p.se:.2g}" if math.isfinite(p.se) else ""
            lines.append(f"  {p.metric:18} {p.difference:+.4g}{error}  {since} (adjusted p = {p.adjusted:.2g})")
    return "\n".join(lines)
