"""Loggers of metrics and alarms, besides the record: TensorBoard, Weights & Biases, trackio, and the progress bar.

A logger is a function in LOGGERS that opens it; each uses its own library, imported only when asked for.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.logs.native.schema import StepRow
from grposcope.watch.alerts import Alert, Receiver, to_tensorboard, to_trackio, to_wandb


class MetricLogger(Protocol):
    """Takes the metrics of every optimiser step, and what goes wrong. name: of LOGGERS."""

    name: str

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log the metrics of an optimiser step."""
        ...

    def alert(self, alert: Alert) -> None:
        """Tell of an alarm; it may take its time, or fail."""
        ...

    def close(self) -> None:
        """Flush and close."""
        ...


class TensorBoard:
    """Event files under `tensorboard/` in the run's folder. After a resume, what was logged later is purged."""

    name = "tensorboard"

    def __init__(self, folder: Path, config: Mapping[str, Any], done: int):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Write a scalar for every metric of a step."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def alert(self, alert: Alert) -> None:
        """Write the alarm as a text."""
        to_tensorboard(self._writer, alert)

    def close(self) -> None:
        """Write what is left and close the file."""
        self._writer.close()


class _ProjectRun:
    """A run of Weights & Biases or trackio, whose interfaces are the same but for alerts, which `told` raises."""

    def __init__(self, name: str, run: Any, told: Receiver):
        self.name, self._run, self.alert = name, run, told

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


def _wandb(folder: Path, config: Mapping[str, Any], done: int) -> MetricLogger:
    import wandb

    name = folder.resolve().name
    run = wandb.init(project="grposcope", name=name, id=name, resume="allow", dir=str(folder), config=dict(config))
    return _ProjectRun("wandb", run, partial(to_wandb, run))


def _trackio(folder: Path, config: Mapping[str, Any], done: int) -> MetricLogger:
    import trackio

    name = folder.resolve().name
    run = trackio.init(project="grposcope", name=name, resume="allow", config=dict(config))
    return _ProjectRun("trackio", run, partial(to_trackio, trackio))


LOGGERS: dict[str, Callable[[Path, Mapping[str, Any], int], MetricLogger]] = {
    "tensorboard": TensorBoard,
    "wandb": _wandb,
    "trackio": _trackio,
}
"""Name of a setting -> how to open it, from the run's folder, its settings and the steps already logged."""


def names(text: str | None) -> list[str]:
    """The loggers that a comma-separated list names; UserError for one unknown or not installed."""
    wanted = [name.strip() for name in (text or "").split(",") if name.strip()]
    for name in wanted:
        if name not in LOGGERS:
            raise UserError(f"log_to {name}: unknown; use one or more of {', '.join(LOGGERS)}, separated by commas")
        _require(name)
    return wanted


def open_all(text: str | None, folder: Path, config: Mapping[str, Any], done: int) -> list[MetricLogger]:
    """Open the loggers that a comma-separated list names; `done` optimiser steps are already logged."""
    return [LOGGERS[name](folder, config, done) for name in names(text)]


def _require(package: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError:
        raise UserError(f"log_to {package} needs the package {package}: pip install {package}") from None


class Progress:
    """The bar over optimiser steps on standard error, with the main metrics of the last step."""

    def __init__(self, steps: int, done: int = 0):
        self._bar = tqdm(total=steps, initial=done, unit="step", dynamic_ncols=True, mininterval=0.5)
        self._held_out = ""

    def step(self, row: StepRow) -> None:
        """Show an optimiser step."""
        kl = row.kl_old if math.isnan(row.kl) else row.kl
        self.show(
            row.reward,
            f"dead {row.dead_fraction:.0%} · entropy {row.entropy:.3f} · kl {kl:.4f} · "
            f"{row.tokens_per_second:,.0f} tok/s",
        )

    def show(self, reward: float, more: str) -> None:
        """Show an optimiser step by its mean reward and what else there is to say."""
        self._bar.set_postfix_str(f"reward {reward:.3f}{self._held_out} · {more}", refresh=False)
        self._bar.update()

    def evaluation(self, step: int, accuracy: Estimate) -> None:
        """Show a held-out evaluation; it stays on the line."""
        self._held_out = f" · held-out {accuracy.value:.3f}±{accuracy.se:.3f}"
        self.say(f"step {step}: held-out pass@1 {accuracy.value:.3f} ± {accuracy.se:.3f}")

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.write(line, file=self._bar.fp)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
