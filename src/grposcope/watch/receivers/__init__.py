"""Where alerts go: a file per program, with all that we write into it; and which of them the callback sends to."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path

from grposcope.core.errors import UserError
from grposcope.watch.alerts import Receiver, Sender
from grposcope.watch.receivers import tensorboard, wandb
from grposcope.watch.webhook import read_place, webhook


def checked(names: str | Iterable[str]) -> tuple[str, ...]:
    """The receivers by name or URL, each once; UserError for what is neither."""
    requested = tuple(dict.fromkeys([names] if isinstance(names, str) else names))
    for name in requested:
        if name not in RECEIVERS and ":" not in name:
            raise UserError(f"alert_to {name!r} is unknown; give {', '.join(RECEIVERS)}, or a URL")
        if name not in RECEIVERS:
            read_place(name)
    return requested


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


RECEIVERS: dict[str, Callable[[Path], Receiver]] = {
    name: program.open_receiver
    for name, program in {"wandb": wandb.PROGRAM, "tensorboard": tensorboard.PROGRAM}.items()
    if program.open_receiver
}
"""Name of a receiver -> how to open it for a record in this folder."""
