"""`grposcope explain`: the page of a fault, or the list of all."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from grposcope.commands.output import finish, json_flag, say
from grposcope.core.flag import flag

DESCRIPTION = (
    "Print what a fault of the catalogue is, how it shows, what it does to the gradient, what to do about it and what "
    "would decide whether it is there; without a name, list all faults by family."
)
EXAMPLES = """\
examples:
  grposcope explain                              all faults, a line each
  grposcope explain weights never arrived        the page of one
  grposcope explain reward-hacking --json        the same for a program
"""


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope explain`."""

    fault: list[str] = flag(names=(), nargs="*", metavar="FAULT", help="its name, as diagnose, lint and verify say it")
    json: bool = json_flag()


def run(arguments: argparse.Namespace) -> int:
    """Print the page, or the list."""
    from grposcope.faults import catalogue, pages

    if arguments.fault:
        fault = catalogue.fault(" ".join(arguments.fault))
        say(arguments, pages.told(fault))
        finish(arguments, pages.document(fault))
        return 0
    every = catalogue.by_family()
    for family, faults in every.items():
        say(arguments, f"{family}:")
        for fault in faults:
            say(arguments, f"  {fault.name:<28} {pages.page(fault).summary}")
    finish(arguments, {"faults": {family: [fault.name for fault in faults] for family, faults in every.items()}})
    return 0
