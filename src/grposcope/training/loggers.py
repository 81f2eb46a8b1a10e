"""Other places a run's metrics can go as they are made: TensorBoard, Weights & Biases, trackio.

Each is reached through its own library, imported only when asked for. Our own record is written in any case.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from grposcope.errors import UserError


class Sink(Protocol):
    """Takes rows of metrics."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Hand over the metrics of an optimiser step."""
        ...

    def close(self) -> None:
        """Flush and end."""
        ...


class TensorBoard:
    """Event files under `tensorboard/` in the run's folder. After a resume, what was logged later is purged."""

    def __init__(self, folder: Path, config: Mapping[str, Any], done: int):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _Project:
    """What Weights & Biases and trackio have in common."""

    def __init__(self, run: Any):
        self._run = run

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


def _wandb(folder: Path, config: Mapping[str, Any], done: int) -> Sink:
    import wandb

    name = folder.resolve().name
    return _Project(
        wandb.init(project="grposcope", name=name, id=name, resume="allow", dir=str(folder), config=dict(config))
    )


def _trackio(folder: Path, config: Mapping[str, Any], done: int) -> Sink:
    import trackio

    name = folder.resolve().name
    return _Project(trackio.init(project="grposcope", name=name, resume="allow", config=dict(config)))


KINDS: dict[str, Callable[[Path, Mapping[str, Any], int], Sink]] = {
    "tensorboard": TensorBoard,
    "wandb": _wandb,
    "trackio": _trackio,
}


def names(text: str | None) -> list[str]:
    """The sinks asked for, of a comma-separated list; UserError for one unknown or not installed."""
    wanted = [name.strip() for name in (text or "").split(",") if name.strip()]
    for name in wanted:
        if name not in KINDS:
            raise UserError(f"--log-to {name}: unknown; use one or more of {', '.join(KINDS)}, with commas")
        _require(name)
    return wanted


def open_all(text: str | None, folder: Path, config: Mapping[str, Any], done: int) -> list[Sink]:
    """Open the sinks asked for; `done` optimiser steps are already logged."""
    return [KINDS[name](folder, config, done) for name in names(text)]


def _require(package: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError:
        raise UserError(f"--log-to {package} needs the package {package}: pip install {package}") from None
