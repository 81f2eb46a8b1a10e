"""`grposcope probe`: what the gradient of a model on a task is made of, from one backward pass."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import flags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag
from grposcope.instruments.gradient import command_rollouts as probe_rollouts

if TYPE_CHECKING:
    from grposcope.commands.probe_model import ModelSource
    from grposcope.instruments.gradient.probe import Probe
    from grposcope.instruments.gradient.probe_record import ProbeRecord
    from grposcope.lab.objectives import Objective
    from grposcope.lab.policies import Policy
    from grposcope.lab.rollout_batch import RolloutBatch
    from grposcope.lab.sampling.resumable_rollouts import DrawnRollouts
    from grposcope.lab.workers import Workers
    from grposcope.maths.turn_moments import TurnSavings

DESCRIPTION = (
    "Draw rollouts, or take those that a trainer wrote, and measure their gradients: spectra, "
    "credit, sparsity, baseline."
)
EXAMPLES = """\
examples:
  grposcope probe                                            the shipped model on arithmetic, under a minute
  grposcope probe --controls --sweep-group 2,4,8 --tier exact
  grposcope probe --model runs/mine                          the final weights of a run, on its own task
  grposcope probe --model runs/mine --checkpoint 80          those of a checkpoint; grposcope report shows both
  grposcope probe out/checkpoint-200 --rollouts out/completions    a run of TRL, on the rollouts that it wrote
  grposcope probe --model smollm2 --task arithmetic:steps=1,limit=20 --prompts 8 --group 8 --max-tokens 16
"""

COMMON = (
    "--model", "--checkpoint", "--task", "--rollouts", "--prompts", "--group", "--max-tokens", "--recipe", "--credit",
    "--controls", "--tier", "--seed", "--out", "--device", "--json",
)  # fmt: skip
"""The flags that the short help shows."""


def _recipes() -> tuple[str, ...]:
    """Choices of --recipe."""
    from grposcope.lab.objectives import recipes

    return tuple(recipes.ALL)


def _advantages() -> tuple[str, ...]:
    """Choices of --advantage."""
    from grposcope.lab.objectives import advantages

    return tuple(advantages.ALL)


def _credit() -> str:
    """Help of --credit."""
    from grposcope.lab.credit import described

    return f"{described()} (default: that of the run, else outcome)"


_what = partial(flag, group="what")
_gradient = partial(flag, group="gradient")
_machine = partial(flag, group="machine")


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope probe`."""

    place: str | None = _what(names=(), nargs="?", metavar="MODEL", help="the same as --model")
    model: str | None = _what(
        metavar="TEXT",
        help="tiny, smollm2, a model folder, the folder of a run or of its checkpoint, or a hub name (default: tiny)",
    )
    checkpoint: int | None = _what(
        metavar="N", help="for a run: use the checkpoint of step N instead of the final model"
    )
    task: str | None = _what(metavar="TEXT", help="the task (default: that of the run, else arithmetic)")
    reward: str | None = _what(metavar="TEXT", help="your own reward function, module:function (with jsonl:PATH)")
    rollouts: str | None = _what(
        metavar="PATH",
        help="use prompts and completions that a trainer wrote instead of sampling: TRL's "
        "OUTPUT_DIR/completions, verl's rollout_data_dir",
    )
    step: int | None = _what(
        metavar="N",
        help="with --rollouts: the step to use (default: the one whose rollouts the checkpoint drew, "
        "else the last before it)",
    )
    reward_weights: str | None = _what(
        metavar="TEXT",
        help="with --rollouts: weights of several reward functions, such as 1,0.5 (default: the run's, else all 1)",
    )
    prompts: int | None = _what(metavar="N", help="prompts (default: 16; with --rollouts, all)")
    group: int | None = _what(
        metavar="N",
        help="rollouts per prompt (default: 8; with --rollouts, the run's number, or that of "
        "neighbouring rows of one prompt)",
    )
    max_tokens: int | None = _what(metavar="N", help="longest completion (default: the run's or task's)")
    temperature: float | None = _what(metavar="X", help="temperature of sampling (default: that of the run, else 1)")
    seed: int = _what(default=0, metavar="N", help="seed of prompts and sampling (default: 0)")
    recipe: str | None = _gradient(choices=_recipes, help="the objective (default: that of the run, else grpo)")
    advantage: str | None = _gradient(
        choices=_advantages,
        help="what a rollout's reward is compared with (default: that of the run, else the recipe's)",
    )
    also: str = _gradient(default="", metavar="TEXT", help="further recipes, separated by commas")
    credit: str | None = _gradient(metavar="TEXT", help=_credit)
    sweep_group: str = _gradient(default="", metavar="TEXT", help="also measure smaller groups, such as 2,4,8")
    controls: bool = _gradient(
        default=False, help="also measure shuffled, random and absent advantages, and rewards per step"
    )
    tier: str = _gradient(
        default="fast",
        choices=("fast", "exact"),
        help="how many singular values: fast, the leading ones with bounds; exact, all of them (default: fast)",
    )
    lr: float | None = _gradient(
        metavar="X", help="learning rate for the share of bfloat16 weights that a step changes (default: the model's)"
    )
    out: str | None = _machine(
        metavar="TEXT",
        help="new folder for gram.npz, probe.json and tokens.jsonl (default: probes/step-N of the run, else none)",
    )
    dtype: str = _machine(default="float32", choices=("float32", "bfloat16"), help="number format of the weights")
    device: str = _machine(default="auto", metavar="TEXT", help="cpu, cuda or auto")
    threads: int = _machine(default=0, type=flags.threads, metavar="N", help="CPU threads, 0 for all cores")
    checkpointing: bool = _machine(default=False, help="recompute activations to save memory")
    remote_code: bool = _machine(default=False, help="allow the model's own code from the hub to run")
    json: bool = json_flag(group="machine")


def check_flags(arguments: argparse.Namespace) -> None:
    """UserError for flags that cannot work with any model."""
    from grposcope.lab import batch_memory
    from grposcope.lab.credit import chosen

    if arguments.place is not None and arguments.model is not None:
        raise UserError(f"{arguments.place} and --model {arguments.model} both name a model; give only one")
    if arguments.credit is not None:
        chosen(arguments.credit)
    _checked(arguments)
    if arguments.rollouts is None:
        sizes = {"--prompts": arguments.prompts or 16, "--group": arguments.group or 8}
        batch_memory.check(sizes, arguments.max_tokens, gram=True, longest="--max-tokens")


def run(arguments: argparse.Namespace) -> int:
    """Draw, measure, print; the exit status is 130 after Ctrl-C. Processes that torchrun started share the work."""
    from grposcope.engines import distributed

    with distributed.launched(arguments.device) as workers:
        return _run(arguments, workers)


def _run(arguments: argparse.Namespace, workers: Workers) -> int:
    """The command in one of the processes; the first writes the probe and prints."""
    import torch
    from transformers.utils import logging

    from grposcope.commands import probe_model
    from grposcope.instruments.gradient import answer, probe
    from grposcope.instruments.gradient import recording as records
    from grposcope.lab.objectives import recipes
    from grposcope.lab.sampling import resumable_rollouts
    from grposcope.render import document, terminal

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if arguments.model == "":
        raise UserError("--model is empty; name a model folder, a run or a hub name")
    arguments.model = arguments.place or arguments.model or "tiny"
    source = probe_model.find(arguments.model, arguments.checkpoint)
    of_run = arguments.recipe is None and bool(source.logged)
    source.complete(arguments)
    logged = probe_rollouts.logged(arguments, source)
    sweep, also = _checked(arguments)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    folder = workers.gathered(_folder(arguments.out, source.place) if workers.number == 0 else None)[0]
    objective = probe_rollouts.trained(arguments, source) if of_run else _objective(arguments)
    try:
        policy, limit, drawn, origin = probe_rollouts.rollouts(
            arguments, source, logged, folder, replace(objective, resample_dead=False, overlong=0.0), _say, workers
        )
        model: Any = policy.model
        taken = "drawn" if origin is None else "taken"
        _say(f"{len(drawn.texts)} rollouts {taken}, mean reward {float(drawn.rollouts.rewards.mean()):.3f}")
        measured = probe.probe(
            model,
            drawn.rollouts,
            objective.at_length(limit),
            credit=arguments.credit,
            temperature=arguments.temperature,
            tier=arguments.tier,
            sweep=sweep,
            also=[recipes.ALL[name].at_length(limit) for name in also],
            controls=arguments.controls,
            learning_rate=policy.learning_rate if arguments.lr is None else arguments.lr,
            seed=arguments.seed,
            progress=_say if sys.stderr.isatty() else lambda _: None,
            foretold=_say if workers.size == 1 else None,
            workers=workers,
        )
    except KeyboardInterrupt:
        if folder and resumable_rollouts.incomplete(folder):
            _say(f"the rollouts drawn so far are kept in {folder}: the same command continues with them")
        raise
    if workers.number:
        return 0
    saved = _turns(model, drawn.rollouts, arguments.temperature) if workers.size == 1 and measured.complete else None
    record = records.record(measured, arguments.model, arguments.task, arguments.seed, source.step, origin, saved)
    paths = {} if folder is None else _write(folder, measured, record, drawn, policy)
    result = answer.of_probe(record)
    say(arguments, terminal.text(result))
    say(arguments, _where_it_is(folder, source, record.complete))
    finish(arguments, document.of_answer(result) | {"paths": paths})
    return 0 if record.complete else 130


def _where_it_is(folder: Path | None, source: ModelSource, complete: bool) -> str:
    """Where the probe was written, and what can be done with it."""
    if not folder:
        return "nothing was written; give --out FOLDER to use the probe in plan and report"
    shown = f"; grposcope report {source.run} shows it" if folder == source.place else ""
    again = "" if complete else "; the same command continues with these rollouts"
    return f"written to {folder}{shown}{again}"


def _turns(model: Any, rollouts: RolloutBatch, temperature: float) -> TurnSavings | None:
    """What credit for turns would save; None for rollouts of one turn, and where groups are too small to tell."""
    from grposcope.instruments.gradient import turns
    from grposcope.maths import turn_moments

    if not turns.several(rollouts):
        return None
    if rollouts.groups[1] < turn_moments.LEAST:
        _say(f"what credit for turns saves is left out: groups of {rollouts.groups[1]} do not show it")
        return None
    _say("the rollouts have several turns: a pass more with a row for each turn shows what credit for turns would save")
    return turns.savings(rollouts, turns.measure(model, rollouts, temperature))


def _write(folder: Path, measured: Probe, record: ProbeRecord, drawn: DrawnRollouts, policy: Policy) -> dict[str, str]:
    """Write the probe into `folder`, with the text of every token; returns the paths."""
    from grposcope.instruments.gradient import probe_record as probes
    from grposcope.instruments.gradient import recording as records
    from grposcope.lab.sampling import resumable_rollouts

    tokens = [
        [str(policy.tokenizer.decode([i])) for i in ids[frequent].tolist()]
        for ids, frequent in zip(drawn.rollouts.tokens, drawn.rollouts.mask, strict=True)
    ]
    rollouts = records.rollouts(measured, drawn.problems, drawn.texts, tokens)
    paths = probes.write(folder, record, records.gram(measured), rollouts)
    if record.complete:
        resumable_rollouts.discard(folder)
    return {name: str(path) for name, path in paths.items()}


def _folder(out: str | None, place: Path | None) -> Path | None:
    """The folder for results, `out` or else the `place` in the run: empty, new, or of a probe that was stopped."""
    from grposcope.lab.sampling import resumable_rollouts

    folder = Path(out) if out is not None else place
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}; choose another --out") from None
    if any(folder.iterdir()) and not resumable_rollouts.incomplete(folder):
        what = "this model was probed before, " if out is None else ""
        raise UserError(f"{folder} is not empty: {what}nothing was changed; choose another --out, or delete it first")
    return folder


def _checked(arguments: argparse.Namespace) -> tuple[list[int], list[str]]:
    """The group sizes of the sweep and the further recipes, once the flags make sense."""
    from grposcope.lab.objectives import recipes

    probe_rollouts.check_numbers(arguments)
    if arguments.temperature is not None and not arguments.temperature > 0:
        raise UserError(f"--temperature {arguments.temperature:g} must be above 0: greedy rollouts are all equal")
    if arguments.group is not None and arguments.group < 2:
        raise UserError(
            f"--group {arguments.group}: a probe compares the rollouts of a prompt; use --group 2 or more, 8 is usual"
        )
    try:
        sweep = [int(word) for word in arguments.sweep_group.split(",") if word.strip()]
    except ValueError:
        raise UserError(f"--sweep-group {arguments.sweep_group}: write whole numbers such as 2,4,8") from None
    for size in sweep:
        most = _most(arguments)
        if size < 2 or (most is not None and size > most):
            raise UserError(f"--sweep-group {size} must be between 2 and --group {most or 8}")
    also = [word.strip() for word in arguments.also.split(",") if word.strip()]
    for name in also:
        if name not in recipes.ALL:
            raise UserError(f"--also {name}: there is no such recipe; the recipes are {', '.join(recipes.ALL)}")
    return sweep, also


def _most(arguments: argparse.Namespace) -> int | None:
    """Rollouts per prompt; None where the rollouts of a trainer decide that and are not read yet."""
    if arguments.group is None and arguments.rollouts is None:
        return 8
    return arguments.group


def _objective(arguments: argparse.Namespace) -> Objective:
    """The recipe, with the advantage asked for."""
    from grposcope.lab.objectives import recipes

    recipe = recipes.ALL[arguments.recipe]
    return recipe if arguments.advantage is None else recipes.with_advantage(recipe, arguments.advantage)


def _say(message: str) -> None:
    print(message, file=sys.stderr)
