"""`grposcope simulate`: softmax bandits under GRPO, a sweep over settings, with what the theory predicts."""

from __future__ import annotations

import argparse
from typing import Any

from grposcope.commands.output import add_json, finish, say
from grposcope.errors import UserError
from grposcope.formatting import number

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


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    command.add_argument("--arms", type=int, default=4, metavar="N", help="arms per context (default: 4)")
    command.add_argument("--contexts", type=int, default=1, metavar="N", help="contexts, each a policy (default: 1)")
    command.add_argument("--kl", type=float, default=0.3, metavar="X",
                         help="weight of the KL to the uniform reference, above 0 (default: 0.3)")  # fmt: skip
    command.add_argument("--lr", type=_floats, default=[0.5], metavar="LIST", help="learning rates (default: 0.5)")
    command.add_argument("--momentum", type=_floats, default=[0.0], metavar="LIST", help="momenta (default: 0)")
    command.add_argument("--interval", type=_ints, default=[1], metavar="LIST",
                         help="refresh intervals in optimiser steps (default: 1)")  # fmt: skip
    command.add_argument("--group", type=_ints, default=[0], metavar="LIST",
                         help="group sizes, 0 for the exact expected gradient (default: 0)")  # fmt: skip
    command.add_argument("--steps", type=int, default=300, metavar="N", help="optimiser steps (default: 300)")
    command.add_argument("--runs", type=int, default=20, metavar="N", help="seeds per sampled setting (default: 20)")
    command.add_argument("--advantage", default="leave_one_out", metavar="TEXT",
                         help="advantage of the sampled runs (default: leave_one_out)")  # fmt: skip
    command.add_argument("--ratio", choices=("none", "unclipped", "clipped"), default="none",
                         help="importance ratio between refreshes (default: none)")  # fmt: skip
    command.add_argument("--kl-in", choices=("reward", "loss"), default="reward",
                         help="KL as old as the rollouts, or always current (default: reward)")  # fmt: skip
    command.add_argument("--binary", action="store_true", help="arms pay 1 with a probability, not a fixed reward")
    command.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the arms and of the first run")
    add_json(command)


def run(arguments: argparse.Namespace) -> int:
    """Simulate the sweep and print."""
    import numpy as np

    from grposcope.dynamics import refresh
    from grposcope.dynamics.bandit import Bandit, settings_grid
    from grposcope.records import Estimate

    for name in ("arms", "contexts", "steps", "runs"):
        if getattr(arguments, name) < (2 if name == "arms" else 1):
            raise UserError(f"--{name} {getattr(arguments, name)} is too small")
    if not arguments.kl > 0:
        raise UserError("--kl must be above 0: without it the bandit has no inner fixed point to oscillate about")
    rewards = np.random.default_rng(arguments.seed).random((arguments.contexts, arguments.arms))
    bandit = Bandit(rewards, kl=arguments.kl)
    kappa = float(bandit.stiffness()[0])
    goal = float(bandit.value(bandit.fixed_point()))
    rows: list[dict[str, Any]] = []
    curves = []
    for group in arguments.group:
        if group < 0:
            raise UserError("--group must be 0 (exact) or at least 1")
        seeds = np.arange(arguments.runs if group else 1) + arguments.seed
        grid = settings_grid(lr=arguments.lr, momentum=arguments.momentum, interval=arguments.interval, seed=seeds)
        done = bandit.simulate(grid["lr"], grid["momentum"], grid["interval"], group or None, arguments.steps,
                               grid["seed"].astype(int), advantage=arguments.advantage, ratio=arguments.ratio,
                               kl_in=arguments.kl_in, binary=arguments.binary)  # fmt: skip
        value = done.value.reshape(-1, len(seeds), arguments.steps + 1)
        late = value[:, :, -max(1, arguments.steps // 4) :]
        for i, (lr, momentum, interval) in enumerate(
            zip(*(grid[k].reshape(-1, len(seeds))[:, 0] for k in ("lr", "momentum", "interval")), strict=True)
        ):
            judged = refresh.margin(float(lr), float(momentum), kappa, int(interval), "none")
            swing = float(np.mean(np.ptp(late[i], axis=1)))
            end = Estimate.mean(late[i].mean(1).tolist())
            rows.append({"lr": float(lr), "momentum": float(momentum), "interval": int(interval),
                         "group": group or "exact", "end": end, "swing": swing, "threshold": judged.threshold,
                         "radius": judged.radius, "stable": judged.stable})  # fmt: skip
            curves.append((f"η {lr:g} β {momentum:g} N {interval:g} G {group or 'exact'}", value[i].mean(0)))
    say(arguments, _plot(curves))
    contexts, arms = bandit.rewards.shape
    about = f"curvature κ = {number(kappa)} from the Jacobian, fixed point at {number(goal)}"
    say(arguments, f"{contexts} contexts × {arms} arms, {about}")
    say(arguments, "\n".join(_table(rows)))
    finish(arguments, {"curvature": kappa, "fixed_point": goal, "rows": rows})
    return 0


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of a table: a setting a row, with what was simulated and what the threshold says of it."""
    lines = [
        f"{'η':>8} {'β':>6} {'N':>5} {'G':>6} {'late value':>22} {'swing':>8} {'N*':>6} {'radius':>8}  frozen force"
    ]
    for r in rows:
        verdict = "stable" if r["stable"] else "unstable"
        lines.append(
            f"{r['lr']:>8g} {r['momentum']:>6g} {r['interval']:>5} {r['group']!s:>6} "
            f"{r['end'].value:>13.3f} ± {r['end'].se:<6.2g} {r['swing']:>8.3f} {r['threshold']:>6g} "
            f"{r['radius']:>8.3f}  {verdict}"
        )
    return lines


def _plot(curves: list[tuple[str, Any]]) -> str:
    """Mean expected reward of each setting against the step, of the first DRAWN settings."""
    import plotext

    from grposcope.report.terminal import plot_text

    plotext.clear_figure()
    for label, values in curves[:DRAWN]:
        plotext.plot(list(range(len(values))), values.tolist(), marker="braille", label=label)
    some = f", the first {DRAWN} of {len(curves)} settings" if len(curves) > DRAWN else ""
    return plot_text(f"expected reward{some}", "optimiser step")


def _floats(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers with commas, such as 1,4,8") from None


def _ints(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of whole numbers with commas, such as 1,4,8") from None
