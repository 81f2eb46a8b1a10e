"""`grposcope diagnose`: what is wrong with a run, in one screen."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import HELP
from grposcope.errors import UserError

if TYPE_CHECKING:
    from grposcope.diagnosis import Finding
    from grposcope.diagnosis.webhook import Webhook
    from grposcope.runs.run import Run

EXAMPLES = """\
examples:
  grposcope diagnose runs/20260101-120000-tiny-grpo          our own record
  grposcope diagnose out/checkpoint-500/trainer_state.json   TRL; likewise verl, OpenRLHF, W&B, TensorBoard logs
  grposcope diagnose train.log --set group=8                 what the log does not say
  grposcope diagnose RUN --html verdict.html                 one page: the rules, and charts of what is flagged
  grposcope diagnose RUN --fail-on flagged                   exit status 1 if anything is flagged, for CI
  grposcope diagnose RUN --fail-on "kl blow-up"              or only for this mode
"""

MARK = {"flagged": "✗", "cannot tell": "?", "ok": "✓"}


def add(commands: Any) -> None:
    """Add the command to the subparsers of `grposcope`."""
    command = commands.add_parser(
        "diagnose",
        help=HELP["diagnose"],
        description="Judge the log of a run by rules for the ways in which GRPO fails. The first line is the verdict. "
        "Exit status: 0, 1 if a mode of --fail-on is flagged, 2 where there is no run that can be read.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("path", type=Path, metavar="RUN", help="folder or file of a run, of any supported trainer")
    command.add_argument(
        "--json", action="store_true", help="print only the JSON document, with statistics, thresholds and sources"
    )
    command.add_argument("--html", type=Path, metavar="FILE", help="also write a self-contained page")
    command.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="MODE",
        help="exit with status 1 if this mode is flagged; `flagged` for any; may be given more than once",
    )
    command.add_argument(
        "--webhook", metavar="URL", help="POST a JSON document with the verdict to this URL if anything is flagged"
    )
    command.add_argument(
        "--level",
        type=float,
        default=0.05,
        metavar="X",
        help="chance of any flag on a run without failures (default: 0.05)",
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting that the log does not say, such as group=8; may be given more than once",
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the verdict; the exit status is 1 if a mode of --fail-on is flagged."""
    from grposcope.diagnosis import diagnose
    from grposcope.diagnosis.diagnose import ORDER
    from grposcope.diagnosis.verdict import sentence
    from grposcope.diagnosis.webhook import Webhook
    from grposcope.files import dumps
    from grposcope.runs import read

    hook = Webhook(arguments.webhook) if arguments.webhook else None
    if not 0 < arguments.level < 1:
        raise UserError(f"--level {arguments.level:g} is no probability; give one between 0 and 1, such as 0.05")
    unknown = [mode for mode in arguments.fail_on if mode not in (*ORDER, "flagged")]
    if unknown:
        raise UserError(f"--fail-on {unknown[0]!r} is no mode; give flagged or one of: {', '.join(ORDER)}")
    found = read(arguments.path, settings(arguments.set))
    findings = diagnose(found, arguments.level)
    verdict = sentence(found, findings)
    said = _document(found, findings, verdict, arguments.level)
    if not arguments.json:
        print(screen(found, findings, verdict))
    if arguments.html:
        said["page"] = str(arguments.html)
        size = _page(found, findings, arguments.html)
        if not arguments.json:
            print(f"\npage: {arguments.html} ({size / 1e6:.1f} MB); open it in a browser")
    if hook is not None and said["flagged"]:
        _tell(hook, said)
    print(dumps(said))
    flagged = {finding.mode for finding in findings if finding.status == "flagged"}
    wanted = set(arguments.fail_on)
    return int(bool(flagged & wanted or (flagged and "flagged" in wanted)))


def _page(found: Run, findings: Sequence[Finding], path: Path) -> int:
    """Write the page; its size in bytes."""
    from grposcope.report import page
    from grposcope.report.elements import Section
    from grposcope.report.sections import diagnosis, run_settings
    from grposcope.runs.run import labels

    judged = diagnosis.judged([found], [findings], folded=False)
    verdict, *reasons = re.split(r", (?=because )|; (?=do: )|; (?=cannot tell: )", judged.text[0])
    top = Section("headline", _begun(verdict), [_begun(text) + "." for text in (*reasons, *found.meta.notes)])
    known = run_settings.section([found])
    sections = (replace(judged, text=()), *([known] if known is not None else []))
    try:
        return page.write(page.Document(tuple(labels([found])), top, sections), path)
    except UserError as error:
        raise UserError(str(error).replace("--out", "--html")) from None


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]


def _tell(hook: Webhook, said: dict[str, Any]) -> None:
    """Post the verdict; a hook that does not answer is said and no more."""
    hook.send({"text": f"{said['source']}: {said['verdict']}", **{name: said[name] for name in ("source", "flagged")}})
    hook.wait()
    for line in hook.failures:
        print(line, file=sys.stderr)


def settings(given: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE pairs as settings: numbers where they are numbers."""
    pairs: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"--set {text!r} is not NAME=VALUE; write for example --set group=8")
        try:
            pairs[name] = int(value)
        except ValueError:
            try:
                pairs[name] = float(value)
            except ValueError:
                pairs[name] = value
    return pairs


def screen(found: Run, findings: Sequence[Finding], verdict: str) -> str:
    """The verdict, then a line per rule; evidence and advice of what is flagged, remedies for what is missing."""
    from grposcope.diagnosis.how_to_log import HOW
    from grposcope.formatting import visible

    lines = [verdict, "", f"{found.meta.source} · {found.meta.engine} · {found.steps:,} rows"]
    lines += [f"note: {note}" for note in found.meta.notes]
    lines.append("")
    width = max(len(finding.mode) for finding in findings)
    for finding in findings:
        lines.append(f"{MARK[finding.status]} {finding.mode:{width}}  {finding.because}")
        if finding.status == "flagged":
            since = "" if finding.onset is None else f"since step {finding.onset:,}; "
            lines.append(f"  {'':{width}}  {since}confidence {finding.confidence:.3f} (p = {finding.p:.2g})")
            lines += [f"  {'':{width}}  · {evidence}" for evidence in finding.evidence]
            lines.append(f"  {'':{width}}  → {finding.advice}")
    missing = dict.fromkeys(name for finding in findings for name in finding.missing)
    if missing:
        lines += ["", "not logged:"]
        lines += [f"  {name}: {HOW.get(name, 'log it')}" for name in missing]
    return "\n".join(visible(line, 4000) for line in lines)


def _document(found: Run, findings: Sequence[Finding], verdict: str, level: float) -> dict[str, Any]:
    from grposcope.diagnosis.diagnose import RULES
    from grposcope.diagnosis.group_signal import block

    rules = {
        rule.mode: {"needs": rule.needs, "statistic": rule.statistic, "threshold": rule.threshold} for rule in RULES
    }
    return {
        "verdict": verdict,
        "source": str(found.meta.source),
        "engine": found.meta.engine,
        "rows": found.steps,
        "level": level,
        "flagged": [finding.mode for finding in findings if finding.status == "flagged"],
        "findings": [asdict(finding) for finding in findings],
        "groups": block(found),
        "rules": rules,
        "notes": found.meta.notes,
    }
