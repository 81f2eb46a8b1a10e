"""`grposcope lint`: what will go wrong with a configuration, before the run begins."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import logs
from grposcope.commands.output import add_json, finish, say
from grposcope.errors import UserError

if TYPE_CHECKING:
    from grposcope.lint.config import Known, TrainerConfig
    from grposcope.lint.findings import LintResult

DESCRIPTION = (
    "Read the settings of a run of TRL, verl, NeMo-RL or GRPOscope that has not begun, and say what will go wrong, "
    "why, "
    "and where that is known from. Nothing of yours is imported, run or unpickled. Exit status: 0, 1 for what "
    "--fail-on "
    "names, 2 where no settings can be read."
)
EXAMPLES = """\
examples:
  grposcope lint train.py                       the call of GRPOConfig in a script or notebook; it is not run
  grposcope lint config.yaml --world 8          TRL's YAML, on 8 processes
  grposcope lint run_grpo.sh                    overrides a.b=c of verl, or flags of TRL, in a shell script
  grposcope lint outputs/.hydra/overrides.yaml  what verl was started with; a resolved YAML file works as well
  grposcope lint train.py#2                     the second of several sets of settings in a file
  grposcope lint config.yaml --success-rate 0.1 how many groups will be dead if a tenth of rollouts succeed
  grposcope lint config.yaml --run runs/before  lengths, rewards, dead groups and curvature of an earlier run
  grposcope lint config.yaml --fail-on failing  exit status 1 if it cannot work, for CI
"""

MARK = {"failing": "✗", "warning": "≈", "note": "·"}


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    from grposcope.lint.checks import CHECKS

    command.add_argument("path", metavar="CONFIG", help="file with the settings: .py, .ipynb, .yaml, .json, .sh")
    known = command.add_argument_group("known beside the settings")
    known.add_argument("--success-rate", type=float, metavar="P", help="share of rollouts that succeed at the start")
    known.add_argument("--probe", metavar="PROBE", help="folder of a probe of the model on the task")
    known.add_argument("--run", dest="run_path", metavar="RUN", help="an earlier run on the same task, of any trainer")
    known.add_argument("--world", type=int, metavar="N", help="processes that will train, for TRL")
    logs.add_flags(command, "run_path")
    command.add_argument(
        "--fail-on", action="append", default=[], metavar="GRADE|CHECK",
        help="exit with status 1 for this grade or worse (failing, warning, note), or if this check finds anything; "
        "may be "
        "given more than once. Checks: " + ", ".join(check.name for check in CHECKS),
    )  # fmt: skip
    add_json(command, "print only the JSON document, with every finding, its source, and what was not checked")


def run(arguments: argparse.Namespace) -> int:
    """Print the findings; exit status 1 for what --fail-on names."""
    from grposcope.lint import lint, read

    _check_flags(arguments)
    place, number = logs.numbered(arguments.path)
    config = read.read(place, number)
    result = lint(config, _known(arguments))
    say(arguments, screen(config, result))
    finish(arguments, _document(config, result))
    return int(_exceeds(result, arguments.fail_on))


def _check_flags(arguments: argparse.Namespace) -> None:
    from grposcope.diagnosis.findings import GRADES
    from grposcope.lint.checks import CHECKS

    rate = arguments.success_rate
    if rate is not None and not 0 <= rate <= 1:
        raise UserError(f"--success-rate {rate:g} is no share; give a number from 0 to 1, such as 0.3")
    if arguments.world is not None and arguments.world < 1:
        raise UserError(f"--world {arguments.world} is no number of processes; give 1 or more")
    names = (*GRADES, *(check.name for check in CHECKS))
    for name in arguments.fail_on:
        if name not in names:
            raise UserError(f"--fail-on {name!r} is no grade and no check; use one of {', '.join(names)}")


def _known(arguments: argparse.Namespace) -> Known:
    """What the flags tell beside the settings."""
    from grposcope.lint.config import Known
    from grposcope.runs import probe

    run = logs.read(arguments.run_path, arguments) if arguments.run_path else None
    rule, source = (None, "") if run is None else _rule(run)
    record = None
    if arguments.probe:
        folder = Path(arguments.probe)
        if not probe.recognises(folder):
            raise UserError(f"--probe {folder} is no folder of a probe; make one with `grposcope probe`")
        record = probe.read(folder)
    return Known(arguments.success_rate, run, record, arguments.world, rule, source)


def _rule(run: Any) -> tuple[Any, str]:
    """The update rule of an earlier run with its curvature, and where that comes from or why there is none."""
    from grposcope.facts.stability import from_reward

    try:
        rule = from_reward(run)
    except UserError as error:
        return None, str(error)
    if not math.isfinite(rule.curvature.value):
        return rule, f"its curvature is not known, since {rule.missing}"
    return rule, f"from the time constant of the reward of {run.meta.name}, which stiffer directions may undercut"


def screen(config: TrainerConfig, result: LintResult) -> str:
    """The verdict, then each finding with why, what to change and its source, and what could not be checked."""
    from grposcope.formatting import visible

    version = f", defaults of {config.dialect.version}" if config.dialect.version else ""
    lines = [headline(result), "", f"{config.source} · {config.form} · {config.dialect.title}{version}"]
    lines += [f"note: {note}" for note in config.notes]
    for finding in result.findings:
        lines += ["", f"{MARK[finding.grade]} {finding.grade}: {finding.what} ({finding.check})", f"    {finding.why}"]
        lines += [f"    {place}" for place in finding.places]
        lines += [f"    → {finding.change}", f"    source: {finding.source}"]
    if result.unchecked:
        lines += ["", "not checked:", *(f"  {one.check}: {one.reason}" for one in result.unchecked)]
    if result.passed:
        lines += ["", f"nothing found by: {', '.join(result.passed)}"]
    return "\n".join(visible(line, 4000) for line in lines)


def headline(result: LintResult) -> str:
    """The conclusion in one sentence."""
    counts = {grade: sum(finding.grade == grade for finding in result.findings) for grade in MARK}
    told = ", ".join(f"{n} {grade}{'s' if grade != 'failing' and n != 1 else ''}" for grade, n in counts.items() if n)
    ends = {
        "failing": "failing: with these settings the run stops or learns nothing",
        "warning": "warning: with these settings part of the effort is lost, or the run may fail",
        "healthy": "healthy: nothing in these settings is known to go wrong",
    }
    return f"{ends[result.grade]} ({told or 'no findings'})"


def _document(config: TrainerConfig, result: LintResult) -> dict[str, Any]:
    return {
        "verdict": headline(result),
        "grade": result.grade,
        "source": str(config.source),
        "form": config.form,
        "trainer": config.dialect.name,
        "defaults_of": config.dialect.version,
        "findings": [asdict(finding) for finding in result.findings],
        "unchecked": [asdict(one) for one in result.unchecked],
        "passed": result.passed,
        "opaque": sorted(config.opaque),
        "notes": config.notes,
    }


def _exceeds(result: LintResult, fatal: list[str]) -> bool:
    """Whether a finding is of a grade or check that --fail-on names."""
    from grposcope.diagnosis.findings import GRADES

    bad = {name for given in fatal if given in GRADES for name in GRADES[: GRADES.index(given) + 1]} | set(fatal)
    return any(finding.grade in bad or finding.check in bad for finding in result.findings)
