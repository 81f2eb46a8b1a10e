"""What an instrument declares of itself: its question, its command, what it shows on the page, and what it uses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command of an instrument.

    name: as typed. purpose: the heading of the list of commands under which it stands. help: its line there. module:
    with DESCRIPTION, EXAMPLES, `add_flags` and `run`; empty for the command that every instrument has whose settings
    say it all (`commands.generic`).
    """

    name: str
    purpose: str
    help: str
    module: str = ""


@dataclass(frozen=True)
class NoSettings:
    """Settings of an instrument that has none."""


@dataclass(frozen=True)
class Instrument:
    """An instrument: a folder of `grposcope.instruments` whose `__init__` names one of these INSTRUMENT.

    name: the folder's. question: what it answers. answers: module with `answers(runs, settings)`, which returns what
    the page, the terminal and JSON show of these runs, nothing where there is nothing to show; empty for an instrument
    that the page does not have. settings: a frozen dataclass whose fields are the flags of its command. uses: the
    instruments without which it cannot answer.
    """

    name: str
    question: str
    answers: str = ""
    settings: type = NoSettings
    commands: tuple[Command, ...] = ()
    uses: tuple[str, ...] = ()
