"""What an instrument declares of itself: its question, its command, what it shows on the page, and what it uses."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields


@dataclass(frozen=True)
class Command:
    """A command of an instrument.

    name: as typed. purpose: the heading of the list of commands under which it stands. help: its line there. module:
    with DESCRIPTION, EXAMPLES, `Flags` and `run`; empty for the command that every instrument has whose settings
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
    """An instrument: the INSTRUMENT of a folder of `grposcope.instruments`, or one of the folder's INSTRUMENTS.

    name: that of `instruments.FOLDERS`. question: what it answers. answers: module with `answers(runs, settings)`,
    which returns what the page, the terminal and JSON show of these runs, nothing where there is nothing to show; empty
    for an instrument that the page does not have. settings: a frozen dataclass whose fields, each with the default that
    the page asks with, are the flags of its command (`commands.generic` has the types); it may refuse values with a
    ValueError that begins with the name of the field. uses: further folders without which it cannot answer.

    ValueError for settings without a default.
    """

    name: str
    question: str
    answers: str = ""
    settings: type = NoSettings
    commands: tuple[Command, ...] = ()
    uses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for setting in fields(self.settings):
            if setting.default is MISSING and setting.default_factory is MISSING:
                raise ValueError(f"instrument {self.name}: the page needs a default of the setting {setting.name}")
