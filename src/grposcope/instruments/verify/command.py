"""`grposcope verify`: which claims of a pipeline hold."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import flags, log_flags
from grposcope.commands.log_flags import LogFlags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag, flags_of
from grposcope.logs.native.schema import is_record, read_config

if TYPE_CHECKING:
    from grposcope.instruments.verify.caller_settings import StatedByCaller
    from grposcope.logs import Hints
    from grposcope.signs.rollouts.evidence import PipelineEvidence

DESCRIPTION = (
    "Test whether a GRPO pipeline does what its settings say: advantages, groups, masks and rewards "
    "are those of the settings, no rollout was dropped because of its reward, and metrics are what their names say. "
    "Each claim holds, is broken, or cannot be tested (with what to log). At most 5% of correct "
    "pipelines are reported as broken in any claim. Exit status: 0, 1 where a claim is broken, 2 where "
    "nothing can be read or tested."
)
EXAMPLES = """\
examples:
  grposcope verify out/                            TRL with log_completions=True, or a record of grposcope train
  grposcope verify rollouts.jsonl --set num_generations=8 --set scale_rewards=group
  grposcope verify train.log --rollouts dumps/     a log, and verl's rollout_data_dir
  grposcope verify out/ --config train.py          take the settings from the script that trained it
  grposcope verify out/ --reward rewards.py:math   and grade the rewards again
  grposcope verify out/ --model ckpt_10 ckpt_20    and tell which of these checkpoints drew which rollout
  grposcope verify rollouts.jsonl --model base trained --sampler-weights exported
"""


_model = partial(flag, group="checkpoints")


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope verify`."""

    place: str = flag(
        names=(),
        metavar="RUN|ROLLOUTS",
        help="folder of a run, a trainer's log, or rollouts: JSONL "
        "with one per line, or what TRL, verl (rollout_data_dir) and prime-rl write",
    )
    rollouts: Path | None = flag(metavar="PATH", help="where the rollouts are, if not in the folder of the run")
    config: Path | None = flag(metavar="FILE", help="settings of the run: a script, YAML or JSON, as lint reads them")
    reward: str | None = flag(metavar="TEXT", help="the reward function, module:function, to grade the rollouts again")
    task: str | None = flag(metavar="TEXT", help="the task whose reward grades the rollouts again, such as gsm8k")
    model: list[str] | None = _model(
        nargs="+",
        metavar="CHECKPOINT",
        help="in the order of training: folders of checkpoints, a run with checkpoints, tiny, "
        "smollm2 or hub names; rollouts of step N + 1 should be drawn by the weights after N "
        "steps (default: the checkpoints below the folder of the run, where that takes about a "
        "minute; none for none)",
    )
    sampler_weights: str | None = _model(
        metavar="CHECKPOINT",
        help="the weights that the sampler holds; they are compared with those of the last --model",
    )
    temperature: float | None = _model(metavar="X", help="temperature of sampling (default: that of the run, else 1)")
    sampler_precision: str | None = _model(
        metavar="TEXT",
        help="number format of the sampler: float32, bfloat16, fp8 or int8 (default: differences "
        "up to those of bfloat16 are allowed)",
    )
    device: str = _model(default="auto", metavar="TEXT", help="cpu, cuda or auto")
    threads: int = _model(default=0, type=flags.threads, metavar="N", help="CPU threads, 0 for all cores")
    remote_code: bool = _model(default=False, help="allow the model's own code from the hub to run")
    json: bool = json_flag()
    log: LogFlags = flags_of(LogFlags, log_paths="place")


def run(arguments: argparse.Namespace) -> int:
    """Print what becomes of each claim; 1 where one is broken, 2 where nothing could be tested."""
    from grposcope.commands.standard_input import as_file

    with as_file(arguments.place) as file:
        arguments.place = str(file)
        return _verify(arguments)


def _verify(arguments: argparse.Namespace) -> int:
    """The same of what lies at a path."""
    if arguments.dry_run:
        return log_flags.dry_run(arguments)
    from dataclasses import replace

    from grposcope.commands.standard_input import by_name
    from grposcope.faults.judge_rollouts import claim_status
    from grposcope.instruments.verify import answer, graders, live, read
    from grposcope.render import document, terminal
    from grposcope.signs.rollouts.findings import was_tested

    path, number = log_flags.numbered(arguments.place)
    evidence = read.evidence(path, arguments.rollouts, _settings(arguments), _hints(arguments, number))
    grader = graders.of_spec(arguments.reward, arguments.task, evidence.rows)
    if grader is not None:
        evidence = replace(evidence, grader=grader)
    evidence = _with_models(evidence, arguments)
    claims = live.claims(evidence)
    said = answer.of(evidence, claims)
    say(arguments, by_name(terminal.text(said), path))
    untested = {proof.name for proof, findings in claims.items() if claim_status(findings) == "cannot tell"}
    if further := _further(arguments, evidence, untested):
        say(
            arguments,
            "\n".join(
                ["", "to test more:", *(f"  {by_name(command, path, log_flags.STANDARD_INPUT)}" for command in further)]
            ),
        )
    finish(arguments, by_name(document.of_answer(said), path))
    if said.word == "failing":
        return 1
    return 0 if any(was_tested(finding) for findings in claims.values() for finding in findings) else 2


NONE = ["none"]
"""Of --model: checkpoints that lie in the folder are not used either."""


def _with_models(evidence: PipelineEvidence, arguments: argparse.Namespace) -> PipelineEvidence:
    """The evidence with what checkpoints say of it: those asked for, else those that lie in the folder.

    What checkpoints that nobody asked for cannot be used for becomes a note.
    """
    from dataclasses import replace

    from grposcope.instruments.verify import model_folders

    if (arguments.model and arguments.model != NONE) or arguments.sampler_weights:
        from grposcope.instruments.verify import command_model

        return command_model.with_model(evidence, arguments)
    path = Path(arguments.place)
    if arguments.model == NONE or not path.is_dir():
        return evidence
    wanted, note = model_folders.unasked(path, evidence.rows)
    if wanted:
        from grposcope.instruments.verify import command_model

        with_models = argparse.Namespace(**{**vars(arguments), "model": [str(path)]})
        try:
            return command_model.with_model(replace(evidence, named=False), with_models)
        except UserError as error:
            note = f"the checkpoints in {path} were not used: {error}"
    return replace(evidence, notes=(*evidence.notes, note), used=(*evidence.used, note)) if note else evidence


def _further(arguments: argparse.Namespace, evidence: PipelineEvidence, untested: Collection[str]) -> list[str]:
    """Commands that test what this one could not: with weights, with the reward function, on a run that records more.

    All flags that can help are put into one command; words in capitals are the reader's to fill in.
    """
    own = evidence.engine == "grposcope"
    flags = []
    if not evidence.rows:
        flags += [] if arguments.rollouts else ["--rollouts FOLDER"]
    else:
        if not evidence.scored and any(row.completion_ids is not None for row in evidence.rows):
            flags.append(f"--model {arguments.place if own else 'CHECKPOINT CHECKPOINT'}")
        if "rewards" in untested and evidence.grader is None:
            recorded = own and is_record(Path(arguments.place))
            flags += _graded(arguments) if recorded else ["--reward FILE.py:FUNCTION"]
    if evidence.stated.group is None and arguments.config is None:
        flags.append("--config SCRIPT")
    commands = [f"grposcope verify {arguments.place} {' '.join(flags)}"] if flags else []
    if own and "gradient" in untested:
        commands.append("grposcope train --verify-every 10 --checkpoint-every 10    for the next run")
    return commands


def _graded(arguments: argparse.Namespace) -> list[str]:
    """The flags that grade rollouts of our own run as it did: its task and, where it had one, its own reward."""
    settings = read_config(Path(arguments.place)).settings
    reward = settings.get("reward")
    return [f"--task {settings.get('task', 'TASK')}", *([f"--reward {reward}"] if reward else [])]


def _hints(arguments: argparse.Namespace, number: int | None) -> Hints:
    """What the flags say of the log; settings under the trainer's names are for the claims alone."""
    settings = log_flags.known_settings()
    of_log = [text for text in arguments.set if text.partition("=")[0] in settings]
    return log_flags.hints(argparse.Namespace(**{**vars(arguments), "set": of_log}), number)


def _check_names(settings: Mapping[str, Any]) -> None:
    """UserError for a setting that nothing reads."""
    from grposcope.signs.rollouts import pipeline_settings

    known = log_flags.known_settings() | pipeline_settings.NAMES
    for name in settings:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            remedy = (
                f"did you mean {close[0]}?" if close else f"it may be {', '.join(sorted(pipeline_settings.ALIASES))}"
            )
            raise UserError(f"--set {name}: no setting has that name; {remedy}")


def _settings(arguments: argparse.Namespace) -> StatedByCaller:
    """What --config and --set say, the second before the first."""
    from grposcope.instruments.verify.caller_settings import StatedByCaller

    settings = log_flags.named_values(arguments.set)
    _check_names(settings)
    by_hand = dict.fromkeys(settings, "--set")
    file = log_flags.config_beside(arguments, arguments.place)
    if file is None:
        return StatedByCaller(settings, origin=by_hand)
    from grposcope.instruments import has

    if not has("lint"):
        raise UserError("--config needs the module instruments.lint; give settings one by one with --set instead")
    from grposcope.instruments.lint import read as lint

    config = lint.read(file)
    said = {key: config.get(key) for key in config.given if config.get(key) is not None}
    usual = {} if config.partial else {key: config.get(key) for key in config.dialect.defaults}
    defaults = {**{key: value for key, value in usual.items() if value is not None}, **said}
    origin = {**dict.fromkeys(said, str(file)), **by_hand}
    return StatedByCaller({**said, **settings}, defaults, config.dialect.name, origin)
