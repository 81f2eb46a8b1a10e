"""`grposcope diagnose`: what is wrong with a run, in one screen."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import logs
from grposcope.commands.alarm_flags import add_webhook, senders, wanted_by
from grposcope.commands.output import add_json, finish, say
from grposcope.errors import UserError

if TYPE_CHECKING:
    from grposcope.diagnosis import Finding
    from grposcope.facts.diagnosis import Verdict
    from grposcope.runs.run import Run

DESCRIPTION = (
    "Judge the log of a run by rules for the ways in which GRPO fails. The first line is the verdict: failing, "
    "warning, healthy or cannot tell. Exit status: 0, 1 for what --fail-on names, 2 where no run can be read."
)
EXAMPLES = """\
examples:
  grposcope diagnose runs/20260101-120000-tiny-grpo          a record of grposcope train
  grposcope diagnose out/checkpoint-500/trainer_state.json   TRL; likewise verl, OpenRLHF, W&B, TensorBoard logs
  grposcope diagnose train.log --set group=8                 what the log does not say
  grposcope diagnose mine.log --dry-run                      what is understood of the log of your own trainer
  grposcope diagnose mine.log --map reward=Reward,step=2     which of its numbers is the reward, and which the step
  grposcope diagnose RUN --html verdict.html                 one page: the rules, and charts of what is flagged
  grposcope diagnose RUN --fail-on failing                   exit status 1 if learning stops or reverses, for CI
  grposcope diagnose RUN --fail-on "kl blow-up"              or if this mode is flagged, whatever its grade
"""

MARK = {"flagged": "✗", "near the limit": "≈", "cannot tell": "?", "ok": "✓"}


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    from grposcope.diagnosis.rules import RULES

    command.add_argument("path", metavar="RUN", help="folder or file of a run, of any supported trainer")
    add_json(command, "print only the JSON document, with statistics, thresholds and sources")
    command.add_argument("--html", type=Path, metavar="FILE", help="also write a self-contained page")
    command.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="GRADE|MODE",
        help="exit with status 1 for this grade or worse (failing: learning stops or reverses; warning: it may, or "
        "most of the effort is wasted; note: anything flagged), or if this mode is flagged; may be given more than "
        "once. Modes: " + ", ".join(RULES),
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
    from grposcope.diagnosis import alerts, diagnose
    from grposcope.facts.diagnosis import exceeds, verdict, verdict_alert

    hooks = senders(arguments.webhook)
    if not 0 < arguments.level < 1:
        raise UserError(f"--level {arguments.level:g} is no probability; give one between 0 and 1, such as 0.05")
    fatal, told = wanted_by("--fail-on", arguments.fail_on), wanted_by("--alert-on", arguments.alert_on or ["warning"])
    read_run = logs.read(arguments.path, arguments)
    findings = diagnose(read_run, arguments.level)
    judged = verdict(read_run, findings)
    document = _document(read_run, findings, judged, arguments.level)
    say(arguments, screen(read_run, findings, judged))
    if arguments.html:
        document["page"] = str(arguments.html)
        size = _page(read_run, findings, judged, arguments.html)
        say(arguments, f"\npage: {arguments.html} ({size / 1e6:.1f} MB); open it in a browser")
    too_bad = exceeds(judged, findings, fatal)
    if too_bad or exceeds(judged, findings, told):
        for hook in hooks:
            hook.send(verdict_alert(judged, findings, document["source"]))
        for line in alerts.wait(hooks):
            print(line, file=sys.stderr)
    finish(arguments, document)
    return int(too_bad)


def _page(run: Run, findings: Sequence[Finding], verdict: Verdict, path: Path) -> int:
    """Write the page; its size in bytes."""
    from grposcope.commands.report import write_page
    from grposcope.report import page
    from grposcope.report.elements import Section
    from grposcope.report.sections import diagnosis, run_settings
    from grposcope.runs.run import labels

    clauses = [page.capitalised(clause) + "." for clause in (*verdict.clauses, *run.meta.notes)]
    top = Section("headline", page.capitalised(verdict.conclusion), clauses, verdict.word)
    rules = diagnosis.section_of([run], [findings], folded=False)
    known = run_settings.section([run])
    sections = (replace(rules, text=()), *([known] if known is not None else []))
    return write_page(page.Document(tuple(labels([run])), top, sections), path, "--html")


def screen(run: Run, findings: Sequence[Finding], verdict: Verdict) -> str:
    """The verdict, then a line per rule; evidence and advice of what is flagged, and how to log what is missing."""
    from grposcope.facts.diagnosis import describe
    from grposcope.formatting import visible

    lines = [str(verdict), "", f"{run.meta.source} · {run.meta.engine} · {run.steps:,} rows"]
    lines += [f"note: {note}" for note in run.meta.notes]
    lines.append("")
    width = max(len(finding.mode) for finding in findings)
    to_log: dict[str, str] = {}
    for finding in (describe(finding, run.meta.engine) for finding in findings):
        lines.append(f"{MARK[finding.status]} {finding.mode:{width}}  {finding.because}")
        to_log |= finding.to_log
        if finding.status == "flagged":
            since = "" if finding.onset is None else f"since step {finding.onset:,}; "
            lines.append(
                f"  {'':{width}}  {finding.grade}; {since}confidence {finding.confidence:.3f} (p = {finding.p:.2g})"
            )
            lines += [f"  {'':{width}}  · {phrase}" for phrase in finding.evidence]
            lines.append(f"  {'':{width}}  → {finding.advice}")
    if to_log:
        lines += ["", "not logged:", *(f"  {name}: {how}" for name, how in to_log.items())]
    return "\n".join(visible(line, 4000) for line in lines)


def _document(run: Run, findings: Sequence[Finding], verdict: Verdict, level: float) -> dict[str, Any]:
    from grposcope.diagnosis.group_signal import document
    from grposcope.diagnosis.rules import RULES
    from grposcope.facts.diagnosis import flagged_modes

    rules = {
        rule.mode: {"needs": rule.needs, "statistic": rule.statistic, "threshold": rule.threshold}
        for rule in RULES.values()
    }
    return {
        "verdict": str(verdict),
        "grade": verdict.word,
        "source": str(run.meta.source),
        "engine": run.meta.engine,
        "rows": run.steps,
        "level": level,
        "flagged": flagged_modes(findings),
        "findings": [asdict(finding) for finding in findings],
        "groups": document(run),
        "rules": rules,
        "notes": run.meta.notes,
    }
