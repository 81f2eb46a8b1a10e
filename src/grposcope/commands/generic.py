"""The command of an instrument whose settings say it all: reads runs, asks the instrument, renders what it answers."""

from __future__ import annotations

import argparse
from dataclasses import MISSING, fields
from typing import Any

from grposcope.commands import log_flags
from grposcope.commands.output import add_json, finish, say
from grposcope.core.errors import UserError
from grposcope.core.instrument import Instrument


def add_flags(command: argparse.ArgumentParser, instrument: Instrument) -> None:
    """Declare a flag per setting, and those of all commands that read logs."""
    command.add_argument("runs", nargs="+", metavar="RUN", help="folder or log of a run, of any supported trainer")
    for field in fields(instrument.settings):
        default = None if field.default is MISSING else field.default
        command.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=type(default),
            default=default,
            metavar=field.metadata.get("metavar", "X"),
            help=f"{field.metadata['help']} (default: {default})",
        )
    add_json(command)
    log_flags.add_flags(command, "runs")


def settings(instrument: Instrument, arguments: argparse.Namespace) -> Any:
    """The settings of an instrument from its flags; UserError for those that it refuses."""
    given = {field.name: getattr(arguments, field.name) for field in fields(instrument.settings)}
    try:
        return instrument.settings(**given)
    except ValueError as error:
        raise UserError(str(error)) from None


def run(arguments: argparse.Namespace, instrument: Instrument) -> int:
    """Print what the instrument says of the runs."""
    from grposcope.instruments import ask
    from grposcope.render import document, terminal

    runs = [log_flags.read(path, arguments) for path in arguments.runs]
    answers = ask(instrument, runs, settings(instrument, arguments))
    if not answers:
        raise UserError(f"{arguments.runs[0]} has nothing that answers “{instrument.question}”")
    for answer in answers:
        say(arguments, terminal.text(answer))
    finish(arguments, {answer.name: document.of_answer(answer) for answer in answers})
    return 0
