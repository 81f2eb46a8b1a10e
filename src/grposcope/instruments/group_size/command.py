"""`grposcope plan`: how many rollouts per prompt a budget should buy, from a probe, or what a run's rewards can say."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from grposcope.commands import log_flags as logs
from grposcope.commands.log_flags import LogFlags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag, flags_of
from grposcope.core.run import Meta, Run, no_evaluations, no_groups
from grposcope.instruments.group_size import PlanSettings

if TYPE_CHECKING:
    from grposcope.core.run import Run

DESCRIPTION = "Say how noisy the gradient is and how many rollouts per prompt to draw for a given budget."
EXAMPLES = """\
examples:
  grposcope plan probe/                                   the best group size, its interval, and the cost of others
  grposcope plan probe/ --budget 1024 --multiple 64       prompts × rollouts for 1,024 rollouts, in full batches
  grposcope plan probe/ --prompt-cost 0.2                 reading a prompt costs a fifth of writing an answer
  grposcope plan probe/ --recipe dapo                     for the recipe that is trained
  grposcope plan probe/ --layers                          the same for each layer
  grposcope plan runs/demo                                from the run's probes, pooled, if it has any
  grposcope plan runs/other --last 20                     from rewards alone: dead groups at each group size
"""


def _groups(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(word) for word in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers such as 2,4,8") from None
    if min(sizes) < 2:
        raise argparse.ArgumentTypeError("a group size must be at least 2")
    return sizes


_money = partial(flag, group="budget")
_view = partial(flag, group="view")


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope plan`."""

    path: str = flag(
        names=(),
        metavar="FOLDER",
        help="a probe (grposcope probe), or a run of any supported trainer that logged the reward of each rollout",
    )
    log: LogFlags = flags_of(LogFlags, log_paths="path")
    budget: float | None = _money(metavar="X", help="what a batch may cost (default: the probe's cost)")
    prompt_cost: float = _money(
        default=PlanSettings.prompt_cost,
        metavar="X",
        help="cost of reading a prompt, in the unit of --rollout-cost (default: 0)",
    )
    rollout_cost: float = _money(
        default=PlanSettings.rollout_cost,
        metavar="X",
        help="cost of writing one rollout (default: 1, so that the budget counts rollouts)",
    )
    multiple: int = _money(
        default=PlanSettings.multiple,
        metavar="N",
        help="make the rollouts of a batch a multiple of N, such as devices × micro-batch (default: 1)",
    )
    recipe: str | None = _view(
        metavar="NAME", help="recipe that the run trains with, such as grpo or dapo (default: the probe's, else rloo)"
    )
    groups: tuple[int, ...] = _view(
        default=PlanSettings.groups, type=_groups, metavar="N,N,…", help="group sizes to show (default: 2,4,8,16,32,64)"
    )
    layers: bool = _view(default=False, help="also print the moments and the best group size of each layer")
    truncated: str = _view(
        default=PlanSettings.truncated,
        choices=("keep", "drop"),
        help="rollouts cut at the token limit: keep them or leave them out (default: keep)",
    )
    last: int = _view(
        default=PlanSettings.last, metavar="N", help="for a run without probes: use its last N steps (default: 50)"
    )
    replicates: int = _view(
        default=PlanSettings.replicates, metavar="N", help="bootstrap draws for the intervals (default: 1000)"
    )
    seed: int = _view(default=PlanSettings.seed, metavar="N", help="seed of the bootstrap (default: 0)")
    json: bool = json_flag(group="view")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    from grposcope.instruments.group_size import answer, rewards_alone
    from grposcope.render import document, terminal

    try:
        settings = PlanSettings(**{field.name: getattr(arguments, field.name) for field in fields(PlanSettings)})
    except ValueError as error:
        raise UserError(f"--{error}") from None
    run = _read(logs.numbered(arguments.path)[0], arguments)
    answered = answer.of_run(run, settings)
    say(arguments, terminal.text(answered))
    if answered.document["kind"] == "run":
        prompts = rewards_alone.prompts_to_probe(run, settings.last)
        some = ", for advantages that are the reward less a mean" if answered.document["values"] > 2 else ""
        say(arguments, f"\nto decide{some}:\n{_how_to_probe(run.meta.source, prompts)}\n  {_price(run, prompts)}")
    finish(arguments, {"folder": str(arguments.path), **document.of_answer(answered)})
    return 0


def _read(folder: Path, arguments: argparse.Namespace) -> Run:
    """The run; a folder that has nothing but a Gram matrix or probes counts as one. UserError for a model."""
    from grposcope.instruments.gradient import probe_record as probes
    from grposcope.logs import measurement_folders
    from grposcope.logs.native import schema
    from grposcope.logs.trainers import trl_output

    if schema.is_record(folder) or trl_output.find(folder) is not None or measurement_folders.recognises(folder):
        return logs.read(arguments.path, arguments)
    if (folder / probes.GRAM).is_file() or probes.in_folder(folder):
        return _unnamed(folder)
    if (folder / "config.json").exists() and not trl_output.models(folder):
        raise UserError(
            f"{folder} is a model, and plan needs a probe of its gradients; run grposcope probe --model "
            f"{folder} --out probe, then grposcope plan probe"
        )
    return logs.read(arguments.path, arguments)


def _price(run: Run, prompts: int) -> str:
    """What a probe with so many prompts costs: rollouts, and passes over them."""
    group = run.setting("group")
    group = group if isinstance(group, int) and group > 1 else 8
    return (
        f"price: {prompts * group:,} rollouts ({prompts} prompts × {group}) and one backward pass over them, which "
        "takes 1.2 to 1.6 times as long as that of a training step on as many; the weights stay as they are"
    )


def _how_to_probe(path: Path, prompts: int) -> str:
    """The commands that measure the gradients of a run and plan from them."""
    from grposcope.logs.native import schema
    from grposcope.logs.trainers import trl_output

    if models := trl_output.models(path):
        last = models[max(models)]
        return f"  grposcope probe --model {last} --task TASK --prompts {prompts} --out probe\n  grposcope plan probe"
    if not schema.is_record(path):  # rollouts or a log alone: their model lies elsewhere
        return f"  grposcope probe --model MODEL --task TASK --prompts {prompts} --out probe\n  grposcope plan probe"
    return f"  grposcope probe --model {path} --prompts {prompts}\n  grposcope plan {path}"


def _unnamed(folder: Path) -> Run:
    """A folder with measurements but no record that says of what, as a run without steps and settings."""
    meta = Meta(folder, "unknown", folder.resolve().name, "unknown")
    return Run(meta, {}, {"step": np.empty(0)}, no_groups(), no_evaluations(), folder=folder)
