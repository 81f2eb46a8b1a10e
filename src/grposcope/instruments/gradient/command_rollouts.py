"""The rollouts that `grposcope probe` measures: drawn for it, or taken from what a trainer wrote (`--rollouts`)."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from grposcope.core import capabilities
from grposcope.core.capabilities import FURTHER_ROLLOUTS, INDEPENDENT, STEP_ENDS, Lack, Part
from grposcope.core.errors import UserError
from grposcope.core.text import number

if TYPE_CHECKING:
    from grposcope.commands.probe_model import ModelSource
    from grposcope.core.rollouts import Rollouts
    from grposcope.core.run import Run
    from grposcope.instruments.gradient.rollout_source import RolloutSource
    from grposcope.lab.objectives import Objective
    from grposcope.lab.policies import Policy
    from grposcope.lab.sampling.resumable_rollouts import DrawnRollouts, DrawPlan
    from grposcope.lab.tasks.base import Task
    from grposcope.lab.workers import Workers

FOREIGN = -0.5
"""Nats per token below the policy's own rollouts from which on texts are refused as those of another policy.

The tokens are then on average 1.6 times less likely than its own would be. On `tiny` 80 updates at a learning rate of
4e-4 move this number by −0.21, other prompts by −5 (experiments/rollouts_under_later_weights.py).
"""


def check_numbers(arguments: argparse.Namespace) -> None:
    """UserError for numbers of prompts or rollouts below 1."""
    for name in ("prompts", "group"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise UserError(f"--{name} {value} must be at least 1")


def logged(arguments: argparse.Namespace, source: ModelSource) -> Rollouts | None:
    """The rollouts of `--rollouts`, None without it; completes the numbers of prompts and rollouts."""
    if arguments.rollouts is None:
        for name in ("step", "reward_weights"):
            if getattr(arguments, name) is not None:
                raise UserError(
                    f"--{name.replace('_', '-')} chooses among the rollouts of a trainer; give --rollouts too"
                )
        arguments.prompts = 16 if arguments.prompts is None else arguments.prompts
        arguments.group = 8 if arguments.group is None else arguments.group
        return None
    check_numbers(arguments)
    batch = _read(arguments, source)
    arguments.prompts, arguments.group = batch.group_rewards.shape
    return batch


def rollouts(
    arguments: argparse.Namespace,
    source: ModelSource,
    logged: Rollouts | None,
    folder: Path | None,
    objective: Objective,
    say: Callable[[str], None],
    workers: Workers,
) -> tuple[Policy, int, DrawnRollouts, RolloutSource | None]:
    """The policy, its longest completion, and graded rollouts; where they came from, if they were not drawn here.

    workers: processes that share the drawing.
    """
    import torch

    from grposcope.lab import policies, tasks
    from grposcope.lab.credit import chosen

    device = policies.device(arguments.device)
    task = None if logged is not None else tasks.load(arguments.task, arguments.reward)
    _check_credit(arguments, task)
    if warning := chosen(arguments.credit).source.warning:
        say(f"warning: {warning}")
    policy = policies.load(source.model, getattr(torch, arguments.dtype), device, arguments.remote_code)
    if logged is not None:
        drawn, origin = _take(arguments, policy, logged, source)
        limit = arguments.max_tokens
    else:
        assert task is not None
        limit, origin = arguments.max_tokens or task.max_tokens, None
        from grposcope.lab.sampling.resumable_rollouts import DrawPlan

        plan = DrawPlan(folder=folder, progress=say, workers=workers)
        drawn = _draw(arguments, source.model, policy, task, limit, objective, plan)
    drawn = _supplied(arguments, source, policy, task, limit, drawn)
    if arguments.checkpointing:
        policies.recompute_activations(policy.model)
    return policy, limit, drawn, origin


def _supplied(
    arguments: argparse.Namespace,
    source: ModelSource,
    policy: Policy,
    task: Task | None,
    limit: int,
    drawn: DrawnRollouts,
) -> DrawnRollouts:
    """The rollouts with what the credit needs of every token; the critic is that of the run."""
    from grposcope.lab.credit import chosen
    from grposcope.lab.sampling.annotation import AnnotationContext
    from grposcope.lab.sampling.annotators import annotator
    from grposcope.lab.train.setup import micro_batch

    learned = Path(source.model).parent if source.run is not None else Path(source.model)
    instruction = "" if task is None else task.instruction
    size = micro_batch(policy, limit)
    context = AnnotationContext(policy, arguments.temperature, size, instruction, arguments.remote_code, learned)
    made = annotator(chosen(arguments.credit), context)
    return drawn if made is None else replace(drawn, rollouts=made(drawn.rollouts, drawn.problems))


def _check_credit(arguments: argparse.Namespace, task: Task | None) -> None:
    """UserError where the credit does not fit a probe, or the rollouts; task: None for those of a trainer."""
    from grposcope.lab.credit import chosen
    from grposcope.lab.tasks.base import part
    from grposcope.lab.train.config import ENGINE

    labels, further = Lack("have no labels of steps", ""), Lack("are not continued", "draw some with --task")
    rollouts_part = Part("the rollouts of a trainer", lacks={STEP_ENDS: labels, FURTHER_ROLLOUTS: further})
    probe = Part("a probe", needs=frozenset({INDEPENDENT}))
    capabilities.check(
        ENGINE, probe, rollouts_part if task is None else part(task), chosen(arguments.credit).part("--credit ")
    )


def _draw(
    arguments: argparse.Namespace,
    model: str,
    policy: Policy,
    task: Task,
    limit: int,
    objective: Objective,
    plan: DrawPlan,
) -> DrawnRollouts:
    """Graded rollouts of the policy on the task, those kept in the folder of the plan among them."""
    from grposcope.lab.credit import chosen
    from grposcope.lab.sampling import generation, resumable_rollouts
    from grposcope.lab.sampling.sampler import Sampling

    credit = chosen(arguments.credit)
    named = {"credit": credit.name} if credit.source.requires(FURTHER_ROLLOUTS) else {}
    names = ("task", "reward", "group", "temperature", "seed", "dtype")
    if plan.folder and resumable_rollouts.incomplete(plan.folder):
        plan.progress(f"{plan.folder} has rollouts of a probe that was interrupted: continuing with them")
    settings = {"model": model, "max_tokens": limit, **{name: getattr(arguments, name) for name in names}, **named}
    return resumable_rollouts.draw(
        policy,
        task,
        objective,
        Sampling(limit, arguments.temperature),
        (arguments.prompts, arguments.group),
        arguments.seed,
        replace(plan, settings=settings, generation=generation.of(credit, task, policy)),
    )


def trained(arguments: argparse.Namespace, source: ModelSource) -> Objective:
    """The objective that a run of TRL trained with, by its arguments; what it leaves out is said."""
    from grposcope.engines.trl import settings

    kind = "RLOOConfig" if source.logged.get("trainer") == "rloo" else "GRPOConfig"
    try:
        trainer_settings, left_out = settings.fresh(
            type(kind, (SimpleNamespace,), {})(**source.logged), arguments.advantage
        )
    except UserError as error:
        raise UserError(f"{source.model}: {error}; or give --recipe for another objective") from None
    except AttributeError as error:
        raise UserError(f"{source.model}: its record lacks the argument {error.name}; give --recipe") from None
    for clause in left_out:
        print(f"not in the objective of this probe: {clause}", file=sys.stderr)
    return trainer_settings


def _read(arguments: argparse.Namespace, source: ModelSource) -> Rollouts:
    """The rollouts that `--rollouts` and `--step` name, in groups; completes the flags that depend on them."""
    from grposcope.logs import logged_rollouts
    from grposcope.logs.formats.log_file import LogFile
    from grposcope.logs.trainers import rollout_files, trl_completions

    place = Path(arguments.rollouts)
    if not place.exists():
        raise UserError(f"--rollouts {place}: there is no such file or folder")
    files = {trl_completions.step_of(path): path for path in trl_completions.files(place)} if place.is_dir() else {}
    if not files and (written := rollout_files.find(place)) is not None:
        step = logged_rollouts.choose(sorted(written.by_step), arguments.step, source.step, place)
        rows = written.logged(step)
        arguments.task = f"rollouts of {rows.engine}, step {step}"
        size = arguments.group if arguments.group is not None else source.settings.get("group")
        return logged_rollouts.grouped(rows, size, None, arguments.prompts)
    if place.is_file() and trl_completions.KIND.recognises(LogFile(place)):
        files = {trl_completions.step_of(place): place}
    if not files:
        raise UserError(
            f"--rollouts {place} holds neither completions_N.parquet of TRL nor N.jsonl of verl, nor "
            "the rollouts of ART, ms-swift, prime-rl or verifiers, nor a rollout a line; give a folder or file with "
            "one of them"
        )
    step = logged_rollouts.choose(sorted(files), arguments.step, source.step, place)
    rows = trl_completions.logged(files[step], _functions(source))
    size = arguments.group if arguments.group is not None else source.settings.get("group")
    arguments.task = f"rollouts of {rows.engine}, step {step}"
    return logged_rollouts.grouped(rows, size, _weights(arguments, source, rows.functions), arguments.prompts)


def _take(
    arguments: argparse.Namespace, policy: Policy, logged: Rollouts, source: ModelSource
) -> tuple[DrawnRollouts, RolloutSource]:
    """The rollouts as token ids, with what was found of them; UserError where they are another policy's."""
    from grposcope.instruments.gradient.retokenize import has_ids, origin, retokenize
    from grposcope.instruments.gradient.rollout_source import DOUBT
    from grposcope.lab.sampling.resumable_rollouts import DrawnRollouts
    from grposcope.lab.tasks.base import Problem

    if arguments.max_tokens is None and has_ids(logged):
        arguments.max_tokens = max(1 if row.completion_ids is None else len(row.completion_ids) for row in logged) + 1
    if arguments.max_tokens is None:
        raise UserError(
            "--rollouts needs --max-tokens, because these files do not state the token limit: give "
            "max_completion_length (TRL) or data.max_response_length (verl), so that truncated completions "
            "are recognised"
        )
    made = retokenize(
        policy,
        logged,
        arguments.max_tokens,
        arguments.temperature,
        source.logged.get("chat_template_kwargs") or {},
        bool(source.logged.get("mask_truncated_completions")),
    )
    about = origin(logged, made, _length_logged(source, logged.step))
    if made.z < -DOUBT and made.excess.value < FOREIGN:
        raise UserError(
            f"--rollouts: {policy.name} did not write {logged.path}: the completions are "
            f"{number(-made.excess.value)} nats per token less likely than the model's own (z = {made.z:.0f}); "
            "give the checkpoint that wrote them, or the --temperature of the run"
        )
    problems = tuple(Problem(f"prompt {i}", prompt) for i, prompt in enumerate(made.prompts))
    return DrawnRollouts(made.rollouts, problems, made.texts), about


def _length_logged(source: ModelSource, step: int) -> float:
    """Mean length of the completions that the trainer logged at this step alone; NaN where it is not known."""
    run = _run(source.output)
    if run is None or run.window != 1 or "length" not in run.table:
        return math.nan
    at = (run.table["step"] == step).nonzero()[0]
    return float(run.table["length"][at[0]]) if len(at) else math.nan


def _functions(source: ModelSource) -> tuple[str, ...]:
    """Names of the reward functions by what the run logged; empty where that is not known."""
    run = _run(source.output)
    names = () if run is None else run.table
    return tuple(name.removeprefix("component/") for name in names if name.startswith("component/"))


@cache
def _run(output: Path | None) -> Run | None:
    """The run in TRL's output folder; None where there is none that can be read."""
    from grposcope import logs as runs

    try:
        return None if output is None else runs.read(output)
    except UserError:
        return None


def _weights(arguments: argparse.Namespace, source: ModelSource, functions: Sequence[str]) -> list[float] | None:
    if arguments.reward_weights is None:
        names = source.logged.get("reward_weights")
        return list(names) if isinstance(names, list) and len(names) == len(functions) else None
    try:
        weights = [float(word) for word in arguments.reward_weights.split(",")]
    except ValueError:
        raise UserError(f"--reward-weights {arguments.reward_weights}: write numbers such as 1,0.5") from None
    if not all(map(math.isfinite, weights)):
        raise UserError(f"--reward-weights {arguments.reward_weights}: weights must be finite")
    return weights
