"""`grposcope offpolicy`: rollouts with both log-probabilities, and what corrections make of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from grposcope.commands.output import add_json, finish, say
from grposcope.core.errors import UserError

if TYPE_CHECKING:
    from grposcope.maths.importance import Floats

DESCRIPTION = (
    "Read rollouts with the log-probabilities of trainer and sampler, one JSON object a line, and say how far the two "
    "are apart and what each correction keeps of the weight, by length. Columns: logprobs of the trainer, "
    "rollout_logprobs or sampling_logprobs of the sampler, a number per token; where known reward, group, version. Or "
    "the folder of a run that grposcope train made with --correction or --staleness."
)
EXAMPLES = """\
examples:
  grposcope offpolicy rollouts.jsonl                     distance, and the weight that each correction keeps
  grposcope offpolicy runs/stale                         the same of the rollouts that a run of ours kept
  grposcope offpolicy rollouts.jsonl --gram gram.npy     and bias, variance and rollouts needed of sequence corrections
"""


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    command.add_argument(
        "rollouts", metavar="ROLLOUTS", help="JSONL file with a rollout a line, or the folder of a run"
    )
    command.add_argument("--gram", metavar="FILE",
                         help="NumPy file (.npy) with the inner products of the rollouts' scores, in the order of the "
                              "rows")  # fmt: skip
    add_json(command)


def run(arguments: argparse.Namespace) -> int:
    """Print what the rollouts say."""
    from grposcope.instruments.offpolicy import answer
    from grposcope.instruments.offpolicy.read import read
    from grposcope.render import document, terminal

    gram = None if arguments.gram is None else _gram(Path(arguments.gram))
    drawn = read(Path(arguments.rollouts))
    said = answer.of_drawn(drawn, answer.measure(drawn, gram))
    say(arguments, terminal.text(said))
    finish(arguments, document.of_answer(said))
    return 0


def _gram(path: Path) -> Floats:
    """The matrix in a file; UserError where there is none."""
    import numpy as np

    try:
        return np.asarray(np.load(path, allow_pickle=False), np.float64)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"--gram {path}: no array of NumPy ({error}); write it with numpy.save") from None
