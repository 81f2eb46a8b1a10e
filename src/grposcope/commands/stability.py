"""`grposcope stability`: at which refresh interval a run would blow up, said before it does."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import logs
from grposcope.commands.output import add_json, finish, say
from grposcope.errors import UserError
from grposcope.formatting import number

if TYPE_CHECKING:
    from grposcope.dynamics.refresh import Margin
    from grposcope.dynamics.stability import UpdateRule
    from grposcope.facts.stability import Stability

DESCRIPTION = "The exact stability check of a refresh interval: rollouts drawn every N optimiser steps."
EXAMPLES = """\
examples:
  grposcope stability --lr 0.1 --momentum 0.9 --curvature 0.0959 --interval 16
  grposcope stability --lr 1e-3 --momentum 0.9 --optimizer adam --rms-gradient 0.01 --curvature 0.5 --interval 8
  grposcope stability --run runs/20260101-120000-tiny-grpo     settings and time constant of a finished run
  grposcope stability --run runs/20260101-120000-tiny-grpo --measure     κ measured on rollouts of its model
"""


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    from grposcope.dynamics.stability import OPTIMIZERS

    command.add_argument("--run", dest="run_path", metavar="RUN",
                         help="take settings and curvature from this run folder")  # fmt: skip
    command.add_argument("--measure", action="store_true",
                         help="with --run: measure κ on rollouts of its model, stiffest direction")  # fmt: skip
    command.add_argument("--lr", type=float, metavar="X", help="learning rate η")
    command.add_argument("--momentum", type=float, metavar="X", help="momentum β of SGD, or β₁ of Adam (default: 0)")
    command.add_argument("--curvature", type=float, metavar="X", help="restoring force κ per unit of displacement")
    command.add_argument("--curvature-se", type=float, default=math.nan, metavar="X", help="standard error of κ")
    command.add_argument("--curvature-variation", type=float, metavar="X",
                         help="standard deviation of κ between batches ÷ κ, for the interval that sampled rollouts "
                              "allow (with --measure: measured)")  # fmt: skip
    command.add_argument("--interval", type=int, metavar="N",
                         help="optimiser steps on each batch of rollouts (default: 1)")  # fmt: skip
    command.add_argument("--ratio", choices=("none", "unclipped", "clipped"), default="none",
                         help="none freezes the force, unclipped removes the lag (default: none)")  # fmt: skip
    command.add_argument(
        "--optimizer",
        choices=tuple(name for name, step in OPTIMIZERS.items() if step is not None),
        help="optimiser (default: sgd)",
    )
    command.add_argument("--rms-gradient", type=float, metavar="X",
                         help="root mean square gradient per parameter, needed with adam and adamw")  # fmt: skip
    logs.add_flags(command, "run_path")
    command.add_argument("--figures", metavar="FOLDER", help="also write the stability map as a PNG into this folder")
    add_json(command)


def run(arguments: argparse.Namespace) -> int:
    """Judge the setting and print."""
    from grposcope.dynamics import stability
    from grposcope.facts.stability import of_rule
    from grposcope.records import Estimate

    if arguments.run_path:
        rule, source = _from_run(arguments)
    elif arguments.measure:
        raise UserError("--measure needs a run to measure: name its folder with --run")
    elif arguments.lr is None:
        raise UserError("say the learning rate with --lr, or name a run folder with --run")
    else:
        rule, source = stability.UpdateRule(arguments.lr, momentum=0.0, interval=1, optimizer="sgd"), "given"
    given = {name: getattr(arguments, name) for name in ("lr", "momentum", "interval", "optimizer", "rms_gradient")}
    rule = replace(rule, **{name: value for name, value in given.items() if value is not None})
    if arguments.curvature is not None:
        source, rule = "given", replace(rule, curvature=Estimate(arguments.curvature, arguments.curvature_se, 1))
    try:
        rule = replace(rule, step=stability.effective_step(rule.optimizer, rule.lr, rule.momentum, rule.rms_gradient))
    except UserError as unknown:
        raise UserError(f"{unknown}; say it with --optimizer and --rms-gradient") from None
    if not math.isfinite(rule.curvature.value):
        if not arguments.run_path:
            raise UserError("say the curvature with --curvature, or name a run folder with --run")
        say(arguments, f"cannot tell: {source}")
        finish(arguments, {"verdict": "cannot tell", "reason": source, "step": rule.step, "momentum": rule.momentum,
                     "interval": rule.interval})  # fmt: skip
        return 0
    check = of_rule(rule, arguments.ratio)
    margin = check.margin
    assert margin is not None
    if margin.threshold and math.isfinite(margin.threshold):
        say(arguments, _map(rule.step * rule.curvature.value, rule.momentum, rule.interval))
    say(arguments, _text(check, margin, source))
    sampled = _sampled(rule, _variation(rule, arguments)) if arguments.ratio == "none" else {}
    if sampled:
        last, differs = sampled["threshold_sampled"], f"{sampled['variation']:.0%}"
        say(arguments, f"where κ differs by {differs} from batch to batch, a disturbance dies out in root mean square "
            f"up to an interval of {last:g}")  # fmt: skip
    if arguments.figures:
        from grposcope.commands.report import write_figures
        from grposcope.report.charts.dynamics import stability_map

        (file,) = write_figures([stability_map([rule], ["this setting"])], arguments, "png")
        say(arguments, f"stability map: {file}")
    finish(arguments, {"verdict": check.verdict, **asdict(margin), "threshold_range": check.between, "step": rule.step,
                 "momentum": rule.momentum, "curvature": rule.curvature.value, "curvature_se": rule.curvature.se,
                 "source": source, **sampled})  # fmt: skip
    return 0


def _variation(rule: UpdateRule, arguments: argparse.Namespace) -> float | None:
    """Variation of κ between batches, given or measured with κ; None where it is not known."""
    if arguments.curvature_variation is not None:
        return float(arguments.curvature_variation)
    measured = arguments.measure and arguments.curvature is None
    return rule.curvature.se * math.sqrt(rule.curvature.n) / rule.curvature.value if measured else None


def _sampled(rule: UpdateRule, variation: float | None) -> dict[str, float]:
    """The largest interval whose second moment stays bounded, where the variation of κ is known."""
    from grposcope.dynamics import sampled_refresh

    if variation is None:
        return {}
    last = sampled_refresh.threshold(rule.step, rule.momentum, rule.curvature.value, variation)
    return {"variation": variation, "threshold_sampled": last}


def _text(check: Stability, margin: Margin, source: str) -> str:
    rule, (least, most) = check.rule, check.between
    error = f" ± {rule.curvature.se:.2g}" if math.isfinite(rule.curvature.se) else ""
    between = f" ({least:g} to {most:g} over the 95 % interval of κ)" if not math.isnan(least) else ""
    lines = [
        f"effective step {number(rule.step)}, momentum {rule.momentum:g}, curvature κ (the pull back per unit of "
        f"displacement) {number(rule.curvature.value)}{error} ({source})",
        f"largest stable refresh interval, steps on one batch of rollouts: {margin.threshold:g}{between}; the lag "
        f"rule, which takes rollouts for half an interval old, would say {number(margin.naive)}",
        f"your interval {margin.interval} is {margin.share:.2f} of it; a disturbance is {number(margin.radius)} × as "
        "large after each cycle",
        f"oscillates from interval {margin.onset:g} on; period here {number(margin.period)} steps",
        f"verdict: {check.verdict}" + (f"; {margin.flag}" if margin.flag else ""),
    ]
    if check.verdict == "unstable":
        lines.append(
            f"remedy: an interval of at most {margin.threshold / 2:g}, a smaller --lr, or the importance ratio"
        )
    return "\n".join(lines)


def _map(pull: float, momentum: float, interval: int) -> str:
    """The stability map in (ηκ, N): the threshold, the onset of oscillation, and where the setting stands."""
    import numpy as np
    import plotext

    from grposcope.dynamics import refresh
    from grposcope.report.terminal import plot_text

    pulls = np.geomspace(pull / 8, min(pull * 8, 1.9 * (1 + momentum)), 60)
    plotext.clear_figure()
    for label, border in (("threshold", refresh.threshold), ("oscillates above", refresh.onset)):
        heights = [max(border(1.0, momentum, float(p)), 0.5) for p in pulls]
        plotext.plot(np.log10(pulls).tolist(), np.log10(heights).tolist(), marker="braille", label=label)
    plotext.scatter([math.log10(pull)], [math.log10(interval)], marker="x", label="this setting")
    return plot_text(f"stability map at momentum {momentum:g}: log10 N against log10 ηκ", "log10 ηκ")


def _from_run(arguments: argparse.Namespace) -> tuple[UpdateRule, str]:
    """Update rule of a run, κ measured or from its reward's time constant, and where κ comes from or why it is NaN."""
    from grposcope.dynamics.stability import update_rule
    from grposcope.facts.stability import from_reward

    run = logs.read(arguments.run_path, arguments)
    if arguments.measure:
        return _measured(run.meta.source, run.config.get("settings", {}), update_rule(run))
    if "reward" not in run.table:
        raise UserError(f"{run.meta.source} records no reward; give --curvature, and the settings without --run")
    rule = from_reward(run)
    if rule.missing:
        return rule, f"{rule.missing}; measure κ and give --curvature"
    return rule, "from the time constant of the reward: an upper bound, as directions it does not see may be stiffer"


def _measured(path: Path, settings: dict[str, Any], rule: UpdateRule) -> tuple[UpdateRule, str]:
    """The rule with the part of κ that waits for a refresh, measured along the stiffest direction."""
    from grposcope.training import run_curvature

    _, along = run_curvature.of_run(path, settings)
    stale = along.stale
    source = f"measured along the stiffest direction; the part that follows every step is {along.current}"
    if not stale.value > 2 * stale.se:
        return rule, f"the part of κ that waits for a refresh, {stale}, does not stand out from 0; {source}"
    return replace(rule, curvature=stale), source
