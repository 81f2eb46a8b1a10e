"""`grposcope rewards`: what each of several rewards weighs in the advantage."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from grposcope.commands import log_flags
from grposcope.commands.log_flags import LogFlags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag, flags_of
from grposcope.maths.aggregation import METHODS

DESCRIPTION = (
    "Compare what each of several rewards weighs in the advantage with the weight it was given: "
    "effective weights within groups, shares of the advantage's variance, correlations, rewards that "
    "are constant while others vary, different rewards with the same advantage, and a reward that "
    "rises at the expense of another. Exact if the rewards of single rollouts are known: the record "
    "of a run, TRL's completions/ (log_completions=True), verl's rollout_data_dir with further "
    "numbers from the reward function, or a JSONL file with a rollout a line: rewards, an object by "
    "name, and group; where known step, reward and length. A log with means and deviations gives "
    "only an estimate."
)
EXAMPLES = """\
examples:
  grposcope rewards runs/mine
  grposcope rewards outputs/completions --weights 1,0.5 --set group=8
  grposcope rewards rollouts/ --weights acc=1,format=0.2 --aggregation gdpo_tokens
  grposcope rewards rollouts.jsonl --gram gram.npy               and what each reward moves of the weights
  grposcope rewards outputs --verified accuracy_reward           tell gaming from a trade-off
"""


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope rewards`."""

    place: str = flag(
        names=(), metavar="RUN|LOG|ROLLOUTS", help="folder or log of a run of any supported trainer, or its rollouts"
    )
    weights: str = flag(
        default="",
        metavar="TEXT",
        help="of the rewards, in their order or by name: 1,0.5 or right=1,format=0.5 (default: what "
        "the log says, else 1 each)",
    )
    aggregation: str = flag(
        default="",
        metavar="TEXT",
        help=f"how rewards were combined: {', '.join(METHODS)}; sum_then_normalize:batch and :none "
        "for those scales (default: what the log says)",
    )
    verified: str = flag(default="", metavar="NAMES", help="rewards that cannot be gamed, separated by commas")
    gram: str | None = flag(
        metavar="FILE",
        help="NumPy file (.npy) with the inner products of the rollouts' scores, in their order: "
        "which reward moves the weights",
    )
    json: bool = json_flag()
    log: LogFlags = flags_of(LogFlags, log_paths="place")


def run(arguments: argparse.Namespace) -> int:
    """Print what the rewards weigh."""
    from grposcope.faults import judge_answers
    from grposcope.faults.judge import diagnose
    from grposcope.instruments.rewards import RewardSettings, answer, arrays, means
    from grposcope.render import document, terminal

    settings = RewardSettings(arguments.weights, arguments.aggregation, arguments.verified)
    made = log_flags.read(arguments.place, arguments)
    said = answer.of_run(made, settings, None if arguments.gram is None else arrays.square(Path(arguments.gram)))
    said = said or means.of_run(made)
    if said is None:
        raise UserError(
            f"{log_flags.place(arguments.place)} has neither single rewards of several functions nor the standard "
            "deviation of each; give TRL's completions/, verl's rollout_data_dir with further numbers beside the "
            "score, or the record of a run with several rewards; of one reward, grposcope texts says what is paid, and "
            "grposcope verify whether it is what the function gives"
        )
    if said.word == "warning":
        said = judge_answers.graded(said, diagnose(made))
    say(arguments, terminal.text(said))
    finish(arguments, document.of_answer(said))
    return 0
