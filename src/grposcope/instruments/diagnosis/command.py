"""`grposcope diagnose`: what is wrong with a run, in one screen; of several, a screen under the name of each."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from grposcope.commands import log_flags as logs
from grposcope.commands.log_flags import LogFlags
from grposcope.commands.output import finish, json_flag, say
from grposcope.commands.watch_flags import alert_flag, senders, wanted_by, webhook_flag
from grposcope.core.answer import HEADLINE
from grposcope.core.errors import UserError
from grposcope.core.flag import flag, flags_of
from grposcope.core.text import visible
from grposcope.signs.words import Word

if TYPE_CHECKING:
    from grposcope.core.answer import Answer
    from grposcope.core.run import Run
    from grposcope.instruments.diagnosis import Finding
    from grposcope.watch.alarms import Wanted
    from grposcope.watch.alerts import Delivers

DESCRIPTION = (
    "Check the log of a run for the known ways in which GRPO fails. The first line is the verdict: "
    "failing, warning, healthy or cannot tell. Of several runs each is judged under its name, and a last line counts. "
    "Exit status: 1 if anything that --fail-on names is flagged, 2 if a run cannot be read, else 0."
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
  grposcope diagnose runs/*.jsonl                            several runs, each by itself, and how many are failing
  ssh gpu cat train.log | grposcope diagnose -               a log from standard input
  grposcope diagnose RUN --html verdict.html                 one page: the rules, and charts of what is flagged
  grposcope diagnose RUN --fail-on failing                   exit status 1 if learning stops or reverses, for CI
  grposcope diagnose RUN --fail-on "kl blow-up"              or if this mode is flagged, whatever its grade
  grposcope diagnose RUN --reference GOOD1 GOOD2 GOOD3 GOOD4 --fail-on divergence   or if it departs from good runs
"""

DIVERGENCE = "divergence"
"""What --fail-on calls a run that leaves its references."""

CANNOT_TELL = "cannot tell"
"""What --fail-on calls a run of which neither health nor a fault can be told."""

UNREAD = "cannot be read"
"""What the last line of several runs calls one without a verdict."""

MORE = "-v prints {left}every rule, and how to log what is missing; --html FILE draws a page."
"""Last line of the screen."""


def _fail_on() -> str:
    """Help of --fail-on."""
    from grposcope.faults.catalogue import seen_in_runs

    return (
        "exit with status 1 for this grade or worse (failing: learning stops or reverses; warning: it may, or "
        "most of the effort is wasted; note: anything flagged), or if this fault is flagged; may be given more than "
        "once. Also 'cannot tell', for a run that is not decided, and with --reference divergence. Faults: "
        + ", ".join(seen_in_runs())
    )


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope diagnose`."""

    paths: list[str] = flag(
        names=(),
        nargs="+",
        metavar="RUN",
        help="folder or file of a run, of any supported trainer; - for a log from standard input",
    )
    json: bool = json_flag(
        help="print only the JSON document, with statistics, thresholds and sources; of several runs a list of "
        "documents, "
        "of one that cannot be read its source and error"
    )
    verbose: bool = flag(
        names=(
            "-v",
            "--verbose",
        ),
        default=False,
        help="print every rule, number and note, and how to log what is missing (default: one screen)",
    )
    html: Path | None = flag(metavar="FILE", help="also write a self-contained page, of one run")
    fail_on: list[str] = flag(
        default=[],
        action="append",
        metavar="GRADE|FAULT",
        help=_fail_on,
    )
    reference: list[str] = flag(
        default=[],
        nargs="+",
        metavar="GOOD",
        help="four or more good runs with the same settings and other seeds: say whether this run behaves like them, "
        "and which metric left their range first",
    )
    clock: str = flag(
        default="step",
        choices=("step", "tokens", "time"),
        help="what to align the runs by: steps, tokens, or seconds since the first row (default: step)",
    )
    config: Path | None = flag(
        metavar="FILE",
        help="settings that were asked for, a file as lint reads it: what differs from those of the run is named, "
        "and what the log does not state is taken from it",
    )
    webhook: list[str] = webhook_flag("the verdict")
    alert_on: list[str] = alert_flag()
    level: float = flag(default=0.05, metavar="X", help="chance of any flag on a run without failures (default: 0.05)")
    log: LogFlags = flags_of(LogFlags, log_paths="paths")


@dataclass(frozen=True)
class _Wishes:
    """What the flags ask of every run: what fails it, what is told, to whom, and the runs that it is compared with."""

    fatal: Wanted
    told: Wanted
    hooks: Sequence[Delivers]
    references: Sequence[Run]


def run(arguments: argparse.Namespace) -> int:
    """Print the verdict on each run; exit status 1 for what --fail-on names, 2 where a run cannot be read."""
    from grposcope.watch import alerts

    asked, paths = _asked(arguments), arguments.paths
    document: dict[str, Any] | list[dict[str, Any]]
    if len(paths) == 1:
        too_bad, document = _judge(paths[0], arguments, asked)
        status = int(too_bad)
    else:
        status, document = _several(arguments, asked)
    for line in alerts.wait(asked.hooks):
        print(line, file=sys.stderr)
    finish(arguments, document)
    return status


def _asked(arguments: argparse.Namespace) -> _Wishes:
    """What the flags ask, and UserError where they contradict each other."""
    from grposcope.faults.catalogue import seen_in_runs

    if not 0 < arguments.level < 1:
        raise UserError(
            f"--level {arguments.level:g} is not a probability; give a number between 0 and 1, such as 0.05"
        )
    grades = [name for name in arguments.fail_on if name not in (DIVERGENCE, CANNOT_TELL)]
    if DIVERGENCE in arguments.fail_on and not arguments.reference:
        raise UserError("--fail-on divergence needs runs that went well; give them with --reference")
    if arguments.html and len(arguments.paths) > 1:
        raise UserError("--html draws the page of one run; name one, or use grposcope report for several")
    if [*arguments.paths, *arguments.reference].count("-") > 1:
        raise UserError("standard input can be read only once; name - once")
    return _Wishes(
        wanted_by("--fail-on", grades, seen_in_runs()),
        wanted_by("--alert-on", arguments.alert_on or ["warning"], seen_in_runs()),
        senders(arguments.webhook),
        [logs.read(path, arguments) for path in arguments.reference],
    )


def _several(arguments: argparse.Namespace, asked: _Wishes) -> tuple[int, list[dict[str, Any]]]:
    """Judge each of several runs under its name, and count; the worst exit status, and a document for each run."""
    status, documents = 0, []
    for path in arguments.paths:
        name = visible(str(logs.place(path)), 200)
        say(arguments, f"==> {name} <==")
        try:
            too_bad, said = _judge(path, arguments, asked)
            status = max(status, int(too_bad))
        except UserError as error:
            said = {"source": name, "error": str(error)}
            say(arguments, f"Cannot be read: {error}")
            status = 2
        documents.append(said)
        say(arguments, "")
    words = Counter(said.get("word", UNREAD) for said in documents)
    counts = [f"{words[word]} {word}" for word in (*get_args(Word), UNREAD) if words[word]]
    say(arguments, f"{len(documents)} runs: {', '.join(counts)}")
    return status, documents


def _judge(path: str, arguments: argparse.Namespace, asked: _Wishes) -> tuple[bool, dict[str, Any]]:
    """Print the verdict on a run and tell whom it concerns; whether it fails the command, and the document."""
    from grposcope.faults import judge_claims, judge_settings
    from grposcope.faults.judge import diagnose
    from grposcope.instruments.diagnosis import answer, screen
    from grposcope.instruments.diagnosis.verdict import verdict
    from grposcope.render import document, terminal, wrapping
    from grposcope.watch.alerts import Alert
    from grposcope.watch.wording import exceeds, verdict_alert

    read_run = logs.with_settings(path, arguments)
    compared = _compared(read_run, arguments, asked.references)
    of_run = judge_claims.with_rollouts(read_run, diagnose(read_run, arguments.level))
    findings = judge_settings.with_settings(read_run, of_run)
    judged, result = verdict(read_run, findings), answer.of_run(read_run, findings, arguments.level)
    said = document.of_answer(result)
    if arguments.verbose:
        shown = terminal.text(replace(result, text=(*result.text, *answer.about(read_run))), wrapping.width(), True)
    else:
        shown = screen.text(read_run, judged, findings, result, MORE, wrapping.width())
    say(arguments, shown, lambda text: wrapping.coloured(text, result.word) if wrapping.has_colours() else text)
    if compared is not None:
        said["reference"] = compared.document
        say(arguments, "\n" + terminal.text(compared))
    if arguments.html:
        said["page"] = str(arguments.html)
        size = _page(read_run, findings, result, compared, arguments.html)
        say(arguments, f"\npage: {arguments.html} ({size / 1e6:.1f} MB); open it in a browser")
    diverged = compared is not None and bool(compared.document.get("diverged"))
    divergence = diverged and DIVERGENCE in arguments.fail_on
    undecided = judged.word == CANNOT_TELL and CANNOT_TELL in arguments.fail_on
    too_bad = exceeds(judged, findings, asked.fatal) or divergence or undecided
    if too_bad or exceeds(judged, findings, asked.told):
        for hook in asked.hooks:
            hook.send(verdict_alert(judged, findings, said["source"]))
            if divergence and compared is not None:
                hook.send(Alert(said["source"], compared.sentence, compared.because, "warning", DIVERGENCE,
                                document={"text": f"{said['source']}: {compared.sentence}"}))  # fmt: skip
    return too_bad, said


def _compared(run: Run, arguments: argparse.Namespace, references: Sequence[Run]) -> Answer | None:
    """What is said of the run against the runs of --reference; None without these."""
    if not references:
        return None
    from grposcope.instruments import has, needed

    if not has("runs"):
        raise UserError(needed(["runs"]))
    from grposcope.instruments.runs.reference import answer

    return answer.of_run(run, references, arguments.clock, arguments.level)


def _page(run: Run, findings: Sequence[Finding], result: Answer, compared: Answer | None, path: Path) -> int:
    """Write the page: the verdict, charts of what is flagged, the rules, and the settings; its size in bytes."""
    from grposcope.commands.report import write_page
    from grposcope.core.run import labels
    from grposcope.instruments import ask, has, instrument
    from grposcope.instruments.diagnosis import answer, figures, verdict_chart
    from grposcope.render import page

    text = (*result.text, *answer.about(run))
    top = replace(result, name="headline", question=HEADLINE, text=text, tables=(), document={})
    chart = verdict_chart.of_run(run, findings)
    top = replace(top, figures=() if chart is None else (chart,))
    rules = replace(
        result, sentence="", because="", do="", text=(), missing=(), figures=figures.of_findings(run, findings)
    )
    others = ask(instrument("settings"), [run]) if has("runs") else ()
    settings = [section for section in others if section.name == "settings"]
    sections = (rules, *([] if compared is None else [compared]), *settings)
    return write_page(page.Document(tuple(labels([run])), top, sections), path, "--html")
