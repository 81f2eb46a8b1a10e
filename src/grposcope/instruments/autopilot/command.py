"""`grposcope advise`: what an autopilot would have done in a run, and when."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from grposcope.commands import log_flags
from grposcope.commands.log_flags import LogFlags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.flag import flag, flags_of

DESCRIPTION = (
    "Replay a run, and say what an autopilot would have done at which step: nothing, change a setting, go back to a "
    "checkpoint, or stop. The chance of any needless alarm over a whole run is at most 5%. Falls are found earliest "
    "where the log has the rewards of every group, as the record of grposcope train has; of other logs the mean reward "
    "of each step is used. diagnose looks for more kinds of failure, and has no such bound for looks at every step."
)
EXAMPLES = """\
examples:
  grposcope advise runs/mine
  grposcope advise outputs/trainer_state.json
  grposcope advise runs/mine --policy advise:fall=0.2,alpha=0.01
  grposcope advise runs/mine --policy autopilot.yaml --json
"""


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope advise`."""

    place: str = flag(names=(), metavar="RUN|LOG", help="folder or log of a run of any supported trainer")
    policy: str = flag(
        default="", metavar="TEXT|FILE", help="limits such as advise:fall=0.2,alpha=0.01, or a YAML file with them"
    )
    json: bool = json_flag()
    log: LogFlags = flags_of(LogFlags, log_paths="place")


def run(arguments: argparse.Namespace) -> int:
    """Print what an autopilot would have done."""
    from grposcope.instruments.autopilot import AdviceSettings, answer, policy
    from grposcope.render import document, terminal

    if arguments.policy:
        policy.parse(arguments.policy)  # before a long log is read
    said = answer.of_run(log_flags.read(arguments.place, arguments), AdviceSettings(arguments.policy))
    say(arguments, terminal.text(said))
    finish(arguments, document.of_answer(said))
    return 0
