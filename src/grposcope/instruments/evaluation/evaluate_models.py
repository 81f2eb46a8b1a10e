"""Evaluation of models on tasks, problem by problem: what a folder lacks is drawn, graded and written there.

The random numbers of a completion come from the seed, the task, the place of its problem and its own number, and from
nothing else: how many completions are drawn at a time, how many problems there are, and where a process was stopped
change nothing, but for rounding in the logits, which may tip a draw once in a long while. All models get the same
numbers, so that models that differ little write alike and their differences are less noisy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import torch
from torch import Tensor

from grposcope.core.environment import environment
from grposcope.core.errors import UserError
from grposcope.instruments.evaluation import record as evaluation
from grposcope.instruments.evaluation.record import (
    BATCH,
    Completion,
    EvaluatedProblem,
    EvaluatedTask,
    EvaluationPlan,
    EvaluationView,
)
from grposcope.lab.policies import Policy, encode
from grposcope.lab.sampling.rollouts import generator
from grposcope.lab.sampling.sampler import Sampling, sample
from grposcope.lab.tasks.base import Problem, Split, Task, grade

BROKEN = 16
"""Completions whose grading fails one and all, so that the grader is broken rather than a completion odd."""

PARTS = 1024
"""Values of each parameter that go into the digest of a model's weights."""


@dataclass(frozen=True)
class FoundTask:
    """A task with the problems that are evaluated, in order."""

    task: Task
    problems: tuple[Problem, ...]
    found: EvaluatedTask


def find_task(task: Task, plan: EvaluationPlan) -> FoundTask:
    """The problems of the split, the first `limit` of them; UserError where there are none."""
    splits: tuple[Split, ...] = ("train", "heldout") if plan.split == "all" else (plan.split,)  # type: ignore[assignment]
    if plan.split == "all" and getattr(task, "train", None) is False:  # of a benchmark, all are held out
        splits = ("heldout",)
    every = tuple(problem for split in splits for problem in task.problems(split))
    problems = every[: plan.limit]
    if not problems:
        raise UserError(f"{task.name} has no problems in the split {plan.split}; choose another split")
    text = json.dumps([(problem.id, problem.prompt, problem.answer) for problem in problems])
    evaluated = EvaluatedTask(
        task.name,
        len(problems),
        len(every),
        plan.max_tokens or task.max_tokens,
        hashlib.sha256(text.encode()).hexdigest()[:16],
        dict(getattr(task, "left_out", {})),
    )
    return FoundTask(task, problems, evaluated)


def draw(
    folder: Path,
    plan: EvaluationPlan,
    tasks: Mapping[str, FoundTask],
    load: Callable[[str], Policy],
    view: EvaluationView,
    batch: int = BATCH,
    reward_timeout: float = 0,
    progress: Callable[[str, str, int], None] = lambda model, task, problems: None,
) -> None:
    """Evaluate what the folder lacks. A model is loaded only where some of its problems are missing.

    load: the policy of a name in the plan. view: how the folder is shown. batch: completions drawn at a time. progress:
    is told of problems that are done, those that were there before first. UserError where the folder holds another
    evaluation, a model does not load or a prompt does not fit into its context.
    """
    found = {name: task.found for name, task in tasks.items()}
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    with evaluation.opened(folder, plan, found, view, environment(), now) as writer:
        rows = evaluation.read(folder).rows
        done = {key: {row.index for row in some} for key, some in rows.items()}
        for model in plan.models:
            missing = {
                name: [i for i in range(len(task.problems)) if i not in done.get((model, name), ())]
                for name, task in tasks.items()
            }
            for name, indices in missing.items():
                progress(model, name, len(tasks[name].problems) - len(indices))
            if not any(missing.values()):
                continue
            policy = load(model)
            writer.check_model(model, _digest(policy))
            for name, indices in missing.items():  # a prompt that does not fit is told before hours of work
                if indices:
                    one = tasks[name]
                    prompts = [one.problems[i].prompt for i in indices]
                    encode(policy, prompts, one.task.instruction, one.found.max_tokens)
            for name, indices in missing.items():
                for evaluated in _evaluated(policy, model, name, tasks[name], indices, plan, batch, reward_timeout):
                    writer.add(evaluated)
                    progress(model, name, len(evaluated))


def _digest(policy: Policy) -> str:
    """Digest of the weights, from PARTS values of each parameter."""
    sha = hashlib.sha256()
    for name, parameter in policy.model.named_parameters():
        values = parameter.detach().reshape(-1)
        some = values[:: max(1, len(values) // PARTS)].float().cpu().contiguous()
        sha.update(f"{name} {tuple(parameter.shape)}".encode() + some.numpy().tobytes())
    return sha.hexdigest()[:16]


def _evaluated(
    policy: Policy,
    model: str,
    name: str,
    one: FoundTask,
    indices: Sequence[int],
    plan: EvaluationPlan,
    batch: int,
    reward_timeout: float,
) -> Iterator[list[EvaluatedProblem]]:
    """The problems `indices` of a task, some at a time."""
    task, sampling = one.task, Sampling(one.found.max_tokens, plan.temperature)
    size = max(1, batch // plan.samples)
    for start in range(0, len(indices), size):
        part = indices[start : start + size]
        problems = [one.problems[i] for i in part]
        ids, mask = encode(policy, [p.prompt for p in problems], task.instruction, sampling.max_tokens)
        texts: list[list[str]] = [[] for _ in part]
        lengths: list[list[int]] = [[] for _ in part]
        cut: list[list[bool]] = [[] for _ in part]
        for first in range(0, plan.samples, batch):
            count = min(batch, plan.samples - first)
            numbers = _numbers(plan.seed, name, part, range(first, first + count), sampling.max_tokens)
            drawn = sample(
                policy.model, (ids, mask), count, sampling, policy.eos, policy.pad, numbers.to(policy.model.device)
            )
            written = policy.tokenizer.batch_decode(drawn.tokens, skip_special_tokens=True)
            for row, (text, length, truncated) in enumerate(
                zip(written, drawn.mask.sum(-1).tolist(), drawn.truncated.tolist(), strict=True)
            ):
                texts[row // count].append(text)
                lengths[row // count].append(int(length))
                cut[row // count].append(bool(truncated))
        asked = [problem for problem in problems for _ in range(plan.samples)]
        graded = _graded(task, asked, [text for some in texts for text in some], reward_timeout)
        yield [
            EvaluatedProblem(
                model,
                name,
                index,
                problem.id,
                problem.prompt,
                problem.answer,
                tuple(
                    _completion(task, problem, texts[i][j], *graded[i * plan.samples + j], lengths[i][j], cut[i][j])
                    for j in range(plan.samples)
                ),
            )
            for i, (index, problem) in enumerate(zip(part, problems, strict=True))
        ]


def _numbers(seed: int, task: str, problems: Sequence[int], samples: range, tokens: int) -> Tensor:
    """Uniform numbers in [0, 1), a row per completion, prompt-major."""
    return torch.stack(
        [torch.rand(tokens, generator=generator(seed, "evaluate", task, i, j)) for i in problems for j in samples]
    )


def _graded(
    task: Task, problems: Sequence[Problem], texts: Sequence[str], seconds: float
) -> list[tuple[float | None, str]]:
    """Reward of each completion and "", or None and why its grading failed; UserError where it fails on all of many."""
    try:
        return [(reward, "") for reward in grade(task, problems, texts, seconds)]
    except UserError as error:
        together = error
    alone: list[tuple[float | None, str]] = []
    for problem, text in zip(problems, texts, strict=True):
        try:
            alone.append((grade(task, [problem], [text], seconds / 4)[0], ""))
        except UserError as error:
            alone.append((None, str(error)))
            if len(alone) == BROKEN and all(reward is None for reward, _ in alone):
                raise together from None
    return alone


def _completion(
    task: Task, problem: Problem, text: str, reward: float | None, reason: str, tokens: int, truncated: bool
) -> Completion:
    if reward is None:
        return Completion(text, "failed", 0.0, tokens, truncated, None, reason[:300])
    if reward >= 1:
        return Completion(text, "right", reward, tokens, truncated)
    answer = task.answer_in(problem, text)
    return Completion(text, "unread" if answer == "" else "wrong", reward, tokens, truncated, answer)
