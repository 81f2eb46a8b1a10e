"""`grposcope stability`: at which refresh interval a run would blow up, said before it does."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from grposcope.commands import log_flags as logs
from grposcope.commands.log_flags import LogFlags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.flag import flag, flags_of
from grposcope.instruments.dynamics.stability import UNKNOWN, UpdateRule

if TYPE_CHECKING:
    from grposcope.instruments.dynamics.stability import UpdateRule

DESCRIPTION = "Check whether training is stable when rollouts are drawn only every N optimiser steps."
EXAMPLES = """\
examples:
  grposcope stability --lr 0.1 --momentum 0.9 --curvature 0.0959 --interval 16
  grposcope stability --lr 0.1 --momentum 0.9 --curvature 0.0959 --lag 8     an asynchronous trainer, 8 steps late
  grposcope stability --lr 1e-3 --momentum 0.9 --optimizer adam --rms-gradient 0.01 --curvature 0.5 --interval 8
  grposcope stability --settings setting.yaml --interval 8     numbers from a file, such as lr: 0.1
  grposcope stability runs/20260101-120000-tiny-grpo           settings and time constant of a finished run
  grposcope stability runs/20260101-120000-tiny-grpo --measure     κ measured on rollouts of its model
"""

SMALLEST, LARGEST, TINY = 1e-15, 1e12, 1e-100
"""Bounds of the pull ηκ with which a double tells a cycle from none; least η and κ whose squares are not 0."""


def _optimizers() -> tuple[str, ...]:
    """Choices of --optimizer."""
    from grposcope.instruments.dynamics.stability import OPTIMIZERS

    return tuple(OPTIMIZERS)


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope stability`."""

    place: str = flag(
        names=(),
        dest="run_path",
        default=argparse.SUPPRESS,
        nargs="?",
        metavar="RUN",
        help="a run, whose settings and curvature are taken",
    )
    run_path: str | None = flag(names=("--run",), metavar="RUN", help="the same")
    settings: str | None = flag(
        metavar="FILE",
        help="YAML or JSON with values of these flags by name, such as lr: 0.1; flags on the command line "
        "take precedence",
    )
    measure: bool = flag(
        default=False, help="with a run: measure κ on rollouts of its model, along the stiffest direction"
    )
    lr: float | None = flag(metavar="X", help="learning rate η")
    momentum: float | None = flag(metavar="X", help="momentum β of SGD, or β₁ of Adam (default: 0)")
    curvature: float | None = flag(metavar="X", help="restoring force κ per unit of displacement")
    curvature_se: float = flag(default=math.nan, metavar="X", help="standard error of κ")
    curvature_variation: float | None = flag(
        metavar="X",
        help="standard deviation of κ between batches ÷ κ, for the interval that noisy batches allow "
        "(--measure measures it)",
    )
    interval: int | None = flag(metavar="N", help="optimiser steps on each batch of rollouts (default: 1)")
    lag: int | None = flag(
        metavar="K",
        help="optimiser steps that rollouts are old when they are first trained on, as in an "
        "asynchronous trainer (default: the staleness that the run logs, else 0)",
    )
    ratio: str = flag(
        default="none",
        choices=("none", "unclipped", "clipped"),
        help="none freezes the force, unclipped removes the lag (default: none)",
    )
    optimizer: str | None = flag(choices=_optimizers, help="optimiser (default: sgd)")
    rms_gradient: float | None = flag(
        metavar="X", help="root mean square gradient per parameter, needed with adam and adamw"
    )
    log: LogFlags = flags_of(LogFlags, log_paths="run_path")
    figures: str | None = flag(metavar="FOLDER", help="also write the stability map as a PNG into this folder")
    json: bool = json_flag()


def run(arguments: argparse.Namespace) -> int:
    """Judge the setting and print."""
    from grposcope.instruments.dynamics import stability, stability_answer
    from grposcope.render import document, terminal

    if arguments.settings is not None:
        _take_settings(arguments, Path(arguments.settings))
    rule = _rule(arguments)
    if math.isfinite(rule.curvature.value):
        _check_sizes(rule, arguments)
    elif not arguments.run_path:
        raise UserError("give the curvature with --curvature, or a run")
    variation = arguments.curvature_variation
    check = stability.check(rule, arguments.ratio, math.nan if variation is None else float(variation))
    said = stability_answer.of_setting(check)
    say(arguments, terminal.text(said))
    if check.margin is not None and check.margin.threshold and math.isfinite(check.margin.threshold):
        say(arguments, _map(rule.step * rule.curvature.value, rule.momentum, rule.interval))
    if arguments.figures:
        from grposcope.commands.report import write_figures

        (file,) = write_figures(said.figures, arguments, "png")
        say(arguments, f"stability map: {file}")
    finish(arguments, document.of_answer(said))
    return 0


IN_FILE = (
    "lr", "momentum", "curvature", "curvature_se", "curvature_variation", "interval", "lag", "ratio", "optimizer",
    "rms_gradient",
)  # fmt: skip
"""Flags that a file of settings may give."""


def _take_settings(arguments: argparse.Namespace, file: Path) -> None:
    """Set the flags that were not given to the values of the file; UserError for what is none of them."""
    from grposcope.core import yaml_files

    document = yaml_files.read(file)
    if not isinstance(document.content, Mapping):
        raise UserError(f"{file} holds no named settings; write for example lr: 0.1")
    actions = {action.dest: action for action in arguments.parser._actions}
    for key, value in document.content.items():
        name = str(key).replace("-", "_")
        if name not in IN_FILE:
            raise UserError(f"{document.where(key)}: there is no setting {key}; choose one of {', '.join(IN_FILE)}")
        action = actions[name]
        kind = action.type if callable(action.type) else str
        try:
            taken = kind(str(value))
        except ValueError:
            raise UserError(f"{document.where(key)}: {key} is {value!r}; write a number") from None
        if action.choices is not None and taken not in action.choices:
            raise UserError(f"{document.where(key)}: {key} is {value!r}; use one of {', '.join(action.choices)}")
        default = action.default
        if (given := getattr(arguments, name)) is default or given == default:
            setattr(arguments, name, taken)


def _rule(arguments: argparse.Namespace) -> UpdateRule:
    """The update rule of the run, else of the flags alone, with what the flags say otherwise."""
    from grposcope.core.estimate import Estimate
    from grposcope.instruments.dynamics import stability

    if arguments.run_path:
        rule = _of_run(arguments)
    elif arguments.measure:
        raise UserError("--measure needs the folder of a run: give it with --run")
    elif arguments.lr is None:
        raise UserError("give the learning rate with --lr, or a run")
    else:
        rule = stability.UpdateRule(arguments.lr, momentum=0.0, interval=1, optimizer="sgd")
    overrides = {
        name: getattr(arguments, name) for name in ("lr", "momentum", "interval", "lag", "optimizer", "rms_gradient")
    }
    rule = replace(rule, **{name: value for name, value in overrides.items() if value is not None})
    if not 0 <= rule.lag <= 10**9:
        raise UserError(f"--lag {rule.lag} must be a whole number of optimiser steps, 0 or more")
    if arguments.curvature is not None:
        rule = replace(rule, curvature=Estimate(arguments.curvature, arguments.curvature_se, 1), source="given")
    try:
        return replace(rule, step=stability.effective_step(rule.optimizer, rule.lr, rule.momentum, rule.rms_gradient))
    except UserError as unknown:
        raise UserError(f"{unknown}; give it with --optimizer and --rms-gradient") from None


def _check_sizes(rule: UpdateRule, arguments: argparse.Namespace) -> None:
    """UserError for numbers with which the map of a cycle cannot be computed."""
    step, curvature = rule.step, rule.curvature.value
    if (
        step > 0
        and curvature > 0
        and (
            not SMALLEST <= step * curvature <= LARGEST
            or max(step, curvature) > 1 / TINY
            or min(step, curvature) < TINY
        )
    ):
        raise UserError(
            f"effective step {step:g} × curvature {curvature:g} is outside {SMALLEST:g} … {LARGEST:g}; check "
            "--lr, --rms-gradient and --curvature"
        )
    for name in ("curvature_se", "curvature_variation"):
        value = getattr(arguments, name)
        unknown = name == "curvature_se" and math.isnan(value)  # its default
        if value is not None and not unknown and not 0 <= value <= LARGEST:
            flag = name.replace("_", "-")
            raise UserError(f"--{flag} {value:g} is out of range; give a number from 0 to {LARGEST:g}")


def _map(pull: float, momentum: float, interval: int) -> str:
    """The stability map in (ηκ, N): the threshold, the onset of oscillation, and where the setting stands."""
    import numpy as np
    import plotext

    from grposcope.instruments.dynamics import refresh
    from grposcope.render.terminal import plot_text

    pulls = np.geomspace(pull / 8, min(pull * 8, 1.9 * (1 + momentum)), 60)
    plotext.clear_figure()
    for label, border in (("threshold", refresh.threshold), ("oscillates above", refresh.onset)):
        heights = [max(border(1.0, momentum, float(p)), 0.5) for p in pulls]
        plotext.plot(np.log10(pulls).tolist(), np.log10(heights).tolist(), marker="braille", label=label)
    plotext.scatter([math.log10(pull)], [math.log10(interval)], marker="x", label="this setting")
    return plot_text(f"stability map at momentum {momentum:g}: log10 N against log10 ηκ", "log10 ηκ")


def _of_run(arguments: argparse.Namespace) -> UpdateRule:
    """Update rule of a run, κ measured or from its reward's time constant."""
    from grposcope.instruments.dynamics import stability
    from grposcope.instruments.dynamics.forecast_summary import reward_column

    run = logs.read(arguments.run_path, arguments)
    if arguments.measure:
        from grposcope.lab.train import run_curvature

        rule = stability.update_rule(run)
        _, along = run_curvature.of_run(run.meta.source, run.config.get("settings", {}))
        return _from_measured(rule, along.stale, along.current)
    if reward_column(run) is None:
        raise UserError(f"{run.meta.source} records no reward; give --curvature, and the settings without --run")
    return stability.from_reward(run)


def _from_measured(rule: UpdateRule, stale: Estimate, current: Estimate) -> UpdateRule:
    """The rule with κ as measured along the stiffest direction: `stale`, the part of it that waits for a refresh.

    current: the part that follows every step. Without curvature where `stale` is within two standard errors of 0.
    """
    rule = replace(rule, source="measured", current=current)
    if not stale.value > 2 * stale.se:
        missing = f"the part of κ that changes only with new rollouts, {stale}, does not differ from 0 beyond noise"
        return replace(rule, curvature=UNKNOWN, missing=missing)
    return replace(rule, curvature=stale)
