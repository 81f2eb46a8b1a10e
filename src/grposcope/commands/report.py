"""`grposcope report`: one page about one or several runs, and the figures on it as files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import log_flags as logs
from grposcope.commands.log_flags import LogFlags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag, flags_of

if TYPE_CHECKING:
    from grposcope.core.answer import Figure
    from grposcope.render.page import Document

DESCRIPTION = "Write a self-contained HTML page about one or several runs, finished or in progress."
EXAMPLES = """\
examples:
  grposcope report runs/demo                              writes runs/demo/page.html
  grposcope report runs/a runs/b --out compared.html      two runs on one page, curves overlaid
  grposcope report train.log                              another trainer's log; writes train.log.html
  grposcope report runs                                   a table of all runs in the folder, and a page for each
  grposcope report runs/demo --json                       the numbers of every section, no page
  grposcope report runs/demo --figures pictures --format svg
"""


_what = partial(flag, group="what")
_out = partial(flag, group="output")


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope report`."""

    runs: list[str] = _what(
        names=(),
        nargs="+",
        metavar="RUN",
        help="folder or log of a run of any supported trainer; a folder of runs; or an evaluation",
    )
    out: str | None = _out(
        metavar="FILE",
        help="where to write the page (default: page.html in the folder of the first run, or LOG.html beside a log)",
    )
    json: bool = json_flag(group="output", help="print only the numbers of every section, as JSON, and write no page")
    figures: str | None = _out(metavar="FOLDER", help="also write every figure as a file into this folder")
    log: LogFlags = flags_of(LogFlags, log_paths="runs")
    format: str = _out(default="png", choices=("png", "svg"), help="format of those files (default: png)")


def run(arguments: argparse.Namespace) -> int:
    """Read the runs, write what was asked for, and say where it is."""
    from grposcope import runs_page

    if len(arguments.runs) == 1 and (evaluated := _evaluation(Path(arguments.runs[0]))) is not None:
        return _write(evaluated, arguments)
    if len(arguments.runs) == 1 and (several := _several(Path(arguments.runs[0]))):
        return _overview(several, arguments)
    runs = [logs.read(path, arguments) for path in arguments.runs]
    return _write(runs_page.document(runs), arguments, [str(run.meta.source) for run in runs])


def _write(content: Document, arguments: argparse.Namespace, sources: Sequence[str] = ()) -> int:
    """Write the page or what else was asked for, and say where it is. sources: of the runs, by default as named."""
    from grposcope.core.text import visible

    said: dict[str, Any] = {"runs": list(sources) or arguments.runs, "headline": content.top.sentence}
    say(arguments, visible(content.top.sentence, 1000))
    for text in content.top.paragraphs[1:]:
        say(arguments, visible(text, 1000))
    if arguments.figures:
        written = write_figures(content.figures, arguments)
        said["figures"] = [str(path) for path in written]
        say(arguments, f"{len(written)} figures in {arguments.figures}")
    if arguments.json:
        said["sections"] = content.numbers
    else:
        path = Path(arguments.out) if arguments.out else _default_page(logs.numbered(arguments.runs[0])[0])
        size = write_page(content, path, "--out")
        said |= {"page": str(path), "bytes": size}
        say(arguments, f"page: {path} ({size / 1e6:.1f} MB); open it in a browser")
    finish(arguments, said)
    return 0


def _evaluation(folder: Path) -> Document | None:
    """The page of what `grposcope evaluate` wrote; None for any other folder."""
    from grposcope.instruments import has

    if has("evaluation"):
        from grposcope.instruments.evaluation import answer
        from grposcope.instruments.evaluation import record as evaluation

        if evaluation.recognises(folder):
            return answer.document(evaluation.read(folder))
    return None


def _several(folder: Path) -> Path | None:
    """The folder, if it holds runs without being one."""
    from grposcope.logs.sources import is_run_folder

    return folder if folder.is_dir() and not is_run_folder(folder) else None


def _overview(folder: Path, arguments: argparse.Namespace) -> int:
    """Write the page of all runs below a folder, and one for each of them; of a single run, its page alone."""
    import os
    from urllib.parse import quote

    from grposcope import runs_page
    from grposcope.instruments import unavailable

    if reason := unavailable("overview"):
        raise UserError(reason)
    from grposcope.instruments.runs import command_runs, table

    if arguments.figures:
        raise UserError(f"--figures needs one run, and {folder} holds several; name one of them")
    lines, problems, left_out = command_runs.overview(folder, logs.hints(arguments))
    out = Path(arguments.out) if arguments.out else folder / "runs.html"
    if len(lines) == 1:
        arguments.runs = [str(lines[0].path)]
        return run(arguments)
    answer = table.of_lines(lines, folder, problems)
    said: dict[str, Any] = {"headline": answer.sentence, "runs": answer.document["runs"]}
    say(arguments, said["headline"])
    if not arguments.json:
        pages = {}
        for line in lines:
            page = _default_page(line.path)
            write_page(runs_page.document([logs.read(line.path, arguments)]), page, "--out")
            pages[line.path] = quote(Path(os.path.relpath(page, out.parent)).as_posix())
        size = write_page(table.page(answer, lines, folder, pages), out, "--out")
        said |= {"page": str(out), "bytes": size, "pages": len(pages)}
        say(arguments, f"page: {out} ({size / 1e6:.1f} MB), with links to {len(pages)} more; open it in a browser")
    for problem in problems:
        print(f"not read: {problem}", file=sys.stderr)
    if left_out:
        print(command_runs.not_listed(left_out), file=sys.stderr)
    finish(arguments, said)
    return 0


def write_page(content: Document, path: Path, flag: str) -> int:
    """Write a page; returns its size in bytes. UserError, naming the flag that chose `path`, where it cannot."""
    from grposcope.render import page

    try:
        return page.write(content, path)
    except UserError as error:
        raise UserError(f"{error}; choose another {flag}") from None


def write_figures(figures: Sequence[Figure], arguments: argparse.Namespace, kind: str = "") -> list[Path]:
    """Write figures as `kind` (else as --format says) into the folder of --figures; UserError where that fails."""
    from grposcope.render import charts as base

    try:
        return base.export(figures, Path(arguments.figures), kind or arguments.format)
    except UserError as error:
        raise UserError(f"{error}; choose another --figures") from None


def _default_page(run: Path) -> Path:
    """Path of the page of a run: page.html in its folder, or next to its log; here for one that has an address."""
    from grposcope.logs import remote

    if (remote_run := remote.address(run)) is not None:
        return Path(f"{remote_run[1].rpartition('/')[2]}.html")
    if str(run) == logs.STANDARD_INPUT:
        return Path("page.html")
    return run / "page.html" if run.is_dir() else run.with_name(f"{run.name}.html")
