"""`grposcope credit`: whether finer credit would help a model on a task, and what it would cost, before paying."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from grposcope.commands import flags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag
from grposcope.lab import batch_memory

if TYPE_CHECKING:
    from grposcope.commands.probe_model import ModelSource
    from grposcope.instruments.credit.frontier import CreditBudget
    from grposcope.lab.policies import Policy
    from grposcope.lab.sampling.sampler import Sampling

DESCRIPTION = (
    "Compare every source of credit on the same rollouts of a frozen policy: what exact credit would "
    "save, what each source does to the gradient, and how many tokens it costs."
)
EXAMPLES = """\
examples:
  grposcope credit tiny --task arithmetic                 40 prompts × 8 rollouts, 128 continuations per step: minutes
  grposcope credit runs/mine --checkpoint 80              a checkpoint of a run, on its own task; the page shows it
  grposcope credit smollm2 --task arithmetic:steps=2,limit=20 --prompts 8 --continuations 4
  grposcope credit tiny --prompts 160 --out credit/tiny   narrower intervals; grposcope report credit/tiny draws them
"""

SMALL = {"prompts": 40, "group": 8, "reference": 64}
"""What is drawn of a model with fewer than 10 million parameters."""

LARGE = {"prompts": 16, "group": 8, "reference": 8}
"""What is drawn of a larger one."""

SOURCES = 12
"""Sources of credit whose gradients are kept, about."""

LEAST = {"prompts": 3, "group": 2, "reference": 4}
"""What is drawn at least."""


_what = partial(flag, group="what")
_draw = partial(flag, group="how much")
_machine = partial(flag, group="machine")


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope credit`."""

    model: str = _what(
        names=(),
        default="tiny",
        nargs="?",
        metavar="MODEL",
        help="tiny, smollm2, a model folder, the folder of a run or of its checkpoint, or a hub name (default: tiny)",
    )
    checkpoint: int | None = _what(
        metavar="N", help="for a run: use the checkpoint of step N instead of the final model"
    )
    task: str | None = _what(metavar="TEXT", help="the task (default: that of the run, else arithmetic)")
    reward: str | None = _what(metavar="TEXT", help="your own reward function, module:function (with jsonl:PATH)")
    max_tokens: int | None = _what(metavar="N", help="longest completion (default: the run's or task's)")
    temperature: float | None = _what(metavar="X", help="temperature of sampling (default: that of the run, else 1)")
    seed: int = _what(
        default=0, type=flags.whole(0, 2**63 - 1), metavar="N", help="seed of prompts and sampling (default: 0)"
    )
    prompts: int | None = _draw(metavar="N", help="prompts (default: 40 for a small model, 16 for others)")
    group: int | None = _draw(metavar="N", help="rollouts per prompt that get credit (default: 8)")
    reference: int | None = _draw(
        metavar="N",
        help="further rollouts of each prompt, to measure the true gradient (default: 64 for a small model, 8 "
        "for others)",
    )
    oracle: int | None = _draw(
        metavar="N",
        help="continuations from the end of each step, which define exact credit (default: 128 for a "
        "small model, none for others)",
    )
    no_oracle: bool = _draw(default=False, help="draw no more continuations than --continuations asks for")
    continuations: str = _draw(
        default="2,4,8", metavar="TEXT", help="numbers of continuations to evaluate, such as 2,4,8 (default: 2,4,8)"
    )
    trees: str = _draw(
        default="2x2x2,4x2",
        metavar="TEXT",
        help="widths of trees whose leaves replace the group, such as 2x2x2,4x2; empty for none (default: 2x2x2,4x2)",
    )
    out: str | None = _machine(
        metavar="TEXT",
        help="folder for credit.json and credit-tokens.jsonl, which may "
        "already hold a probe (default: credit/step-N of the run, else none)",
    )
    dtype: str = _machine(default="float32", choices=("float32", "bfloat16"), help="number format of the weights")
    device: str = _machine(default="auto", metavar="TEXT", help="cpu, cuda or auto")
    threads: int = _machine(default=0, type=flags.threads, metavar="N", help="CPU threads, 0 for all cores")
    remote_code: bool = _machine(default=False, help="allow the model's own code from the hub to run")
    json: bool = json_flag(group="machine")


def check_flags(arguments: argparse.Namespace) -> None:
    """UserError for flags that cannot work with any model."""
    _counts(arguments)
    _trees(arguments)
    _check_sampling(arguments)
    for name, least in LEAST.items():
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise UserError(f"--{name} {value} must be at least {least}")
    given = {name: getattr(arguments, name) or 1 for name in ("prompts", "group", "reference")}
    rollouts = given["group"] + given["reference"]
    sizes = {"--prompts": given["prompts"], "--group + --reference": rollouts}
    batch_memory.check(sizes, arguments.max_tokens, gram=True, longest="--max-tokens")


def run(arguments: argparse.Namespace) -> int:
    """Draw, compare, print."""
    import torch
    from transformers.utils import logging

    from grposcope.commands import probe_model
    from grposcope.instruments.credit import frontier as credit_frontier
    from grposcope.instruments.credit import record as records
    from grposcope.instruments.credit.answer import of_record
    from grposcope.lab import policies, tasks
    from grposcope.lab.sampling.sampler import Sampling
    from grposcope.render import document, terminal

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    counts = _counts(arguments)
    source = probe_model.find(arguments.model, arguments.checkpoint)
    _complete(arguments, source)
    task = tasks.load(arguments.task, arguments.reward)
    place = None if source.run is None else source.run / records.FOLDER / f"step-{source.step:06d}"
    folder = _folder(arguments.out, place)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device = policies.device(arguments.device)
    policy = policies.load(source.model, getattr(torch, arguments.dtype), device, arguments.remote_code)
    budget = _budget(arguments, policy, counts)
    sampling = Sampling(arguments.max_tokens or task.max_tokens, arguments.temperature)
    _foretell(policy, budget, sampling)
    frontier = credit_frontier.measure(
        policy, task, budget, sampling, arguments.seed, source.step, not sys.stderr.isatty(), _critic(source)
    )
    answer = of_record(frontier.record)
    say(arguments, terminal.text(answer))
    paths = {}
    if folder is not None:
        paths = {name: str(path) for name, path in records.write(folder, frontier.record, frontier.rollouts).items()}
        shown = source.run if folder == place else folder
        say(arguments, f"written to {folder}; grposcope report {shown} draws it")
    else:
        say(arguments, "nothing was written; give --out FOLDER to draw it with grposcope report")
    finish(arguments, document.of_answer(answer) | {"paths": paths})
    return 0


def _foretell(policy: Policy, budget: CreditBudget, sampling: Sampling) -> None:
    """Say what a model that is not small will take; UserError where that does not fit into memory.

    A group's passes go together; a gradient is kept as random sums of its entries, with a sign of each. Continuations
    come on top of the time, since how many places they begin at is not known before the rollouts are.
    """
    from grposcope.instruments.credit.gradients import WIDTH, trainable
    from grposcope.lab import policies
    from grposcope.lab.sampling import pass_cost

    model, rows = policy.model, budget.prompts * (budget.group + budget.reference)
    largest = max(budget.group, budget.reference)
    trained = trainable(policy).values()
    gradient = sum(p.numel() * (p.itemsize + 1) for p in trained)
    entries = min(WIDTH, sum(p.numel() for p in trained))
    gradient_bytes = 4.0 * SOURCES * budget.prompts * entries
    needed = gradient + gradient_bytes + largest * pass_cost.autograd_bytes(model, sampling.max_tokens)
    batch_memory.refuse_if_full(
        "credit", needed, policies.available_memory(model.device),
        "give a smaller --group and --reference, fewer --max-tokens, --dtype bfloat16 or a smaller model",
    )  # fmt: skip
    if not policy.small:
        drawing, passes = pass_cost.step_seconds(model, rows, sampling.max_tokens)
        said = batch_memory.foretold("credit", needed, drawing + passes)
        print(f"{said}; continuations take more time", file=sys.stderr)


def _complete(arguments: argparse.Namespace, source: ModelSource) -> None:
    """Set the task and how it is sampled where they were not given: as in the run, else the defaults."""
    if source.task_unknown and arguments.task is None:
        raise UserError(
            f"{source.model} is a checkpoint of TRL, which does not name its task; give --task, such as "
            "gsm8k, or jsonl:PATH with --reward MODULE:FUNCTION for your own"
        )
    own = arguments.task is None or arguments.task == source.settings.get("task")
    for name, default in (("task", "arithmetic"), ("reward", None), ("max_tokens", None), ("temperature", 1.0)):
        if getattr(arguments, name) is None:
            recorded = source.settings.get(name) if own or name == "temperature" else None
            setattr(arguments, name, default if recorded is None else recorded)
    _check_sampling(arguments)


def _check_sampling(arguments: argparse.Namespace) -> None:
    """UserError for a temperature or a length with which nothing can be compared."""
    if arguments.temperature is not None and not arguments.temperature > 0:
        raise UserError(f"--temperature {arguments.temperature:g} must be above 0: greedy rollouts are all equal")
    if arguments.max_tokens is not None and arguments.max_tokens < 2:
        raise UserError(f"--max-tokens {arguments.max_tokens} leaves no room for a step; use 2 or more")


def _critic(source: ModelSource) -> tuple[str, Path] | None:
    """The credit of a run that was trained with a critic, and the folder that has it; None for other models."""
    from grposcope.lab.sampling.critic import FILE

    used = str(source.settings.get("credit") or "")
    folder = Path(source.model).parent
    if source.run is None or used.partition(":")[0] != "value" or not (folder / FILE).is_file():
        return None
    return used, folder


def _counts(arguments: argparse.Namespace) -> tuple[int, ...]:
    """The numbers of continuations that are priced."""
    try:
        counts = tuple(sorted({int(word) for word in arguments.continuations.split(",") if word.strip()}))
    except ValueError:
        raise UserError(f"--continuations {arguments.continuations}: write whole numbers such as 2,4,8") from None
    if not counts or min(counts) < 1:
        raise UserError(
            f"--continuations {arguments.continuations}: K must be 1 or more, because K = 0 estimates nothing"
        )
    if arguments.no_oracle and arguments.oracle is not None:
        raise UserError("--oracle and --no-oracle exclude each other; give only one")
    if arguments.oracle is not None and arguments.oracle < 2:
        raise UserError(f"--oracle {arguments.oracle} must be 2 or more (128 is usual); or give --no-oracle")
    return counts


def _budget(arguments: argparse.Namespace, policy: Policy, counts: tuple[int, ...]) -> CreditBudget:
    """How much to draw, by what was asked for and the size of the model."""
    from grposcope.instruments.credit.frontier import ORACLE, CreditBudget

    sizes = SMALL if policy.small else LARGE
    chosen = {name: sizes[name] if getattr(arguments, name) is None else getattr(arguments, name) for name in sizes}
    oracle = not arguments.no_oracle and (arguments.oracle is not None or policy.small)
    drawn = (arguments.oracle or ORACLE) if oracle else max(2, *counts)
    return CreditBudget(**chosen, drawn=drawn, oracle=oracle, counts=counts, trees=_trees(arguments))


def _trees(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The widths of the trees, which must make sense in themselves; whether they fit the group is said in the table."""
    from grposcope.lab.credit import chosen

    wanted = tuple(word.strip() for word in arguments.trees.split(",") if word.strip())
    for widths in wanted:
        try:
            chosen(f"tree:widths={widths}")
        except UserError as error:
            raise UserError(f"--trees {arguments.trees}: {error}") from None
    return tuple(dict.fromkeys(wanted))


def _folder(out: str | None, place: Path | None) -> Path | None:
    """The folder for results, `out` or else the `place` in the run; UserError where it holds such results."""
    from grposcope.instruments.credit import record as records

    folder = Path(out) if out is not None else place
    if folder is not None and records.recognises(folder):
        raise UserError(f"{folder} holds a {records.RECORD}: nothing was changed; choose another --out, or delete it")
    return folder
