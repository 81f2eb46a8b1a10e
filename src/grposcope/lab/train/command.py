"""`grposcope train`: a run of GRPO or a relative; every flag is a field of `TrainConfig`."""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag, flags_of
from grposcope.lab.train.config import TrainConfig, check
from grposcope.logs.native.schema import is_record, read_config
from grposcope.logs.native.writer import refuse_used

ENGINES = ("grposcope", "trl")

if TYPE_CHECKING:
    from grposcope.lab.train.result import TrainResult

DESCRIPTION = "Train a language model from verifiable rewards and record the run."
EXAMPLES = """\
examples:
  grposcope train                                            the shipped model learns arithmetic, about a minute
  grposcope train --task arithmetic:steps=4,largest=50       harder sums
  grposcope train --recipe dr_grpo --kl 0.01 --seed 1        another objective, held to the starting policy
  grposcope train --model smollm2 --task gsm8k:gsm8k/ --steps 3 --group 8 --prompts 2 --max-tokens 128
  grposcope train --resume runs/20260101-120000-tiny-grpo    continue a run that was stopped
  grposcope train --engine trl --steps 100                   the same run by TRL
  torchrun --nproc_per_node 2 -m grposcope train --engine trl --out runs/two --trl vllm_mode=colocate
  grposcope train --model Qwen/Qwen2.5-0.5B-Instruct --task jsonl:mine.jsonl --reward rewards.py:score
"""

COMMON = (
    "--model", "--task", "--recipe", "--out", "--resume", "--seed", "--steps", "--prompts", "--group", "--max-tokens",
    "--lr", "--kl", "--eval-every", "--device", "--json",
)  # fmt: skip
"""The flags that the short help shows."""


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope train`."""

    resume: str | None = flag(
        metavar="RUN", help="resume the run in this folder from its last checkpoint, with its own settings"
    )
    engine: str = flag(
        default="grposcope",
        choices=ENGINES,
        help="what runs the training: GRPOscope's own loop, or TRL (also under torchrun) with the same tasks, "
        "recipes, record and page (default: grposcope)",
    )
    trl: list[str] = flag(
        default=[],
        action="append",
        metavar="KEY=VALUE",
        help="an argument of TRL for engine trl: of GRPOConfig (vllm_…, fsdp…, deepspeed, …), or use_peft and "
        "lora_…; JSON or plain text; may be repeated",
    )
    json: bool = json_flag()
    settings: TrainConfig = flags_of(TrainConfig, unset=True)


def check_flags(arguments: argparse.Namespace) -> None:
    """UserError for settings that cannot work, before anything is loaded."""
    if arguments.resume == "":
        raise UserError(
            "--resume names no folder; give that of the run to resume, or leave --resume out to begin a new run"
        )
    if arguments.resume or arguments.engine != "grposcope":  # the settings are those of the run, or TRL's to refuse
        return
    try:
        config = TrainConfig(**_given(arguments))
        check(config)
        if config.out is not None:
            refuse_used(Path(config.out))
    except UserError as error:
        raise UserError(_with_flags(str(error))) from None


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that flags were given for."""
    given = {f.name: getattr(arguments, f.name) for f in fields(TrainConfig) if hasattr(arguments, f.name)}
    return {name: "; ".join(value) if isinstance(value, list) else value for name, value in given.items()}


def run(arguments: argparse.Namespace) -> int:
    """Train and print what came of it; the exit status is 130 after Ctrl-C, 143 after SIGTERM."""
    from transformers.utils import logging

    warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\.|trl\.")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        result = _train(arguments, _given(arguments))
    except UserError as error:
        if int(os.environ.get("RANK", "0")):  # the first process says it
            return 2
        raise UserError(_with_flags(str(error))) from None
    if int(os.environ.get("RANK", "0")):
        return 0
    if result.interrupted:
        print(_stopped(result), file=sys.stderr)
    verdict = _verdict(result.folder)
    say(arguments, _outcome(result))
    if verdict:
        say(arguments, f"\n{verdict} (why, and what to do: grposcope diagnose {result.folder})")
    say(arguments, f"\n{_next_commands(result)}")
    finish(arguments, {**_document(result), "verdict": verdict})
    return 143 if result.terminated else 130 if result.interrupted else 0


def _verdict(folder: Path) -> str:
    """The first line of `grposcope diagnose` of the record in `folder`; empty where that is not there, or refuses."""
    from grposcope.instruments import has

    if not has("diagnosis"):
        return ""
    from grposcope.commands.log_flags import settled
    from grposcope.instruments.diagnosis import answer
    from grposcope.instruments.diagnosis.verdict import findings_of, verdict
    from grposcope.logs import read

    try:
        run = settled(read(folder), None, lambda _: read(folder))
    except UserError:
        return ""
    return answer.of_verdict(verdict(run, findings_of(run))).sentence


def _stopped(result: TrainResult) -> str:
    """At which step a run was stopped, which checkpoint there is, and the command that goes on from it."""
    from grposcope.lab.train import checkpoint

    kept = checkpoint.steps(result.folder)
    of = read_config(result.folder).settings.get("steps")
    where = (
        f"the last checkpoint is of step {max(kept)}"
        if kept
        else "there is no checkpoint yet, so a resumed run starts from its first step"
    )
    return f"stopped after step {result.steps} of {of}; {where}; to continue: grposcope train --resume {result.folder}"


def _outcome(result: TrainResult) -> str:
    """Reward curve of a training run, whether it learned, and what it took."""
    spent = f"{result.rollouts:,} rollouts, {result.tokens:,} tokens in {result.seconds:.0f} s"
    learning = result.learning
    said = [] if learning is None else [learning.sentence, *learning.details]
    return "\n".join([_reward_curve(result), "", *said, f"{result.steps} steps, {spent}"])


def _reward_curve(result: TrainResult) -> str:
    """Mean reward of each batch against the step."""
    import plotext

    from grposcope.render.terminal import plot_text

    plotext.clear_figure()
    if all(0 <= reward <= 1 for reward in result.rewards):
        plotext.ylim(0, 1)
    plotext.plot(range(1, len(result.rewards) + 1), result.rewards, marker="braille")
    return plot_text("mean reward of the rollouts", "step")


def _train(arguments: argparse.Namespace, given: dict[str, Any]) -> TrainResult:
    """The run in the engine asked for, or in that of the run which is resumed."""
    engine = arguments.engine
    if arguments.resume and is_record(Path(arguments.resume)):
        engine = read_config(Path(arguments.resume)).engine
    if arguments.trl and engine != "trl":
        raise UserError("--trl is for engine trl; add --engine trl, or leave it out")
    if engine != "trl":
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UserError("engine grposcope runs in one process; use --engine trl under torchrun")
        from grposcope.lab.train import loop

        return loop.resume(Path(arguments.resume), given) if arguments.resume else loop.train(TrainConfig(**given))
    from grposcope.engines.trl import run

    if not arguments.resume:
        return run.train(TrainConfig(**given), arguments.trl)
    if arguments.trl:
        raise UserError("a resumed run keeps its --trl options; leave them out")
    return run.resume(Path(arguments.resume), given)


def _document(result: TrainResult) -> dict[str, Any]:
    """The result for programs: accuracies with standard errors, counts, speed, paths."""
    folder = result.folder
    paths = {"run": folder, **{name: folder / name for name in ("model", "config.json", "steps.jsonl", "groups.jsonl")}}
    return {
        "heldout": {name: asdict(value) for name, value in result.heldout.items()},
        "best_step": result.best_step,
        "steps": result.steps,
        "rollouts": result.rollouts,
        "tokens": result.tokens,
        "seconds": round(result.seconds, 2),
        "tokens_per_second": round(result.tokens / max(result.seconds, 1e-9), 1),
        "interrupted": result.interrupted,
        "paths": {name: str(path) for name, path in paths.items()},
    }


def _next_commands(result: TrainResult) -> str:
    """Commands worth trying after a run, aligned with what they do."""
    folder = result.folder
    commands = {
        f"grposcope report {folder}": "the whole run on one page",
        f"grposcope diagnose {folder}": "whether anything went wrong, and what to do",
    }
    if result.interrupted:
        commands = {f"grposcope train --resume {folder}": "continue from its last checkpoint, if it has one"} | commands
    else:
        commands[f"grposcope probe --model {folder}"] = "what its gradient is made of, and which group size it needs"
        commands[f"grposcope stability {folder}"] = "how many steps a batch of rollouts may be used for"
    width = max(map(len, commands))
    return "\n".join(["next:", *(f"  {command:{width}}  {purpose}" for command, purpose in commands.items())])


def _with_flags(message: str) -> str:
    """The message with settings written as their flags: one that begins it, and those that can be no words."""
    settings = [setting.name for setting in fields(TrainConfig)]
    first, _, rest = message.partition(" ")
    message = f"{_flag(first)} {rest}" if first in settings and rest.startswith("is ") else message
    compound = "|".join(name for name in settings if "_" in name)
    message = re.sub(rf"(?<![\w/.-])({compound})(?![\w/.-])", lambda match: _flag(match[1]), message)
    return message.replace("choose another folder", "choose another folder with --out")


def _flag(setting: str) -> str:
    return "--" + setting.replace("_", "-")
