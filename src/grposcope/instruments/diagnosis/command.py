"""`grposcope diagnose`: what is wrong with a run, in one screen."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from grposcope.commands import log_flags as logs
from grposcope.commands.output import add_json, finish, say
from grposcope.commands.watch_flags import add_webhook, senders, wanted_by
from grposcope.core.answer import HEADLINE
from grposcope.core.errors import UserError
from grposcope.core.settings import SettingsAskedFor

if TYPE_CHECKING:
    from grposcope.core.answer import Answer
    from grposcope.core.run import Run
    from grposcope.instruments.diagnosis import Finding

DESCRIPTION = (
    "Check the log of a run for the known ways in which GRPO fails. The first line is the verdict: "
    "failing, warning, healthy or cannot tell. Exit status: 1 if anything that --fail-on names is flagged, "
    "2 if no run can be read, else 0."
)
EXAMPLES = """\
examples:
  grposcope diagnose runs/20260101-120000-tiny-grpo          a record of grposcope train
  grposcope diagnose out/checkpoint-500/trainer_state.json   TRL; likewise verl, OpenRLHF, W&B, TensorBoard logs
  grposcope diagnose runs/demo -v                            every rule, number and note
  grposcope diagnose train.log --set group=8                 a setting that the log does not state
  grposcope diagnose mine.log --dry-run                      what is read from the log of your own trainer
  grposcope diagnose mine.log --map reward=Reward,step=2     which of its numbers is the reward, and which the step
  grposcope diagnose RUN --config train.py                   and whether the run has the settings that were asked for
  grposcope diagnose RUN --html verdict.html                 one page: the rules, and charts of what is flagged
  grposcope diagnose RUN --fail-on failing                   exit status 1 if learning stops or reverses, for CI
  grposcope diagnose RUN --fail-on "kl blow-up"              or if this mode is flagged, whatever its grade
  grposcope diagnose RUN --reference GOOD1 GOOD2 GOOD3 GOOD4 --fail-on divergence   or if it departs from good runs
"""

DIVERGENCE = "divergence"
"""What --fail-on calls a run that leaves its references."""

MORE = "-v prints {left}every rule, and how to log what is missing; --html FILE draws a page."
"""Last line of the screen."""


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    from grposcope.faults.catalogue import seen_in_logs

    command.add_argument("path", metavar="RUN", help="folder or file of a run, of any supported trainer")
    add_json(command, "print only the JSON document, with statistics, thresholds and sources")
    command.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print every rule, number and note, and how to log what is missing (default: one screen)",
    )
    command.add_argument("--html", type=Path, metavar="FILE", help="also write a self-contained page")
    command.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="GRADE|MODE",
        help="exit with status 1 for this grade or worse (failing: learning stops or reverses; warning: it may, or "
        "most of the effort is wasted; note: anything flagged), or if this mode is flagged; may be given more than "
        "once. Modes: " + ", ".join(seen_in_logs()) + ". With --reference also divergence",
    )
    command.add_argument(
        "--reference",
        nargs="+",
        default=[],
        metavar="GOOD",
        help="four or more good runs with the same settings and other seeds: say whether this run behaves like them, "
        "and which metric left their range first",
    )
    command.add_argument(
        "--clock",
        choices=("step", "tokens", "time"),
        default="step",
        help="what to align the runs by: steps, tokens, or seconds since the first row (default: step)",
    )
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings that were asked for, a file as lint reads it: what differs from those of the run is named, "
        "and what the log does not state is taken from it",
    )
    add_webhook(command, "the verdict")
    command.add_argument(
        "--level",
        type=float,
        default=0.05,
        metavar="X",
        help="chance of any flag on a run without failures (default: 0.05)",
    )
    logs.add_flags(command, "path")


def run(arguments: argparse.Namespace) -> int:
    """Print the verdict; exit status 1 for what --fail-on names."""
    from grposcope.faults import judge_texts
    from grposcope.faults.judge import diagnose
    from grposcope.instruments.diagnosis import answer, screen
    from grposcope.instruments.diagnosis.verdict import verdict
    from grposcope.render import document, terminal, wrapping
    from grposcope.watch import alerts
    from grposcope.watch.alerts import Alert
    from grposcope.watch.wording import exceeds, verdict_alert

    hooks = senders(arguments.webhook)
    if not 0 < arguments.level < 1:
        raise UserError(
            f"--level {arguments.level:g} is not a probability; give a number between 0 and 1, such as 0.05"
        )
    grades = [name for name in arguments.fail_on if name != DIVERGENCE]
    fatal, told = wanted_by("--fail-on", grades), wanted_by("--alert-on", arguments.alert_on or ["warning"])
    if len(grades) < len(arguments.fail_on) and not arguments.reference:
        raise UserError("--fail-on divergence needs runs that went well; give them with --reference")
    read_run = _run(arguments)
    compared = _compared(read_run, arguments)
    findings = judge_texts.with_texts(read_run, diagnose(read_run, arguments.level))
    judged, found = verdict(read_run, findings), answer.of_run(read_run, findings, arguments.level)
    said = document.of_answer(found)
    if arguments.verbose:
        shown = terminal.text(replace(found, text=(*found.text, *answer.about(read_run))), wrapping.width(), True)
    else:
        shown = screen.text(read_run, judged, findings, found, MORE, wrapping.width())
    say(arguments, shown, lambda text: wrapping.coloured(text, found.word) if wrapping.has_colours() else text)
    if compared is not None:
        said["reference"] = compared.document
        say(arguments, "\n" + terminal.text(compared))
    if arguments.html:
        said["page"] = str(arguments.html)
        size = _page(read_run, findings, found, compared, arguments.html)
        say(arguments, f"\npage: {arguments.html} ({size / 1e6:.1f} MB); open it in a browser")
    left = compared is not None and bool(compared.document.get("diverged"))
    divergence = left and DIVERGENCE in arguments.fail_on
    too_bad = exceeds(judged, findings, fatal) or divergence
    if too_bad or exceeds(judged, findings, told):
        for hook in hooks:
            hook.send(verdict_alert(judged, findings, said["source"]))
            if divergence and compared is not None:
                hook.send(Alert(said["source"], compared.sentence, compared.because, "warning", DIVERGENCE,
                                document={"text": f"{said['source']}: {compared.sentence}"}))  # fmt: skip
        for line in alerts.wait(hooks):
            print(line, file=sys.stderr)
    finish(arguments, said)
    return int(too_bad)


def _run(arguments: argparse.Namespace) -> Run:
    """The run, with what the file of --config asks for: settings that its log does not state are taken from there."""
    run = logs.read(arguments.path, arguments)
    if arguments.config is None:
        return run
    from grposcope.instruments import has, needed

    if not has("lint"):
        raise UserError(needed(["lint"]))
    from grposcope.instruments.lint.read import read
    from grposcope.signs.settings.in_force import missing_from

    asked = read(arguments.config)
    if more := missing_from(run, asked):
        run = logs.read(arguments.path, arguments, more)
    return replace(run, asked=SettingsAskedFor(asked, frozenset(more)))


def _compared(run: Run, arguments: argparse.Namespace) -> Answer | None:
    """What is said of the run against the runs of --reference; None without these."""
    if not arguments.reference:
        return None
    from grposcope.instruments import has, needed

    if not has("reference"):
        raise UserError(needed(["reference"]))
    from grposcope.instruments.reference import answer

    references = [logs.read(path, arguments) for path in arguments.reference]
    return answer.of_run(run, references, arguments.clock, arguments.level)


def _page(run: Run, findings: Sequence[Finding], found: Answer, compared: Answer | None, path: Path) -> int:
    """Write the page: the verdict, charts of what is flagged, the rules, and the settings; its size in bytes."""
    from grposcope.commands.report import write_page
    from grposcope.core.run import labels
    from grposcope.instruments import ask, has, instrument
    from grposcope.instruments.diagnosis import answer, figures, verdict_chart
    from grposcope.render import page

    text = (*found.text, *answer.about(run))
    top = replace(found, name="headline", question=HEADLINE, text=text, tables=(), document={})
    chart = verdict_chart.of_run(run, findings)
    top = replace(top, figures=() if chart is None else (chart,))
    rules = replace(
        found, sentence="", because="", do="", text=(), missing=(), figures=figures.of_findings(run, findings)
    )
    others = ask(instrument("settings"), [run]) if has("settings") else ()
    known = [one for one in others if one.name == "settings"]
    sections = (rules, *([] if compared is None else [compared]), *known)
    return write_page(page.Document(tuple(labels([run])), top, sections), path, "--html")
