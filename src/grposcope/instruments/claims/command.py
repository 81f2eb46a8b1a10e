"""`grposcope claims`: which statements of the three papers hold, derived anew on this machine."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag

DESCRIPTION = (
    "Check the headline statements of the three papers: exact ones by enumeration, measured ones on "
    "the shipped model and on softmax bandits, at the scale that each line names. Takes about four "
    "minutes on two cores."
)
EXAMPLES = """\
examples:
  grposcope claims                          all three papers
  grposcope claims u d                      [U] the U-statistic, [D] the dynamics: half a minute, without torch
  grposcope claims pg --html claims.html    [PG] the foundations, and a page with a picture of each
  grposcope claims --list                   only statements and criteria; nothing is computed
"""


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope claims`."""

    papers: Sequence[str] = flag(
        names=(), nargs="*", metavar="PAPER", help="pg, u or d, or the name of a statement (default: all)"
    )
    list: bool = flag(default=False, help="print statements and criteria, and compute nothing")
    html: Path | None = flag(metavar="FILE", help="also write a page with a picture of each")
    json: bool = json_flag()


def check_flags(arguments: argparse.Namespace) -> None:
    """UserError for a name that is no statement's, and for a page that cannot be written."""
    from grposcope.instruments.claims import chosen

    chosen(arguments.papers)
    if arguments.html is not None and not arguments.html.parent.is_dir():
        raise UserError(f"--html {arguments.html}: there is no folder {arguments.html.parent}; make it first")


def run(arguments: argparse.Namespace) -> int:
    """Derive the statements, and print what came out."""
    from grposcope.instruments.claims import answer, chosen
    from grposcope.render import document, terminal

    claims = chosen(arguments.papers)
    if arguments.list:
        for claim in claims:
            say(arguments, f"{claim.paper:<3} {claim.name:<18} {claim.says}\n{'':<22} {claim.criterion}")
        listed = {
            "claims": [{"name": claim.name, "paper": claim.paper, "criterion": claim.criterion} for claim in claims]
        }
        finish(arguments, listed)
        return 0
    derived, began = [], time.monotonic()
    for number, claim in enumerate(claims, 1):
        head = f"[{number}/{len(claims)}, {time.monotonic() - began:.0f} s] {claim.name}"
        print(head, file=sys.stderr, flush=True)
        derived.append((claim, claim.derive(lambda line: print(f"  {line}", file=sys.stderr, flush=True))))
    whole = answer.of(derived)
    say(arguments, terminal.text(whole))
    said = document.of_answer(whole)
    if arguments.html is not None:
        from grposcope.commands.report import write_page

        size = write_page(answer.page(derived), arguments.html, "--html")
        said["page"] = str(arguments.html)
        say(arguments, f"\npage: {arguments.html} ({size / 1e6:.1f} MB); open it in a browser")
    finish(arguments, said)
    return 0
