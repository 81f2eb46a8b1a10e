"""`grposcope simulate`: softmax bandits under GRPO, a sweep over settings, with what the theory predicts."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Any

from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag

DESCRIPTION = "Simulate softmax bandits under GRPO over a sweep of settings; lists are comma-separated."
EXAMPLES = """\
examples:
  grposcope simulate                                                  a 4-arm bandit, exact gradient
  grposcope simulate --momentum 0.9 --lr 0.5 --interval 1,4,6,8       across the stability threshold
  grposcope simulate --group 4,16,64 --runs 200 --binary              how the noise falls with the group size
  grposcope simulate --interval 20 --momentum 0.9 --ratio unclipped --kl-in loss
"""

DRAWN = 6
"""Settings in the plot; the table has all."""

MATRIX, NUMBERS, WORK = 10**7, 10**8, 10**11
"""Largest Jacobian and most numbers kept, of 8 bytes; most updates of a logit, which take about an hour."""

KL = 0.01, 1e6
"""Least and largest weight of the KL: e^{r/λ} of rewards up to 1 is then finite in a double, and no policy is 0."""


def _floats(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a comma-separated list of numbers, such as 1,4,8") from None


def _ints(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a comma-separated list of whole numbers, such as 1,4,8"
        ) from None


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope simulate`."""

    arms: int = flag(default=4, metavar="N", help="arms per context (default: 4)")
    contexts: int = flag(default=1, metavar="N", help="contexts, each a policy (default: 1)")
    kl: float = flag(default=0.3, metavar="X", help="weight of the KL to the uniform reference, above 0 (default: 0.3)")
    lr: list[float] = flag(default=[0.5], type=_floats, metavar="LIST", help="learning rates (default: 0.5)")
    momentum: list[float] = flag(default=[0.0], type=_floats, metavar="LIST", help="momenta (default: 0)")
    interval: list[int] = flag(
        default=[1], type=_ints, metavar="LIST", help="refresh intervals in optimiser steps (default: 1)"
    )
    group: list[int] = flag(
        default=[0], type=_ints, metavar="LIST", help="group sizes, 0 for the exact expected gradient (default: 0)"
    )
    steps: int = flag(default=300, metavar="N", help="optimiser steps (default: 300)")
    runs: int = flag(default=20, metavar="N", help="seeds per sampled setting (default: 20)")
    advantage: str = flag(
        default="leave_one_out", metavar="TEXT", help="advantage of the sampled runs (default: leave_one_out)"
    )
    ratio: str = flag(
        default="none",
        choices=("none", "unclipped", "clipped"),
        help="importance ratio between refreshes (default: none)",
    )
    kl_in: str = flag(
        default="reward",
        choices=("reward", "loss"),
        help="KL as old as the rollouts, or always current (default: reward)",
    )
    binary: bool = flag(default=False, help="arms pay 1 with a probability, not a fixed reward")
    seed: int = flag(default=0, metavar="N", help="seed of the arms and of the first run")
    json: bool = json_flag()


def run(arguments: argparse.Namespace) -> int:
    """Simulate the sweep and print."""
    import numpy as np

    from grposcope.instruments.dynamics import bandit_answer
    from grposcope.instruments.dynamics.bandit import Bandit
    from grposcope.render import document, terminal

    for name in ("arms", "contexts", "steps", "runs"):
        if getattr(arguments, name) < (2 if name == "arms" else 1):
            raise UserError(f"--{name} {getattr(arguments, name)} is too small")
    if not arguments.kl > 0:
        raise UserError("--kl must be above 0: without it the bandit has no inner fixed point to oscillate about")
    if min(arguments.group) < 0:
        raise UserError("--group must be 0 (exact) or at least 1")
    _check_sizes(arguments)
    rewards = np.random.default_rng(arguments.seed).random((arguments.contexts, arguments.arms))
    bandit = Bandit(rewards, kl=arguments.kl)
    names = [field.name for field in fields(bandit_answer.Sweep) if field.name != "bandit"]
    rows = bandit_answer.Sweep(bandit, **{name: getattr(arguments, name) for name in names}).simulate()
    said = bandit_answer.of_rows(bandit, rows)
    say(arguments, terminal.text(said))
    say(arguments, _plot([(row.label, row.value) for row in rows]))
    finish(arguments, document.of_answer(said))
    return 0


def _check_sizes(arguments: argparse.Namespace) -> None:
    """UserError for a sweep that would take gigabytes or hours, before any of it is spent."""
    from grposcope.instruments.dynamics import bandit
    from grposcope.instruments.dynamics.refresh import LONGEST

    contexts, arms, group = arguments.contexts, arguments.arms, max(arguments.group)
    settings = len(arguments.lr) * len(arguments.momentum) * len(arguments.interval)
    runs = settings * (arguments.runs if group else 1)
    together = min(runs, max(16, bandit.CACHED // (contexts * arms)))
    sizes = {
        "--contexts × --arms²": (contexts * arms**2, MATRIX),
        "settings × --runs × --steps": (runs * (arguments.steps + 1), NUMBERS),
        "--contexts × --group × runs at a time": (contexts * group * together * bandit.DRAWN, NUMBERS),
        "settings × --runs × --steps × --contexts × (--arms + --group)": (
            len(arguments.group) * runs * arguments.steps * contexts * (arms + group), WORK),
        "--group": (group, bandit.LARGEST_GROUP),
        "--interval": (max(arguments.interval), LONGEST),
        "--seed": (arguments.seed, LONGEST),
    }  # fmt: skip
    for what, (size, most) in sizes.items():
        if size > most:
            raise UserError(f"{what} is {size:.3g}, more than {most:.3g}: take smaller numbers, or a shorter list")
    if arguments.seed < 0:
        raise UserError(f"--seed {arguments.seed} must be at least 0")
    if not KL[0] <= arguments.kl <= KL[1]:
        raise UserError(f"--kl {arguments.kl:g} must be from {KL[0]:g}, where the fixed point is one arm, to {KL[1]:g}")


def _plot(curves: list[tuple[str, Any]]) -> str:
    """Mean expected reward of each setting against the step, of the first DRAWN settings."""
    import plotext

    from grposcope.render.terminal import plot_text

    plotext.clear_figure()
    for label, values in curves[:DRAWN]:
        plotext.plot(list(range(len(values))), values.tolist(), marker="braille", label=label)
    some = f", the first {DRAWN} of {len(curves)} settings" if len(curves) > DRAWN else ""
    return plot_text(f"expected reward{some}", "optimiser step")
