"""`grposcope report`: one page about one or several runs, and the figures on it as files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import logs
from grposcope.commands.output import add_json, finish, say
from grposcope.errors import UserError

if TYPE_CHECKING:
    from grposcope.report.elements import Figure
    from grposcope.report.page import Document

DESCRIPTION = "Write a self-contained HTML page about runs, finished or in progress."
EXAMPLES = """\
examples:
  grposcope report runs/demo                              writes runs/demo/page.html
  grposcope report runs/a runs/b --out compared.html      two runs on one page, curves overlaid
  grposcope report train.log                              another trainer's log; writes train.log.html
  grposcope report runs                                   a table of all runs in the folder, and a page for each
  grposcope report runs/demo --json                       the numbers of every section, no page
  grposcope report runs/demo --figures pictures --format svg
"""


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    what = command.add_argument_group("what")
    what.add_argument("runs", nargs="+", metavar="RUN",
                      help="folder or log of a run, of any supported trainer; one folder of runs; or one of an "
                           "evaluation")  # fmt: skip
    out = command.add_argument_group("output")
    out.add_argument(
        "--out",
        metavar="FILE",
        help="the page (default: page.html in the folder of the first run, or LOG.html beside a log)",
    )
    add_json(out, "print only the numbers of every section, as JSON, and write no page")
    out.add_argument("--figures", metavar="FOLDER", help="also write every figure as a file into this folder")
    logs.add_flags(command, "runs")
    out.add_argument("--format", choices=("png", "svg"), default="png", help="kind of those files (default: png)")


def run(arguments: argparse.Namespace) -> int:
    """Read the runs, write what was asked for, and say where it is."""
    from grposcope.report import page
    from grposcope.runs import evaluation

    if len(arguments.runs) == 1 and evaluation.recognises(Path(arguments.runs[0])):
        return _write(_evaluation(Path(arguments.runs[0])), arguments)
    if len(arguments.runs) == 1 and (several := _several(Path(arguments.runs[0]))):
        return _overview(several, arguments)
    runs = [logs.read(path, arguments) for path in arguments.runs]
    return _write(page.document(runs), arguments, [str(run.meta.source) for run in runs])


def _write(content: Document, arguments: argparse.Namespace, sources: Sequence[str] = ()) -> int:
    """Write the page or what else was asked for, and say where it is. sources: of the runs, by default as named."""
    from grposcope.formatting import visible

    said: dict[str, Any] = {"runs": list(sources) or arguments.runs, "headline": content.top.title}
    say(arguments, visible(content.top.title, 1000))
    for text in content.top.text:
        say(arguments, visible(text, 1000))
    if arguments.figures:
        written = write_figures(content.figures, arguments)
        said["figures"] = [str(path) for path in written]
        say(arguments, f"{len(written)} figures in {arguments.figures}")
    if arguments.json:
        said["sections"] = content.numbers
    else:
        path = Path(arguments.out) if arguments.out else default_page(logs.numbered(arguments.runs[0])[0])
        size = write_page(content, path, "--out")
        said |= {"page": str(path), "bytes": size}
        say(arguments, f"page: {path} ({size / 1e6:.1f} MB); open it in a browser")
    finish(arguments, said)
    return 0


def _evaluation(folder: Path) -> Document:
    """The page of what `grposcope evaluate` wrote."""
    from grposcope.facts import evaluation as facts
    from grposcope.report import evaluation as page
    from grposcope.runs import evaluation

    record = evaluation.read(folder)
    return page.document(record, facts.of_record(record))


def _several(folder: Path) -> Path | None:
    """The folder, if it holds runs without being one."""
    from grposcope.runs.detect import is_run_folder

    return folder if folder.is_dir() and not is_run_folder(folder) else None


def _overview(folder: Path, arguments: argparse.Namespace) -> int:
    """Write the page of all runs below a folder, and one for each of them; of a single run, its page alone."""
    import os
    from urllib.parse import quote

    from grposcope.commands import runs as command
    from grposcope.facts.overview import sentence
    from grposcope.report import overview, page

    if arguments.figures:
        raise UserError(f"--figures needs one run, and {folder} holds several; name one of them")
    lines, problems = command.overview(folder, logs.hints(arguments))
    out = Path(arguments.out) if arguments.out else folder / "runs.html"
    if len(lines) == 1:
        arguments.runs = [str(lines[0].path)]
        return run(arguments)
    said: dict[str, Any] = {"headline": sentence(lines, len(problems)), "runs": [command.entry(line) for line in lines]}
    say(arguments, said["headline"])
    if not arguments.json:
        pages = {}
        for line in lines:
            place = default_page(line.path)
            write_page(page.document([logs.read(line.path, arguments)]), place, "--out")
            pages[line.path] = quote(Path(os.path.relpath(place, out.parent)).as_posix())
        size = write_page(overview.document(lines, folder, pages, len(problems)), out, "--out")
        said |= {"page": str(out), "bytes": size, "pages": len(pages)}
        say(arguments, f"page: {out} ({size / 1e6:.1f} MB), with links to {len(pages)} more; open it in a browser")
    for problem in problems:
        print(f"not read: {problem}", file=sys.stderr)
    finish(arguments, said)
    return 0


def write_page(content: Document, path: Path, flag: str) -> int:
    """Write a page; returns its size in bytes. UserError, naming the flag that chose `path`, where it cannot."""
    from grposcope.report import page

    try:
        return page.write(content, path)
    except UserError as error:
        raise UserError(f"{error}; choose another {flag}") from None


def write_figures(figures: Sequence[Figure], arguments: argparse.Namespace, kind: str = "") -> list[Path]:
    """Write figures as `kind` (else as --format says) into the folder of --figures; UserError where that fails."""
    from grposcope.report.charts import base

    try:
        return base.export(figures, Path(arguments.figures), kind or arguments.format)
    except UserError as error:
        raise UserError(f"{error}; choose another --figures") from None


def default_page(run: Path) -> Path:
    """Path of the page of a run: page.html in its folder, or next to its log."""
    return run / "page.html" if run.is_dir() else run.with_name(f"{run.name}.html")
