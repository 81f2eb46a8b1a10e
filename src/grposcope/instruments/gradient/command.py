"""`grposcope probe`: what the gradient of a model on a task is made of, from one backward pass."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import flags
from grposcope.commands.output import add_json, finish, say
from grposcope.core.errors import UserError
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


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    from grposcope.lab.credit import described
    from grposcope.lab.objectives import advantages, recipes

    what = command.add_argument_group("what")
    what.add_argument("place", nargs="?", metavar="MODEL", help="the same as --model")
    what.add_argument("--model", metavar="TEXT",
                      help="tiny, smollm2, a model folder, the folder of a run or of its checkpoint, or a hub name "
                           "(default: tiny)")  # fmt: skip
    what.add_argument(
        "--checkpoint", type=int, metavar="N", help="for a run: use the checkpoint of step N instead of the final model"
    )
    what.add_argument("--task", metavar="TEXT", help="the task (default: that of the run, else arithmetic)")
    what.add_argument("--reward", metavar="TEXT", help="your own reward function, module:function (with jsonl:PATH)")
    probe_rollouts.add_flags(what)
    what.add_argument("--prompts", type=int, metavar="N", help="prompts (default: 16; with --rollouts, all)")
    what.add_argument("--group", type=int, metavar="N",
                      help="rollouts per prompt (default: 8; with --rollouts, the run's number, or that of "
                           "neighbouring rows of one prompt)")  # fmt: skip
    what.add_argument("--max-tokens", type=int, metavar="N", help="longest completion (default: the run's or task's)")
    what.add_argument(
        "--temperature", type=float, metavar="X", help="temperature of sampling (default: that of the run, else 1)"
    )
    what.add_argument("--seed", type=int, default=0, metavar="N", help="seed of prompts and sampling (default: 0)")
    gradient = command.add_argument_group("gradient")
    gradient.add_argument(
        "--recipe", choices=tuple(recipes.ALL), help="the objective (default: that of the run, else grpo)"
    )
    gradient.add_argument("--advantage", choices=tuple(advantages.ALL),
                          help="what a rollout's reward is compared with (default: that of the run, else the "
                               "recipe's)")  # fmt: skip
    gradient.add_argument("--also", default="", metavar="TEXT", help="further recipes, separated by commas")
    gradient.add_argument("--credit", metavar="TEXT",
                          help=f"{described()} (default: that of the run, else outcome)")  # fmt: skip
    gradient.add_argument("--sweep-group", default="", metavar="TEXT",
                          help="also measure smaller groups, such as 2,4,8")  # fmt: skip
    gradient.add_argument("--controls", action="store_true",
                          help="also measure shuffled, random and absent advantages, and rewards per step")  # fmt: skip
    gradient.add_argument(
        "--tier",
        default="fast",
        choices=("fast", "exact"),
        help="how many singular values: fast, the leading ones with bounds; exact, all of them (default: fast)",
    )
    gradient.add_argument("--lr", type=float, metavar="X",
                          help="learning rate for the share of bfloat16 weights that a step changes (default: the "
                               "model's)")  # fmt: skip
    machine = command.add_argument_group("machine")
    machine.add_argument("--out", metavar="TEXT", help="new folder for gram.npz, probe.json and tokens.jsonl "
                         "(default: probes/step-N of the run, else none)")  # fmt: skip
    machine.add_argument(
        "--dtype", default="float32", choices=("float32", "bfloat16"), help="number format of the weights"
    )
    machine.add_argument("--device", default="auto", metavar="TEXT", help="cpu, cuda or auto")
    machine.add_argument("--threads", type=flags.threads, default=0, metavar="N", help="CPU threads, 0 for all cores")
    machine.add_argument("--checkpointing", action="store_true", help="recompute activations to save memory")
    machine.add_argument("--remote-code", action="store_true", help="allow the model's own code from the hub to run")
    add_json(machine)


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
