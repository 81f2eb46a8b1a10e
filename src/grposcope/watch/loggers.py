"""Loggers of metrics and alarms, besides the record, by name: those of `watch.receivers`, and the progress bar.

A logger is a function in LOGGERS that opens it; each uses its own library, imported only when asked for.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.logs.native.schema import StepRow
from grposcope.watch.destinations import DESTINATIONS
from grposcope.watch.receivers.program import MetricLogger

LOGGERS: dict[str, Callable[[Path, Mapping[str, Any], int], MetricLogger]] = {
    name: opened for name in ("tensorboard", "wandb", "trackio") if (opened := DESTINATIONS[name].open_logger)
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
        kl = "" if math.isnan(row.kl) else f"kl {row.kl:.4f} · "
        self.show(
            row.reward,
            f"dead {row.dead_fraction:.0%} · entropy {row.entropy:.3f} · {kl}{row.tokens_per_second:,.0f} tok/s",
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
