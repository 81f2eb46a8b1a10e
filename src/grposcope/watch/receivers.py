"""Where the callback sends alerts to: W&B and TensorBoard in the trainer's process, and URLs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.watch.alerts import Alert, Receiver, Sender, to_tensorboard, to_wandb
from grposcope.watch.webhook import read_place, webhook


def checked(names: str | Iterable[str]) -> tuple[str, ...]:
    """The receivers by name or URL, each once; UserError for what is neither."""
    given = tuple(dict.fromkeys([names] if isinstance(names, str) else names))
    for name in given:
        if name not in RECEIVERS and ":" not in name:
            raise UserError(f"alert_to {name!r} is unknown; give {', '.join(RECEIVERS)}, or a URL")
        if name not in RECEIVERS:
            read_place(name)
    return given


def senders(names: Iterable[str], folder: Path) -> list[Sender]:
    """A sender for each receiver; TensorBoard's files go to `tensorboard` in the folder of the record."""
    return [Sender(name, RECEIVERS[name](folder)) if name in RECEIVERS else webhook(name) for name in names]


def missing(names: Iterable[str]) -> list[str]:
    """What keeps alerts from arriving as things stand, a sentence each."""
    told = []
    for name in names:
        try:
            library = importlib.import_module(name) if name in RECEIVERS else None
        except Exception as error:  # not installed, or broken
            told.append(f"No alerts to {name}, which cannot be imported: {error}.")
            continue
        if name == "wandb" and library is not None and library.run is None:
            told.append("No alerts to wandb until this process has an active wandb run: set report_to='wandb'.")
    return told


def _wandb(folder: Path) -> Receiver:
    """Alerts of the run of W&B that is active when the alert comes."""

    def receive(alert: Alert) -> None:
        import wandb

        if wandb.run is None:
            raise RuntimeError("no run is active in this process")
        to_wandb(wandb.run, alert)

    return receive


def _tensorboard(folder: Path) -> Receiver:
    """Event files of their own, which are begun at the first alert."""
    writers: list[Any] = []

    def receive(alert: Alert) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if not writers:
            writers.append(SummaryWriter(str(folder / "tensorboard")))
        to_tensorboard(writers[0], alert)

    return receive


RECEIVERS: dict[str, Callable[[Path], Receiver]] = {"wandb": _wandb, "tensorboard": _tensorboard}
"""Name of a receiver -> how to open it for a record in this folder."""
