"""`grposcope offpolicy`: rollouts with both log-probabilities, or a model, and what corrections make of them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from grposcope.commands import flags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag

if TYPE_CHECKING:
    from grposcope.instruments.offpolicy.answer import OffPolicyFound
    from grposcope.instruments.offpolicy.read import MismatchedRollouts
    from grposcope.maths.importance import Floats

DESCRIPTION = (
    "Say how far the sampler is from the trainer, how much of the weight each correction keeps, by length, and how "
    "many rollouts it needs. The input is a file with the log-probabilities of both, one JSON object per line: columns "
    "logprobs of the trainer, rollout_logprobs or sampling_logprobs of the sampler, a number per token; where known "
    "also reward, group, version, env, and old_logprobs of the weights that drew the rollout. Or it is a model: a "
    "rounded, a truncated or another sampler draws the rollouts, or they come from a file with prompt_ids, "
    "completion_ids and the sampler's log-probabilities, and the gradient is measured under each correction."
)
EXAMPLES = """\
examples:
  grposcope offpolicy rollouts.jsonl                     distance, and the weight that each correction keeps
  grposcope offpolicy runs/stale                         the probes of a run, pooled; without probes, its rollouts
  grposcope offpolicy rollouts.jsonl --gram gram.npy     also bias, variance and rollouts needed, by sequences
  grposcope offpolicy rollouts.jsonl --model runs/mine   the same for all corrections, with the trainer's model
  grposcope offpolicy tiny --sampler-precision int8      rollouts drawn with rounded weights
  grposcope offpolicy tiny --top-k 20                    rollouts drawn without the unlikely tokens
  grposcope offpolicy runs/mine --sampler runs/mine/checkpoints/step-000040 --batches 4
"""


_drawn = partial(flag, group="rollouts that are drawn")
_machine = partial(flag, group="machine")


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope offpolicy`."""

    place: str = flag(
        names=(),
        metavar="ROLLOUTS|MODEL",
        help="JSONL file with a rollout a line, or the folder of a run with --probe-every, "
        "--correction or --staleness; or, as the trainer, tiny, smollm2, a model folder, the "
        "folder of a run or of its checkpoint, or a hub name",
    )
    gram: str | None = flag(
        metavar="FILE",
        help="NumPy file (.npy) with the inner products of the rollouts' scores, in the order of the rows",
    )
    model: str | None = flag(
        metavar="MODEL", help="for ROLLOUTS: the trainer's model, to measure its log-probabilities and gradient"
    )
    prompts: int | None = flag(metavar="N", help="prompts per batch (default: 64; for ROLLOUTS, all)")
    sampler: str | None = _drawn(
        metavar="MODEL", help="another model that draws the rollouts, such as an earlier checkpoint"
    )
    sampler_precision: str = _drawn(
        default="float32",
        metavar="TEXT",
        help="number format in which float32 weights sample on a CPU: float32, bfloat16 or int8 (default: float32)",
    )
    top_k: int | None = _drawn(metavar="K", help="the sampler draws from the K likeliest tokens (default: all)")
    top_p: float | None = _drawn(
        metavar="X", help="the sampler draws from the likeliest tokens up to this share (default: all)"
    )
    task: str | None = _drawn(metavar="TEXT", help="the task (default: that of the run, else arithmetic)")
    reward: str | None = _drawn(metavar="TEXT", help="your own reward function, module:function (with jsonl:PATH)")
    group: int = _drawn(default=8, metavar="N", help="rollouts per prompt (default: 8)")
    batches: int = _drawn(default=1, metavar="N", help="batches, measured one after the other and pooled (default: 1)")
    max_tokens: int | None = _drawn(metavar="N", help="longest completion (default: the run's or task's)")
    seed: int = _drawn(default=0, metavar="N", help="seed of prompts and sampling (default: 0)")
    temperature: float | None = _machine(metavar="X", help="sampling temperature (default: that of the run, else 1)")
    device: str = _machine(default="auto", metavar="TEXT", help="cpu, cuda or auto")
    threads: int = _machine(default=0, type=flags.threads, metavar="N", help="CPU threads, 0 for all cores")
    remote_code: bool = _machine(default=False, help="allow the model's own code from the hub to run")
    json: bool = json_flag(group="machine")


def check_flags(arguments: argparse.Namespace) -> None:
    """UserError for flags that cannot work with any model."""
    if _of_model(arguments):
        from grposcope.instruments.offpolicy import command_model

        command_model.check(arguments)


def _of_model(arguments: argparse.Namespace) -> bool:
    """Whether the answer comes from a model, not from what rollouts say themselves."""
    path = Path(arguments.place)
    draws = (
        any(getattr(arguments, name) is not None for name in ("sampler", "top_k", "top_p"))
        or arguments.sampler_precision != "float32"
    )
    of_rollouts = path.is_file() or path.suffix in (".jsonl", ".json", ".gz") or (path.is_dir() and not draws)
    return arguments.model is not None or not of_rollouts


def run(arguments: argparse.Namespace) -> int:
    """Print what the rollouts say."""
    from grposcope.instruments.offpolicy import answer
    from grposcope.render import document, terminal

    if _of_model(arguments):
        from grposcope.instruments.offpolicy import command_model

        drawn, measured = command_model.measure(arguments)
    else:
        gram = None if arguments.gram is None else _gram(Path(arguments.gram))
        drawn, measured = _of_place(Path(arguments.place), gram)
    said = answer.of_drawn(drawn, measured)
    say(arguments, terminal.text(said))
    finish(arguments, document.of_answer(said))
    return 0


def _of_place(path: Path, gram: Floats | None) -> tuple[MismatchedRollouts, OffPolicyFound]:
    """What a file of rollouts says, or the folder of a run: by its probes where it has some, else by its rollouts."""
    from grposcope.instruments.offpolicy import answer, over_steps, probe_file
    from grposcope.instruments.offpolicy.read import read

    probes = probe_file.in_folder(path) if path.is_dir() and gram is None else []
    if probes:
        return over_steps.measure(probes)
    drawn = read(path)
    return drawn, answer.measure(drawn, gram)


def _gram(path: Path) -> Floats:
    """The matrix in a file; UserError where there is none."""
    import numpy as np

    from grposcope.core.array_files import read_arrays

    try:
        return read_arrays(path, "write a matrix with numpy.save")[""].astype(np.float64, casting="same_kind")
    except (KeyError, ValueError, TypeError):
        raise UserError(f"--gram {path} is not a NumPy array of numbers; write it with numpy.save") from None
