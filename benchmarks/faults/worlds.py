"""Real trainings of a few steps in which a fault begins at a given step: of our loop, and of TRL through it.

A fault is a context manager that replaces a function of the trainer while the training runs (`catalogue`). The clean
twin has the same settings and seeds, so that both are equal bit for bit until the fault begins. The size of a fault is
the relative difference of the gradients that the two hand to the optimiser at that step, and of what it makes of them.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

BEGINS = 3
"""Step at which faults begin, from 1 on."""

STEPS = 6
"""Steps of a training."""


@dataclass
class World:
    """What a fault may look at while the training runs.

    step: that is being made. before: the weights before each step so far. gradient, change: of all weights at the step
    BEGINS. kept: a fault's own things. said: what the run printed.
    """

    engine: str
    begins: int = BEGINS
    step: int = 0
    before: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    gradient: Tensor | None = None
    change: Tensor | None = None
    kept: dict[str, Any] = field(default_factory=dict)
    said: io.StringIO = field(default_factory=io.StringIO)

    @property
    def faulty(self) -> bool:
        """Whether the fault is on at this step."""
        return self.step >= self.begins

    def keep(self, model: Any) -> None:
        """Keep the trained weights as they are before the step."""
        self.before.setdefault(
            self.step, {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
        )

    @contextlib.contextmanager
    def weights(self, model: Any, step: int, some: Callable[[str], bool] = lambda name: True) -> Iterator[None]:
        """Inside the block the model has the weights from before `step`, of the names that `some` says."""
        own = {name: p for name, p in model.named_parameters() if p.requires_grad and some(name)}
        now = {name: p.detach().clone() for name, p in own.items()}
        with torch.no_grad():
            for name, p in own.items():
                p.copy_(self.before[step][name])
        try:
            yield
        finally:
            with torch.no_grad():
                for name, p in own.items():
                    p.copy_(now[name])


Injection = Callable[[World], AbstractContextManager[None]]


@contextlib.contextmanager
def none(world: World) -> Iterator[None]:
    """No fault."""
    yield


@contextlib.contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Inside the block the attribute is what `make` makes of it; functions keep their signature."""
    inner = owner.__dict__[name] if isinstance(owner, type) and name in owner.__dict__ else getattr(owner, name)
    outer = make(inner)
    if callable(inner):
        outer = functools.wraps(inner)(outer)
    setattr(owner, name, outer)
    try:
        yield
    finally:
        setattr(owner, name, inner)


def ours(folder: Path, fault: Injection, settings: dict[str, Any] | None = None, begins: int = BEGINS) -> World:
    """A training of our loop on two-digit sums, with the evidence of every batch and a checkpoint of every step."""
    from grposcope.lab.train import loop, update

    world = World("ours", begins)

    def drawing(inner: Any) -> Any:
        def draw(session: Any, step: int, position: int) -> Any:
            world.step, world.kept["session"] = step, session
            world.keep(session.setup.policy.model)
            return inner(session, step, position)

        return draw

    def stepping(inner: Any) -> Any:
        def step(model: Any, optimizer: Any, clip: float) -> Any:
            _captured(world, model)
            done = inner(model, optimizer, clip)
            _changed(world, model)
            return done

        return step

    with (
        replaced(update, "_step", stepping),
        fault(world),
        replaced(loop._Session, "draw", drawing),
        contextlib.redirect_stderr(world.said),
        contextlib.redirect_stdout(world.said),
    ):
        loop.train(_config(folder, settings))
    return world


def resumed(folder: Path, steps: int) -> None:
    """Go on with a training of our loop that ended after fewer steps."""
    from grposcope.lab.train import loop

    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        loop.resume(folder, {"steps": steps})


def trl(
    folder: Path, fault: Injection, settings: dict[str, Any] | None = None, begins: int = BEGINS, *options: str
) -> World:
    """The same training by TRL's trainer."""
    from transformers import TrainerCallback
    from trl.trainer.grpo_trainer import GRPOTrainer

    from grposcope.engines.trl import run

    world = World("trl", begins)

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            world.step = state.global_step + 1
            world.keep(model)

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            _captured(world, model)

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            _changed(world, model)

    def making(inner: Any) -> Any:
        def trainer(*given: Any, **more: Any) -> Any:
            made = inner(*given, **more)
            made.add_callback(Watch())
            world.kept["trainer"] = made
            return made

        return trainer

    def preparing(inner: Any) -> Any:
        def prepare(self: Any, *given: Any, **more: Any) -> Any:
            world.step = self.state.global_step + 1
            world.keep(self.model)
            return inner(self, *given, **more)

        return prepare

    with (
        replaced(GRPOTrainer, "_prepare_inputs", preparing),
        fault(world),
        replaced(run, "_trainer", making),
        contextlib.redirect_stderr(world.said),
        contextlib.redirect_stdout(world.said),
    ):
        run.train(_config(folder, {"clip_grad": 0.0, **(settings or {})}), options)
    return world


WORLDS = {"ours": ours, "trl": trl}


def _config(folder: Path, settings: dict[str, Any] | None) -> Any:
    from grposcope.lab.train.config import TrainConfig

    given: dict[str, Any] = {
        "model": "tiny", "task": "arithmetic", "steps": STEPS, "prompts": 8, "group": 8, "lr": 1e-3, "warmup": 0,
        "eval_problems": 0, "checkpoint_every": 1, "keep_checkpoints": 0, "verify_every": 1, "threads": 1,
        "out": str(folder), "recipe": "grpo", "seed": 0, "schedule": "constant",
    }  # fmt: skip
    return TrainConfig(**{**given, **(settings or {})})


def _captured(world: World, model: Any) -> None:
    if world.step == world.begins and world.gradient is None:
        parts = [
            (torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters() if p.requires_grad
        ]
        world.gradient = torch.cat(parts).detach().clone()


def _changed(world: World, model: Any) -> None:
    if world.step == world.begins:
        before = world.before[world.step]
        parts = [(p.detach() - before[name]).flatten() for name, p in model.named_parameters() if p.requires_grad]
        world.change = torch.cat(parts)


def difference(faulty: Tensor | None, clean: Tensor | None) -> float:
    """‖a − b‖ / ‖b‖; NaN where one was not measured."""
    if faulty is None or clean is None:
        return float("nan")
    return float((faulty - clean).norm() / clean.norm().clamp(min=1e-30))
