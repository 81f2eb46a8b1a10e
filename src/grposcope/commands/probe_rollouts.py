"""The rollouts of a probe: drawn some prompts at a time, and kept in its folder until the probe is whole.

Drawing is what takes long. So a probe that was stopped, even killed, is gone on with by the same command: it
takes the rollouts that are there, draws the others, and makes the backward pass again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from grposcope.errors import UserError
from grposcope.objectives import Objective
from grposcope.policies import Policy
from grposcope.records import Rollouts
from grposcope.tasks.base import Problem, Task
from grposcope.training.rollouts import collect, drawn_problems, joined
from grposcope.training.sampler import Sampling

PROMPTS = 16
"""How many prompts are drawn at a time."""

FOLDER = "drawn"
"""Where rollouts wait in the folder of a probe that is not whole."""


@dataclass(frozen=True)
class Drawn:
    """Graded rollouts, and the problems (P) and texts (B) behind them."""

    rollouts: Rollouts
    problems: tuple[Problem, ...]
    texts: tuple[str, ...]


def draw(
    policy: Policy,
    task: Task,
    objective: Objective,
    sampling: Sampling,
    shape: tuple[int, int],
    seed: int,
    folder: Path | None = None,
    given: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Drawn:
    """`shape` = (P, G) graded rollouts; those kept in `folder` are taken from there, the others are kept there.

    given: the flags that decide the rollouts, by name, which must be those that the kept ones were drawn with.
    UserError where they are not, and for a file that cannot be read or written.
    """
    prompts, group = shape
    problems = task.problems("train")
    parts: list[Rollouts] = []
    texts: list[str] = []
    for start in range(0, prompts, PROMPTS):
        count = min(PROMPTS, prompts - start)
        path = None if folder is None else folder / FOLDER / f"{start:06d}.safetensors"
        found = None if path is None else _read(path, given or {}, count, policy.model.device)
        if found is None:
            batch = collect(policy, task, problems, objective, sampling, (count, group), seed, start, task.labels_steps)
            found = batch.rollouts, list(batch.texts)
            if path is not None:
                _write(path, given or {}, *found)
        parts.append(found[0])
        texts += found[1]
        if prompts > PROMPTS:
            say(f"rollouts of {start + count} of {prompts} prompts")
    return Drawn(joined(parts, policy.pad), tuple(drawn_problems(problems, seed, 0, prompts)), tuple(texts))


def waiting(folder: Path) -> bool:
    """Whether this is the folder of a probe that was stopped, were it while the first rollouts were being kept."""
    return (folder / FOLDER).is_dir()


def forget(folder: Path) -> None:
    """The probe is whole: its rollouts need not wait any longer."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


def _write(path: Path, given: Mapping[str, Any], rollouts: Rollouts, texts: list[str]) -> None:
    """Atomically: it is there whole, or not at all."""
    arrays = {f.name: getattr(rollouts, f.name) for f in fields(rollouts)}
    kept = {name: array.contiguous() for name, array in arrays.items() if array is not None}
    scratch = path.with_suffix(".part")
    try:
        path.parent.mkdir(exist_ok=True)
        save_file(kept, scratch, {"given": json.dumps(dict(given)), "texts": json.dumps(texts)})
        scratch.replace(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot write {path}: {error}; make room, or choose another --out") from None


def _read(path: Path, given: Mapping[str, Any], count: int, device: torch.device) -> tuple[Rollouts, list[str]] | None:
    """What `_write` kept, None where there is nothing of so many prompts."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as kept:
            about = kept.metadata()
            rollouts = Rollouts(**{name: kept.get_tensor(name).to(device) for name in kept.keys()})  # noqa: SIM118
        texts, before = json.loads(about["texts"]), json.loads(about["given"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}); delete {path.parent} to draw anew") from None
    different = [
        f"--{name.replace('_', '-')} {value} (kept: {before.get(name)})"
        for name, value in given.items()
        if value != before.get(name)
    ]
    if different:
        raise UserError(
            f"{path.parent} keeps rollouts drawn with other flags: {', '.join(different)}; give the same flags, "
            "choose another --out, or delete that folder to draw anew"
        )
    return (rollouts, texts) if len(rollouts.rewards) == count else None
