"""`grposcope compare`: runs side by side, and the step where they diverge."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import HELP
from grposcope.errors import UserError

if TYPE_CHECKING:
    from grposcope.diagnosis.compare_runs import MetricDifference
    from grposcope.runs.run import Run

EXAMPLES = """\
examples:
  grposcope compare runs/a runs/b                  settings that differ, verdicts, and where each metric diverges
  grposcope compare a.log b.log c.log              the first run is the one that others are compared with
  grposcope compare runs/a b.log --html both.html  also a page, with the curves over each other
"""

LEVEL = 0.05
"""Adjusted p-value below which runs are said to diverge in a metric."""


def add(commands: Any) -> None:
    """Add the command to the subparsers of `grposcope`."""
    command = commands.add_parser(
        "compare",
        help=HELP["compare"],
        description="Compare runs with the first: verdicts, settings, and whether and when each metric diverges.",
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
    """Print where the runs diverge, their verdicts, and the settings that differ."""
    from dataclasses import asdict

    from grposcope.diagnosis import diagnose
    from grposcope.diagnosis.compare_runs import differences
    from grposcope.facts.diagnosis import verdict
    from grposcope.files import dumps
    from grposcope.runs import read
    from grposcope.runs.run import labels

    if len(arguments.paths) < 2:
        raise UserError("compare needs two runs or more; name another one after the first")
    runs = [read(path) for path in arguments.paths]
    verdicts = [str(verdict(one, diagnose(one))) for one in runs]
    measured = [differences(runs[0], other) for other in runs[1:]]
    settings, ends, incomparable = _changed(runs), _ends(runs), _incomparable(runs)
    names = labels(runs)
    if not arguments.json:
        print(_screen(names, verdicts, settings, ends, incomparable, measured))
    document: dict[str, Any] = {
        "runs": [str(path) for path in arguments.paths],
        "verdicts": verdicts,
        "settings": settings,
        "ends": ends,
        "not_compared": incomparable,
        "partings": [
            {"run": str(path), "metrics": [asdict(difference) for difference in of_run]}
            for path, of_run in zip(arguments.paths[1:], measured, strict=True)
        ],
    }
    if arguments.html:
        document["page"] = str(arguments.html)
        size = _page(runs, names, measured, arguments.html)
        if not arguments.json:
            print(f"\npage: {arguments.html} ({size / 1e6:.1f} MB); open it in a browser")
    print(dumps(document))
    return 0


def _ends(runs: Sequence[Run]) -> dict[str, list[float | None]]:
    """Metric -> its mean over the last fifth of each run's own rows; None where a run has none."""
    import numpy as np

    from grposcope.diagnosis.compare_runs import COMPARED

    ends: dict[str, list[float | None]] = {}
    for name in COMPARED:
        if not any(name in run.table for run in runs):
            continue
        means: list[float | None] = []
        for run in runs:
            values = run.table.get(name, np.empty(0))[-max(1, run.steps // 5) :]
            values = values[np.isfinite(values)]
            means.append(float(values.mean()) if len(values) else None)
        ends[name] = means
    return ends


def _incomparable(runs: Sequence[Run]) -> list[str]:
    """Quantities that the runs log under different definitions, which are never compared, a line each."""
    from grposcope.runs.metrics import VARIANTS, variant

    lines = []
    for quantity, variants in VARIANTS.items():
        logged = [{name for name in variants if name in run.table} for run in runs]
        if all(logged) and not set.intersection(*logged):
            nearest = dict.fromkeys(str(variant(quantity, run.table)) for run in runs)
            lines.append(f"{quantity}: {' and '.join(nearest)} are different quantities")
    return lines


def _page(runs: Sequence[Run], names: Sequence[str], measured: Sequence[Sequence[MetricDifference]], path: Path) -> int:
    """Write the page of all runs, with where they diverge on top; its size in bytes."""
    from dataclasses import replace

    from grposcope.commands.report import write_page
    from grposcope.report import page
    from grposcope.report.elements import PageTable, Section

    rows = [
        (name, one.metric, f"{one.difference:+.4g}", f"{one.se:.2g}", _since(one), f"{one.adjusted:.2g}")
        for name, of_run in zip(names[1:], measured, strict=True)
        for one in sorted(of_run, key=lambda one: one.adjusted)
    ]
    header = ("run", "metric", f"minus {names[0]}", "standard error", "diverges", "adjusted p")
    table = PageTable("", header, rows, "Differences over the last fifth of the common steps; p by Holm over metrics.")
    text = [_conclusion(name, names[0], of_run) for name, of_run in zip(names[1:], measured, strict=True)]
    first = Section("parting", "Where the runs diverge", text, tables=[table])
    content = page.document(runs)
    return write_page(replace(content, sections=(first, *content.sections)), path, "--html")


def _conclusion(name: str, other: str, measured: Sequence[MetricDifference]) -> str:
    """Where two runs diverge, in one line."""
    diverging = [one for one in measured if one.adjusted < LEVEL]
    first = min(diverging, key=lambda one: one.step, default=None)
    if first is None:
        return f"{name} against {other}: they diverge in no metric beyond noise"
    return f"{name} against {other}: they diverge at step {first.step:,}, first in {first.metric}"


def _since(one: MetricDifference) -> str:
    return f"from step {one.step:,} [{one.low:,}, {one.high:,}]" if one.adjusted < LEVEL else "within noise"


def _changed(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Settings that are not the same in all runs: name -> the value of each run."""
    settings = [dict(run.config.get("settings", {})) for run in runs]
    names = dict.fromkeys(name for of_run in settings for name in of_run)
    values = {name: [of_run.get(name) for of_run in settings] for name in names}
    return {name: row for name, row in values.items() if any(value != row[0] for value in row)}


def _screen(
    names: Sequence[str],
    verdicts: Sequence[str],
    settings: dict[str, list[Any]],
    ends: dict[str, list[float | None]],
    incomparable: Sequence[str],
    measured: Sequence[Sequence[MetricDifference]],
) -> str:
    """Where the runs diverge, then verdicts, settings, metrics side by side, and each metric's difference."""
    from grposcope.formatting import number, visible

    lines = [_conclusion(name, names[0], of_run) for name, of_run in zip(names[1:], measured, strict=True)]
    lines += ["", *(f"{name}: {verdict}" for name, verdict in zip(names, verdicts, strict=True))]
    if settings:
        lines += ["", "settings that differ:"]
        lines += [f"  {name}: {' · '.join(map(str, values))}" for name, values in settings.items()]
    width = max(max(map(len, names)), 12)
    lines += ["", f"  {'mean of the last fifth':24}" + "".join(f" {name:>{width}}" for name in names)]
    for metric, means in ends.items():
        cells = "".join(f" {'not logged' if mean is None else number(mean):>{width}}" for mean in means)
        lines.append(f"  {metric:24}{cells}")
    lines += [f"  not compared, {line}" for line in incomparable]
    for name, of_run in zip(names[1:], measured, strict=True):
        lines += ["", f"{name} minus {names[0]}, last fifth of the common steps:"]
        for one in of_run:
            error = f" ± {one.se:.2g}" if math.isfinite(one.se) else ""
            since = f"{_since(one)} (adjusted p = {one.adjusted:.2g})"
            lines.append(f"  {one.metric:18} {one.difference:+.4g}{error}  {since}")
    return "\n".join(visible(line, 2000) for line in lines)
