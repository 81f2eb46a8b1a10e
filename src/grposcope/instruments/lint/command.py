"""`grposcope lint`: what will go wrong with a configuration, before the run begins."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from grposcope.commands import log_flags as logs
from grposcope.commands.log_flags import LogFlags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.answer import Word
from grposcope.core.errors import UserError
from grposcope.core.flag import flag, flags_of
from grposcope.core.text import visible
from grposcope.instruments import has

if TYPE_CHECKING:
    from grposcope.core.finding import Finding
    from grposcope.core.run import Run
    from grposcope.faults.known_task import Known
    from grposcope.instruments.gradient.probe_record import ProbeRecord

DESCRIPTION = (
    "Read the settings of a run of TRL, verl, NeMo-RL or GRPOscope before it begins, and say what "
    "will go wrong, why, and according to which source. Your code is never imported, run or unpickled. Exit "
    "status: 0, 1 for what --fail-on names, 2 where no settings can be read; of several files the worst."
)
EXAMPLES = """\
examples:
  grposcope lint train.py                       the call of GRPOConfig in a script or notebook; it is not run
  grposcope lint config.yaml --world 8          TRL's YAML, on 8 processes
  grposcope lint run_grpo.sh                    overrides a.b=c of verl, or flags of TRL, in a shell script
  grposcope lint outputs/.hydra/overrides.yaml  what verl was started with; a resolved YAML file works as well
  grposcope lint train.py#2                     the second of several sets of settings in a file
  grposcope lint config.yaml --set beta=0.04    the same with another value, by the trainer's names
  grposcope lint config.yaml --success-rate 0.1 how many groups will be dead if a tenth of rollouts succeed
  grposcope lint config.yaml --run runs/before  lengths, rewards, dead groups and curvature of an earlier run
  grposcope lint config.yaml --run base.jsonl   what several rewards will weigh, from a few rollouts of the base model
  grposcope lint config.yaml --fail-on failing  exit status 1 if the settings cannot work, for CI
  grposcope lint configs/*.yaml train.py        several files, and every set of settings in them
"""


UNREAD = "cannot be read"
"""What is counted for files without settings."""


def _fail_on() -> str:
    """Help of --fail-on."""
    from grposcope.faults import catalogue

    return (
        "exit with status 1 for this grade or worse (failing, warning, note), or if this fault is found; may be "
        "given more than once. Faults: " + ", ".join(catalogue.seen_in_settings())
    )


_facts = partial(flag, group="facts that the settings do not contain")


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope lint`."""

    paths: list[str] = flag(
        names=(),
        nargs="+",
        metavar="CONFIG",
        help="file with the settings: .py, .ipynb, .yaml, .toml, .json, .sh; - for standard input; of several files "
        "every set of settings is judged",
    )
    skip_others: bool = flag(
        default=False, help="pass over files in which no settings can be read, as a hook before commits needs it"
    )
    success_rate: float | None = _facts(metavar="P", help="share of rollouts that succeed at the start")
    probe: str | None = _facts(metavar="PROBE", help="folder of a probe of the model on the task")
    run_path: str | None = _facts(
        names=("--run",),
        metavar="RUN",
        help="an earlier run on the same task, of any trainer, or rollouts of the base model as "
        "grposcope rewards reads them",
    )
    world: int | None = _facts(metavar="N", help="processes that will train, for TRL")
    log: LogFlags = flags_of(LogFlags, log_paths="run_path")
    fail_on: list[str] = flag(
        default=[],
        action="append",
        metavar="GRADE|FAULT",
        help=_fail_on,
    )
    json: bool = json_flag(
        help="print only the JSON document, with every finding, its source, and what was not checked"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the findings of every file; exit status 1 for what --fail-on names, 2 where one cannot be read."""
    _check_flags(arguments)
    changed = _of_config(arguments)
    facts = _known(arguments)
    if len(arguments.paths) == 1 and not (arguments.skip_others and Path(arguments.paths[0]).is_file()):
        too_bad, said = _judge(arguments.paths[0], arguments, changed, facts)
        finish(arguments, said)
        return int(too_bad)
    return _several(arguments, changed, facts)


def _several(arguments: argparse.Namespace, changed: Mapping[str, Any], facts: Known) -> int:
    """Judge every set of settings of several files under its name, and count; the worst exit status."""
    status, words, documents = 0, Counter[str](), []
    for path in chain.from_iterable(map(_sets, arguments.paths)):
        say(arguments, f"==> {visible(path, 200)} <==")
        try:
            too_bad, said = _judge(path, arguments, changed, facts)
            status = max(status, int(too_bad))
        except UserError as error:
            said = {"source": path, "error": str(error)}
            if arguments.skip_others and Path(path).is_file():
                say(arguments, "no settings can be read, passed over")
            else:
                say(arguments, f"Cannot be read: {error}")
                status = 2
        words[said.get("word", UNREAD)] += 1
        documents.append(said)
        say(arguments, "")
    counts = [f"{words[word]} {word}" for word in (*get_args(Word), UNREAD) if words[word]]
    say(arguments, f"{len(documents)} sets of settings: {', '.join(counts)}")
    finish(arguments, documents)
    return status


def _sets(path: str) -> list[str]:
    """The sets of settings that a path of the command line names: one, or FILE#1, FILE#2, … of a file with several."""
    from grposcope.instruments.lint import read

    config, number = logs.numbered(path)
    if str(config) != logs.STANDARD_INPUT:
        try:
            read.read(config, number)
        except read.SeveralSetsError as error:
            return [f"{config}#{which + 1}" for which in range(error.count)]
        except UserError:
            pass  # told where it is judged
    return [path]


def _judge(
    path: str, arguments: argparse.Namespace, changed: Mapping[str, Any], facts: Known
) -> tuple[bool, dict[str, Any]]:
    """Print the findings of one set of settings; whether it fails the command, and the document."""
    from grposcope.faults.judge_settings import lint
    from grposcope.instruments.lint import overrides, read
    from grposcope.instruments.lint.answer import answer
    from grposcope.render import document, terminal

    settings = read.read(*logs.numbered(path))
    try:
        settings = overrides.with_values(settings, changed)
    except UserError as error:
        raise UserError(f"--set {error}") from None
    findings = lint(settings, facts)
    said = answer(settings, findings)
    say(arguments, terminal.text(said))
    return _exceeds(findings, arguments.fail_on), document.of_answer(said)


def _check_flags(arguments: argparse.Namespace) -> None:
    from grposcope.core.finding import GRADES
    from grposcope.faults import catalogue

    rate = arguments.success_rate
    if rate is not None and not 0 <= rate <= 1:
        raise UserError(f"--success-rate {rate:g} is not a share; give a number from 0 to 1, such as 0.3")
    if arguments.world is not None and arguments.world < 1:
        raise UserError(f"--world {arguments.world} is not a number of processes; give 1 or more")
    names = (*GRADES, *catalogue.seen_in_settings())
    for name in arguments.fail_on:
        if name not in names:
            raise UserError(f"--fail-on {name!r} is neither a grade nor a fault; use one of {', '.join(names)}")


def _of_config(arguments: argparse.Namespace) -> dict[str, Any]:
    """Values of --set for the settings in the file: all, or with --run those under names that no log has."""
    of_log = logs.known_settings() if arguments.run_path else frozenset[str]()
    values = {name: value for name, value in logs.named_values(arguments.set).items() if name not in of_log}
    arguments.set = [text for text in arguments.set if text.partition("=")[0] in of_log]
    return values


def _run(arguments: argparse.Namespace) -> Run:
    """The earlier run, or a file of rollouts with the rewards of single functions, such as a few of the base model."""
    return logs.read(arguments.run_path, arguments)


def _known(arguments: argparse.Namespace) -> Known:
    """What the flags tell beside the settings."""
    from grposcope.faults.known_task import Known
    from grposcope.instruments.lint.earlier_run import update_rule

    run = _run(arguments) if arguments.run_path else None
    rule, source = (None, "") if run is None else update_rule(run)
    probe = _probe(Path(arguments.probe)) if arguments.probe else None
    return Known(arguments.success_rate, run, probe, arguments.world, rule, source)


def _probe(folder: Path) -> ProbeRecord:
    """The probe in a folder; UserError where there is none, or nobody to read it."""
    if has("gradient"):
        from grposcope.instruments.gradient import probe_record

        if not probe_record.recognises(folder):
            raise UserError(f"--probe {folder} is not the folder of a probe; make one with grposcope probe")
        return probe_record.read(folder)
    raise UserError("--probe needs the module instruments.gradient, which is not installed")


def _exceeds(findings: Sequence[Finding], fatal: list[str]) -> bool:
    """Whether a fault is present that is of a grade that --fail-on names, or named there itself."""
    from grposcope.core.finding import GRADES

    bad = {name for grade in fatal if grade in GRADES for name in GRADES[: GRADES.index(grade) + 1]} | set(fatal)
    return any(finding.present and (finding.grade in bad or finding.fault in bad) for finding in findings)
