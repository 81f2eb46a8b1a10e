"""Flags of `grposcope verify` that say which checkpoints there are, and how the sampler draws."""

from __future__ import annotations

import argparse

from grposcope.commands import flags


def add(command: argparse.ArgumentParser) -> None:
    """Declare them."""
    model = command.add_argument_group("checkpoints")
    model.add_argument("--model", nargs="+", metavar="CHECKPOINT",
                       help="in the order of training: folders of checkpoints, a run with checkpoints, tiny, "
                            "smollm2 or hub names; rollouts of step N + 1 should be drawn by the weights after N "
                            "steps (default: the checkpoints below the folder of the run, where that takes about a "
                            "minute; none for none)")  # fmt: skip
    model.add_argument(
        "--sampler-weights",
        metavar="CHECKPOINT",
        help="the weights that the sampler holds; they are compared with those of the last --model",
    )
    model.add_argument("--temperature", type=float, metavar="X",
                       help="temperature of sampling (default: that of the run, else 1)")  # fmt: skip
    model.add_argument("--sampler-precision", metavar="TEXT",
                       help="number format of the sampler: float32, bfloat16, fp8 or int8 (default: differences "
                            "up to those of bfloat16 are allowed)")  # fmt: skip
    model.add_argument("--device", default="auto", metavar="TEXT", help="cpu, cuda or auto")
    model.add_argument("--threads", type=flags.threads, default=0, metavar="N", help="CPU threads, 0 for all cores")
    model.add_argument("--remote-code", action="store_true", help="allow the model's own code from the hub to run")
