"""The command line: which commands there are, those of the instruments among them.

A command is a module: the fields of its `Flags` are its flags, `run` does its work. It is imported when it is asked
for, so that a quick command does not wait for what a slow one needs. A command whose instrument has none is
`commands.generic`.
"""

from __future__ import annotations

from grposcope import instruments
from grposcope.core.instrument import Command, Instrument

PURPOSES = ("look at a run", "check a pipeline", "plan the next one", "train")
"""What people want, in the order of `grposcope --help`."""

FIRST = ("diagnose", "watch", "report", "compare", "plan")
"""The commands to begin with, above all others in `grposcope --help`."""

OWN = (
    Command("report", PURPOSES[0], "draw one page about one or several runs", "grposcope.commands.report"),
    Command("watch", PURPOSES[0], "follow a running run in the terminal", "grposcope.watch.command"),
    Command("explain", PURPOSES[0], "say what a fault is, and what to do about it", "grposcope.commands.explain"),
    Command("mcp", PURPOSES[0], "answer a coding agent (Model Context Protocol)", "grposcope.commands.mcp_server"),
    Command(
        "train", PURPOSES[3], "train a model with GRPO or a relative from verifiable rewards",
        "grposcope.lab.train.command",
    ),
    Command(
        "sweep", PURPOSES[3], "train over a grid of settings and seeds, and compare the settings",
        "grposcope.lab.sweeps.command",
    ),
)  # fmt: skip
"""Commands that belong to no instrument."""


def known() -> dict[str, tuple[Command, Instrument | None]]:
    """Every command by its name, with the instrument that it belongs to, sorted by purpose.

    ValueError for a name that two declare, and for a purpose that is none of PURPOSES.
    """
    own: dict[str, tuple[Command, Instrument | None]] = {command.name: (command, None) for command in OWN}
    of_instruments = {}
    for instrument in instruments.all_instruments():
        for command in instrument.commands:
            if command.name in own or command.name in of_instruments:
                raise ValueError(f"instrument {instrument.name}: there is a command {command.name}; name it otherwise")
            if command.purpose not in PURPOSES:
                raise ValueError(
                    f"instrument {instrument.name}: command {command.name} has the purpose {command.purpose!r}, which "
                    f"is none of {', '.join(PURPOSES)}"
                )
            of_instruments[command.name] = (command, instrument)
    listed = {**of_instruments, **own}
    return dict(sorted(listed.items(), key=lambda listed: PURPOSES.index(listed[1][0].purpose)))


def listing() -> str:
    """All commands as `grposcope --help` shows them: FIRST, then the others by purpose."""
    every = {command.name: command for command, _ in known().values()}
    lines = ["begin with:", *(_line(every[name]) for name in FIRST if name in every), ""]
    for purpose in PURPOSES:
        others = [command for command in every.values() if command.purpose == purpose and command.name not in FIRST]
        lines += [f"{purpose}:", *map(_line, others), ""]
    return "\n".join(lines).rstrip()


def _line(command: Command) -> str:
    return f"  {command.name:<10} {command.help}"
