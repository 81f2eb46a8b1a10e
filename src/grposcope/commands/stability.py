"""`grposcope stability`: at which refresh interval a run would blow up, said before it does."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import HELP
from grposcope.errors import UserError

if TYPE_CHECKING:
    from grposcope.dynamics.refresh import Margin
    from grposcope.facts.stability import Stability

EXAMPLES = """\
examples:
  grposcope stability --lr 0.1 --momentum 0.9 --curvature 0.0959 --interval 16
  grposcope stability --lr 1e-3 --momentum 0.9 --optimizer adam --rms-gradient 0.01 --curvature 0.5 --interval 8
  grposcope stability --run runs/20260101-120000-tiny-grpo     settings and time constant of a finished run
  grposcope stability --run runs/20260101-120000-tiny-grpo --measure     κ measured on rollouts of its model
"""


def add(commands: Any) -> None:
    """Add the command to the subparsers of `grposcope`."""
    command = commands.add_parser(
        "stability",
        help=HELP["stability"],
        description="The exact stability check of a refresh interval: rollouts drawn every N optimiser steps.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--run", dest="run_path", metavar="RUN",
                         help="take settings and curvature from this run folder")  # fmt: skip
    command.add_argument("--measure", action="store_true",
                         help="with --run: measure κ on rollouts of its model, stiffest direction")  # fmt: skip
    command.add_argument("--lr", type=float, metavar="X", help="learning rate η")
    command.add_argument("--momentum", type=float, metavar="X", help="momentum β of SGD, or β₁ of Adam (default: 0)")
    command.add_argument("--curvature", type=float, metavar="X", help="restoring force κ per unit of displacement")
    command.add_argument("--curvature-se", type=float, default=math.nan, metavar="X", help="standard error of κ")
    command.add_argument("--interval", type=int, metavar="N",
                         help="optimiser steps on each batch of rollouts (default: 1)")  # fmt: skip
    command.add_argument("--ratio", choices=("none", "unclipped", "clipped"), default="none",
                         help="none freezes the force, unclipped removes the lag (default: none)")  # fmt: skip
    command.add_argument("--optimizer", choices=("sgd", "adam"), help="optimiser (default: sgd)")
    command.add_argument("--rms-gradient", type=float, metavar="X",
                         help="root mean square gradient per parameter, needed with adam")  # fmt: skip
    command.add_argument("--figures", metavar="FOLDER", help="also write the stability map as a PNG into this folder")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Judge the setting and print; the last line is JSON."""
    from dataclasses import asdict

    from grposcope.dynamics.stability import UpdateRule, effective_step
    from grposcope.facts.stability import of_rule
    from grposcope.files import dumps
    from grposcope.records import Estimate

    given = {name: getattr(arguments, name) for name in ("lr", "momentum", "curvature", "interval", "optimizer",
             "rms_gradient")}  # fmt: skip
    error, source = arguments.curvature_se, "given"
    if arguments.run_path:
        found, error, source = _from_run(Path(arguments.run_path), arguments.measure)
        given = {name: value if value is not None else found.get(name) for name, value in given.items()}
        if arguments.curvature is not None:
            error, source = arguments.curvature_se, "given"
    elif arguments.measure:
        raise UserError("--measure needs a run to measure: name its folder with --run")
    if given["lr"] is None:
        raise UserError("say the learning rate with --lr, or name a run folder with --run")
    momentum, interval = given["momentum"] or 0.0, 1 if given["interval"] is None else given["interval"]
    optimizer = "sgd" if given["optimizer"] is None else given["optimizer"]
    rms_gradient = math.nan if given["rms_gradient"] is None else given["rms_gradient"]
    try:
        step = effective_step(optimizer, given["lr"], momentum, rms_gradient)
    except UserError as unknown:
        raise UserError(f"{unknown}; say it with --optimizer and --rms-gradient") from None
    if given["curvature"] is None:
        if not arguments.run_path:
            raise UserError("say the curvature with --curvature, or name a run folder with --run")
        print(f"cannot tell: {source}")
        print(dumps({"verdict": "cannot tell", "reason": source, "step": step, "momentum": momentum,
                     "interval": interval}))  # fmt: skip
        return 0
    rule = UpdateRule(given["lr"], momentum, interval, optimizer, step=step,
                      curvature=Estimate(given["curvature"], error, 1))  # fmt: skip
    check = of_rule(rule, arguments.ratio)
    margin = check.margin
    assert margin is not None
    if margin.threshold and math.isfinite(margin.threshold):
        print(_map(step * given["curvature"], momentum, interval))
    print(_text(check, margin, source))
    if arguments.figures:
        from grposcope.commands.report import write_figures
        from grposcope.report.charts.dynamics import stability_map

        (file,) = write_figures([stability_map([rule], ["this setting"])], arguments, "png")
        print(f"stability map: {file}")
    print(dumps({"verdict": check.verdict, **asdict(margin), "threshold_range": check.between, "step": step,
                 "momentum": momentum, "curvature": given["curvature"], "curvature_se": error,
                 "source": source}))  # fmt: skip
    return 0


def _text(check: Stability, margin: Margin, source: str) -> str:
    rule, (least, most) = check.rule, check.between
    error = f" ± {rule.curvature.se:.2g}" if math.isfinite(rule.curvature.se) else ""
    between = f" ({least:g} to {most:g} over the 95 % interval of κ)" if not math.isnan(least) else ""
    lines = [
        f"effective step {rule.step:.4g}, momentum {rule.momentum:g}, curvature {rule.curvature.value:.4g}{error} "
        f"({source})",
        f"largest stable refresh interval: {margin.threshold:g}{between}; the lag rule would say {margin.naive:.1f}",
        f"your interval {margin.interval} is {margin.share:.2f} of it; spectral radius of a cycle {margin.radius:.4f}",
        f"oscillates from interval {margin.onset:g} on; period here {margin.period:.4g} steps",
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


def _from_run(path: Path, measure: bool) -> tuple[dict[str, Any], float, str]:
    """Settings of a run and κ, measured or from its reward's time constant; without κ, with the reason, if none."""
    from grposcope.dynamics.stability import update_rule, with_curvature
    from grposcope.facts.forecast_summary import POINTS
    from grposcope.runs import read
    from grposcope.timeseries.curves import fit_series
    from grposcope.timeseries.reward_curve import averaged, clean, each_batch

    run = read(path)
    found = update_rule(run)
    if measure:
        return _measured(path, run.config.get("settings", {}), found)
    if "reward" not in run.table:
        raise UserError(f"{path} records no reward; give --curvature, and the settings without --run")
    series = each_batch(clean(run.table["step"], run.table["reward"]), found.interval)
    found = with_curvature(found, fit_series(averaged(series, POINTS), "exponential"))
    given: dict[str, Any] = {"lr": found.lr, "momentum": found.momentum, "interval": found.interval,
                             "optimizer": found.optimizer}  # fmt: skip
    if math.isfinite(found.rms_gradient):
        given["rms_gradient"] = found.rms_gradient
    if found.missing:
        return given, math.nan, f"{found.missing}; measure κ and give --curvature"
    given["curvature"] = found.curvature.value
    return (
        given,
        found.curvature.se,
        "from the time constant of the reward: an upper bound, as directions it does not see may be stiffer",
    )


def _measured(path: Path, settings: dict[str, Any], found: Any) -> tuple[dict[str, Any], float, str]:
    """Settings of a run and the part of κ that waits for a refresh, measured along the stiffest direction."""
    from grposcope.training import run_curvature

    given = {name: getattr(found, name) for name in ("lr", "momentum", "interval", "optimizer")}
    if math.isfinite(found.rms_gradient):
        given["rms_gradient"] = found.rms_gradient
    _, along = run_curvature.of_run(path, settings)
    stale = along.stale
    told = f"measured along the stiffest direction; the part that follows every step is {along.current}"
    if not stale.value > 2 * stale.se:
        return given, math.nan, f"the part of κ that waits for a refresh, {stale}, does not stand out from 0; {told}"
    return {**given, "curvature": stale.value}, stale.se, told
