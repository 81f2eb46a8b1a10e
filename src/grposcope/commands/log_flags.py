"""Flags and reading that all commands share which look at the log of a run."""

from __future__ import annotations

import argparse
import difflib
import math
import re
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from grposcope.commands.output import finish, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag
from grposcope.core.settings import SettingsAskedFor

if TYPE_CHECKING:
    from grposcope.commands.understood import Refused, Understood
    from grposcope.core.run import Run
    from grposcope.logs import Hints
    from grposcope.logs.hints import UndecidedError

REMEDY = {
    "columns": "say which with --map, such as --map {example}; --dry-run shows all that is in it",
    "average": "use --average to average the rows of a step; if the rows are of several runs, give only one run",
    "run": "give one of them, such as {place}#2",
}
"""What to do about a log that leaves a question, by the field of `Hints` that answers it."""


STANDARD_INPUT = "-"
"""Path of a command line that stands for standard input."""


_log = partial(flag, group="log: of another trainer; LOG#2 is the second run in it")


@dataclass(frozen=True)
class LogFlags:
    """Flags that say how a log is read.

    Who has them says by `log_paths` which attribute of the arguments has the path of the log, or paths.
    """

    set: list[str] = _log(
        default=[],
        action="append",
        metavar="NAME=VALUE",
        help="a setting that the log does not state, such as group=8; may be given more than once",
    )
    map: list[str] = _log(
        default=[],
        action="append",
        metavar="METRIC=KEY",
        help="which key of the log is which metric, such as reward=score; in console output without names, a number "
        "is a position in the line, such as step=2; may be given more than once",
    )
    average: bool = _log(default=False, help="average rows that have the same step")
    scope: str = _log(default="", metavar="NAME", help="judge only this environment, domain or agent of the run")
    outcome: str = _log(
        default="",
        metavar="NAME",
        help="judge the run by this column or held-out score, such as right answers beside a sum of rewards",
    )
    dry_run: bool = _log(default=False, help="print what is read from the log, without a verdict")


def read(path: str | Path, arguments: argparse.Namespace, known: Mapping[str, Any] | None = None) -> Run:
    """The run at a path, with what the flags say of it; UserError that names the flag where one is needed.

    known: settings under our names that no flag gives.
    """
    from grposcope.logs.hints import UndecidedError

    try:
        return _read(path, arguments, known)
    except UndecidedError as error:
        raise UserError(_question(error, path)) from None


def _read(path: str | Path, arguments: argparse.Namespace, known: Mapping[str, Any] | None = None) -> Run:
    """The run at a path; UndecidedError where a flag is needed."""
    from grposcope import logs as runs
    from grposcope.logs import remote

    log, number = (path, None) if remote.address(path) else numbered(path)
    said = hints(arguments, number)
    said = replace(said, settings={**(known or {}), **said.settings})
    if str(log) == STANDARD_INPUT:
        return runs.read("standard input", said, _all_of(sys.stdin))
    return runs.read(log, said)


@cache
def _all_of(stream: TextIO) -> bytes:
    """All of standard input, which can be read only once."""
    return stream.buffer.read()


def _question(error: UndecidedError, path: str | Path) -> str:
    """The question that a log leaves, with the flag that answers it."""
    return asked(error.field, str(error), numbered(path)[0], error.example)


def asked(field: str, question: str, path: Path, example: str = "") -> str:
    """The question that a log leaves, with the flag that answers it; without a field, no flag does.

    example: METRIC=KEY of a likely answer.
    """
    if not field:
        return question
    example = shlex.quote(example) if example else "step=2" if "is the step" in question else "reward=NAME"
    return f"{question}; {REMEDY[field].format(place=path, example=example)}"


def hints(arguments: argparse.Namespace, run: int | None = None) -> Hints:
    """What --set, --map and --average say of a log, and the number of the run in it."""
    from grposcope.logs import Hints

    outcome = {"outcome": arguments.outcome} if arguments.outcome else {}
    return Hints(_settings(arguments.set) | outcome, _columns(arguments.map), arguments.average, run, arguments.scope)


def place(path: str | Path) -> str | Path:
    """A path of the command line as people read it."""
    return "standard input" if str(path) == STANDARD_INPUT else path


def numbered(path: str | Path) -> tuple[Path, int | None]:
    """LOG#2 as (LOG, 2); any path that exists as it is, without a number."""
    whole = Path(path)
    match = re.fullmatch(r"(.+)#([1-9]\d{0,5})", str(path))
    if match is None or whole.exists():
        return whole, None
    return Path(match[1]), int(match[2])


def _settings(settings_text: Sequence[str]) -> dict[str, Any]:
    """Settings of a log under our names, also where a trainer's own name is given; UserError for a name that nothing
    reads, for one of two names of a setting that differ, and for a count that is none."""
    settings: dict[str, Any] = {}
    for given, value in named_values(settings_text).items():
        name = given if given in known_settings() else _names_of_trainers().get(given, given)
        if settings.get(name, value) != value:
            raise UserError(f"--set {given}={value}: {name} is given as {settings[name]} already; give one of them")
        settings[name] = value
    for name, value in settings.items():
        _check_setting(name, value, f"{name}={value}")
    return settings


def named_values(words: Sequence[str]) -> dict[str, Any]:
    """Values by name from NAME=VALUE pairs; those that are numbers become numbers, lists in brackets and objects the
    text that has commas alone. UserError for brackets that hold anything but numbers."""
    pairs: dict[str, Any] = {}
    for text in words:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"--set {text!r} is not NAME=VALUE; write for example --set group=8")
        try:
            pairs[name] = int(value)
        except ValueError:
            try:
                pairs[name] = float(value)
            except ValueError:
                pairs[name] = _without_brackets(text, value)
        if isinstance(pairs[name], float) and not math.isfinite(pairs[name]):
            raise UserError(f"--set {text}: {value} is not a finite number; write for example --set group=8")
    return pairs


def _without_brackets(text: str, value: str) -> str:
    """`[1, 0.5]`, `(1, 0.5)` or `{"right": 1, "format": 0.5}` of --set `text` as 1,0.5 or right=1,format=0.5; another
    value as it is."""
    bare = value.strip()
    if not bare or bare[0] not in "[({":
        return value
    ends = {"[": "]", "(": ")", "{": "}"}[bare[0]]
    texts = [number.strip() for number in bare[1:-1].split(",") if number.strip()]
    if bare[0] == "{":
        pairs = [re.fullmatch(r"""["']?([^"':=]+)["']?\s*[:=]\s*(\S+)""", part) for part in texts]
        texts = [f"{pair[1].strip()}={pair[2]}" if pair else "" for pair in pairs]
    if not bare.endswith(ends) or not texts or not all(_is_number(number.rpartition("=")[2]) for number in texts):
        raise UserError(f"--set {text}: {value} is not a list of numbers; write for example --set reward_weights=1,0.5")
    return ",".join(texts)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def config_beside(arguments: argparse.Namespace, path: str | Path, below: bool = False) -> Path | None:
    """The file of settings: that of --config, else the one that lies in the folder of a run, where its trainer is one
    whose settings can be read; None where there is none. A record of ours states its settings itself.

    below: the folder of a log that was found below another is that of the run where no other file of its kind is there.
    """
    from grposcope.instruments import has
    from grposcope.logs.native.schema import is_record

    folder = Path(path)
    if below and folder.is_file() and sum(other.suffix == folder.suffix for other in folder.parent.iterdir()) == 1:
        folder = folder.parent
    file = _config(arguments)
    if file is not None or not folder.is_dir() or is_record(folder) or not has("lint"):
        return file
    from grposcope.instruments.lint import read as lint

    for name in lint.IN_A_FOLDER:
        if (folder / name).is_file() and name not in ("config.json", "trainer_state.json"):  # of a model, or of a log
            try:
                lint.read(folder / name)
            except UserError:
                continue
            return folder / name
    scripts = [path for path in sorted(folder.iterdir()) if path.suffix in (".py", ".sh") and _has_settings(path)]
    return scripts[0] if len(scripts) == 1 else None


def _has_settings(script: Path) -> bool:
    """Whether a script has one set of settings that can be read."""
    from grposcope.instruments.lint import read as lint

    try:
        return script.is_file() and bool(lint.read(script).given)
    except UserError:
        return False


def with_settings(path: str | Path, arguments: argparse.Namespace, below: bool = False) -> Run:
    """The run at a path, with what the file of settings asks for, that of --config or the one beside the run.

    below: whether the path is of a log that was found below the folder that was named.
    """
    config = config_beside(arguments, path, below)
    asked = settled(read(path, arguments), config, lambda stated: read(path, arguments, stated))
    if config is None or _config(arguments) is not None:
        return asked
    others = "; --config names others" if hasattr(arguments, "config") else ""
    notes = (*asked.meta.notes, f"the settings are those of {config}{others}")
    return replace(asked, meta=replace(asked.meta, notes=notes))


def settled(run: Run, config: Path | None, again: Callable[[Mapping[str, Any]], Run]) -> Run:
    """A run with what a file of settings asks for: those that its log does not state are taken from there, for which it
    is read `again`. Without a file it has those that its trainer logged."""
    if config is None:
        return _as_recorded(run)
    from grposcope.instruments import has, needed

    if not has("lint"):
        raise UserError(needed(["lint"]))
    from grposcope.instruments.lint import read as lint
    from grposcope.signs.settings.in_force import missing_from

    asked = lint.read(config)
    if more := missing_from(run, asked):
        run = again(more)
    return replace(run, asked=SettingsAskedFor(asked, frozenset(more)))


def _as_recorded(run: Run) -> Run:
    """The run with the settings that its trainer logged, where these are of its own trainer; else as it is."""
    from grposcope.instruments import has

    if not has("lint"):
        return run
    from grposcope.instruments.lint.read import of_record

    settings = of_record(run.meta.source, run.config.get("logged"))
    if settings is None or settings.dialect.name != run.meta.engine:
        return run
    return replace(run, asked=SettingsAskedFor(settings, recorded=True))


def _config(arguments: argparse.Namespace) -> Path | None:
    """The file of --config; None where it is not given, and for a command that does not have the flag."""
    file: Path | None = getattr(arguments, "config", None)
    return file


OTHER_SETTINGS = (
    "aggregation", "allocate", "max_steps", "optimizer", "outcome", "recipe", "reward_high", "reward_low", "rewards",
    "task",
)  # fmt: skip
"""Settings that instruments ask for and no trainer's log has under a key of its own."""

COUNTS = ("group", "prompts", "interval", "max_tokens", "steps", "max_steps", "logging_steps")
"""Settings that are whole numbers of 1 or more."""


LISTS = ("reward_weights", "rewards", "ends")
"""Settings that are several numbers."""


def known_settings() -> frozenset[str]:
    """Every name that --set takes: the settings of all trainers, what instruments ask for, and versions."""
    from grposcope.logs.trainers import TRAINERS

    names = {
        name
        for trainer in TRAINERS.values()
        for name in (*(s.name for s in trainer.settings if s.name), *trainer.conventions)
    }
    versions = {f"{name.replace('-', '_')}_version" for name in TRAINERS}
    return frozenset(names | versions | set(OTHER_SETTINGS))


@cache
def _names_of_trainers() -> dict[str, str]:
    """The keys of settings in the trainers' own files -> our names."""
    from grposcope.logs.trainers import TRAINERS

    return {setting.key: setting.name for trainer in TRAINERS.values() for setting in trainer.settings if setting.name}


def _check_setting(name: str, value: Any, text: str) -> None:
    """UserError for a name that nothing reads, and for a count that is none."""
    settings = known_settings()
    if name not in settings:
        close = difflib.get_close_matches(name, settings, n=1)
        remedy = (
            f"did you mean {close[0]}?"
            if close
            else f"choose one of {', '.join(sorted(settings - _versions(settings)))}"
        )
        raise UserError(f"--set {text}: there is no setting {name!r}; {remedy}")
    if isinstance(value, str) and "," in value and name not in LISTS and all(map(_is_number, value.split(","))):
        raise UserError(f"--set {text}: {name} is one value, not several; write for example --set {name}=8")
    if name in COUNTS and not (isinstance(value, int) and value >= 1):
        raise UserError(f"--set {text}: {name} must be a whole number of at least 1; write for example --set {name}=8")


def _versions(names: Collection[str]) -> set[str]:
    return {name for name in names if name.endswith("_version")}


def _columns(words: Sequence[str]) -> dict[str, str]:
    """Metric -> key from METRIC=KEY pairs, several in one text with commas between them.

    KEY=METRIC is taken as well, where the first of the two is no metric and the second is.
    """
    from grposcope.logs.hints import is_metric

    pairs: dict[str, str] = {}
    for text in words:
        for pair in re.split(r",(?=[\w/.@-]+=)", text):
            metric, equals, key = map(str.strip, pair.partition("="))
            if is_metric(key) and not is_metric(metric):
                metric, key = key, metric
            if not equals or not metric or not key:
                raise UserError(f"--map {text!r} is not METRIC=KEY; write for example --map reward=score,step=2")
            pairs[metric] = key
    return pairs


def dry_run(arguments: argparse.Namespace) -> int:
    """Print what is understood of each log, or what is in it and what would have to be said of it."""
    from dataclasses import asdict

    from grposcope.commands.understood import refused, understood
    from grposcope.core.text import visible
    from grposcope.logs.hints import UndecidedError, UnreadError

    paths = getattr(arguments, arguments.log_paths)
    documents = []
    for path in paths if isinstance(paths, list) else [paths]:
        if path is None:
            raise UserError("--dry-run needs a log; name one, or leave --dry-run out")
        found: Understood | Refused
        try:
            found = understood(_read(path, arguments))
        except UnreadError as error:
            problem = _question(error, path) if isinstance(error, UndecidedError) else str(error)
            found = refused(str(place(path)), problem, error.seen)
        say(arguments, "\n".join(visible(line, 2000) for line in found.lines()))
        documents.append(asdict(found))
    finish(arguments, {"understood": documents})
    return 0
