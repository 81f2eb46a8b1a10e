"""Rollouts drawn some prompts at a time and kept in a folder, so that a draw that was stopped can be continued.

Drawing is the slow part of a probe. A probe that was stopped, even killed, continues when it is asked for again: it
takes the rollouts that were kept, draws the others, and makes the backward pass anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from grposcope.core.errors import UserError
from grposcope.core.files import atomic
from grposcope.lab.objectives import Objective
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.draw_settings import DrawSettings
from grposcope.lab.sampling.generation import Generation
from grposcope.lab.sampling.rollouts import collect, drawn_problems, generator, joined
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.base import Problem, Task
from grposcope.lab.workers import ALONE, Workers

PROMPTS = 16
"""Prompts that are drawn, and kept, at a time."""

FOLDER = "drawn"
"""Subfolder with the rollouts of a draw that is not complete."""


@dataclass(frozen=True)
class DrawnRollouts:
    """Graded rollouts, and the problems (P) and texts (B) behind them."""

    rollouts: RolloutBatch
    problems: tuple[Problem, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True)
class DrawPlan:
    """How a draw is shared and kept.

    folder: rollouts kept there are taken from it, the others are kept there.
    settings: what the rollouts depend on, by name; rollouts kept under other settings are refused.
    workers: processes that share the drawing, PROMPTS prompts each in turn; all of them get all rollouts, the same as
    one process draws.
    generation: what a credit needs of them, of which continuations are drawn.
    """

    folder: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[[str], None] = lambda _: None
    workers: Workers = ALONE
    generation: Generation | None = None


def draw(
    policy: Policy,
    task: Task,
    objective: Objective,
    sampling: Sampling,
    shape: tuple[int, int],
    seed: int,
    plan: DrawPlan | None = None,
) -> DrawnRollouts:
    """Draw `shape` = (P, G) graded rollouts; `plan` says where they are kept and who shares the work.

    UserError for rollouts kept under other settings, and for a file that cannot be read or written.
    """
    draws = plan or DrawPlan()
    folder, settings, workers, generation = draws.folder, draws.settings, draws.workers, draws.generation
    prompts, group = shape
    problems = task.problems("train")
    own: dict[int, tuple[RolloutBatch, list[str]]] = {}
    for number, start in enumerate(range(0, prompts, PROMPTS)):
        if number % workers.size != workers.number:
            continue
        count = min(PROMPTS, prompts - start)
        path = None if folder is None else folder / FOLDER / f"{start:06d}.safetensors"
        file = None if path is None else _read(path, settings, count, policy.model.device)
        if file is None:
            batch = collect(
                policy, task, problems, objective, sampling, (count, group), seed, start, label_steps=task.labels_steps
            )
            file = batch.rollouts, list(batch.texts)
            if generation is not None:
                stream = generator(seed, "continuations", start, device=policy.model.device)
                continued, _ = generation.continued(
                    policy, task, batch.problems, batch.rollouts, objective, DrawSettings(sampling), stream
                )
                file = continued, file[1]
            if path is not None:
                _write(path, settings, *file)
        own[start] = file
        if prompts > PROMPTS:
            draws.progress(f"rollouts of {start + count} of {prompts} prompts")
    parts = [drawn for _, drawn in sorted(_of_all(own, policy.model.device, workers).items())]
    texts = tuple(text for _, some in parts for text in some)
    rollouts = joined([batch for batch, _ in parts], policy.pad)
    return DrawnRollouts(rollouts, tuple(drawn_problems(problems, seed, 0, prompts)), texts)


def _of_all(
    own: dict[int, tuple[RolloutBatch, list[str]]], device: torch.device, workers: Workers
) -> dict[int, tuple[RolloutBatch, list[str]]]:
    """The parts that all processes drew, on the device of this one."""
    if workers.size == 1:
        return own
    every = workers.gathered({start: (batch.to("cpu"), texts) for start, (batch, texts) in own.items()})
    return {start: (batch.to(device), texts) for some in every for start, (batch, texts) in some.items()}


def incomplete(folder: Path) -> bool:
    """Whether a draw in this folder was stopped, even while its first rollouts were being written."""
    return (folder / FOLDER).is_dir()


def discard(folder: Path) -> None:
    """Delete the rollouts kept in `folder`, once what they were drawn for is complete."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


def _write(path: Path, settings: Mapping[str, Any], rollouts: RolloutBatch, texts: list[str]) -> None:
    """Write one part, atomically."""
    tensors = {name: array.contiguous() for name, array in rollouts.arrays().items()}
    about = {"given": json.dumps(dict(settings)), "texts": json.dumps(texts)}
    try:
        path.parent.mkdir(exist_ok=True)
        with atomic(path) as file:
            file.write(save(tensors, about))
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot write {path}: {error}; make room, or choose another folder") from None


def _read(
    path: Path, settings: Mapping[str, Any], count: int, device: torch.device
) -> tuple[RolloutBatch, list[str]] | None:
    """A part that `_write` kept; None where there is none of `count` prompts."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata()
            rollouts = RolloutBatch.of_arrays({name: file.get_tensor(name).to(device) for name in file.keys()})  # noqa: SIM118
        texts, before = json.loads(about["texts"]), json.loads(about["given"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}); delete {path.parent} to draw again") from None
    different = [
        f"{name.replace('_', ' ')} {value} (kept: {before.get(name)})"
        for name, value in settings.items()
        if value != before.get(name)
    ]
    if different:
        raise UserError(
            f"{path.parent} keeps rollouts drawn with other settings: {', '.join(different)}; use the same settings or "
            "another folder, or delete that folder to draw again"
        )
    return (rollouts, texts) if len(rollouts.rewards) == count else None
