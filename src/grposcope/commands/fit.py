"""`grposcope fit`: curves through a run's reward, compared on steps they have not seen, and a forecast."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from grposcope.commands import logs
from grposcope.commands.output import add_json, finish, say
from grposcope.errors import UserError
from grposcope.formatting import visible

if TYPE_CHECKING:
    from grposcope.facts.forecast_summary import ForecastSummary
    from grposcope.runs.run import Run

DESCRIPTION = "Fit the reward curve of a run, rank the models on later steps, find phases, and forecast."
EXAMPLES = """\
examples:
  grposcope fit runs/20260101-120000-tiny-grpo               a run, or any log that docs/readers.md lists
  grposcope fit log.csv --map reward=score                   any log with a step and a reward
  grposcope fit log.csv --horizon 500                        how the next 500 steps are expected to go
  grposcope fit log.csv --set reward_low=-1 --set reward_high=2    the range that rewards cannot leave
  grposcope fit log.csv --until 200 --figures pictures       hide later rows, and draw them over the forecast
"""


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    command.add_argument("run_path", metavar="RUN", help="folder or log of a run, of any supported trainer")
    command.add_argument("--horizon", type=float, metavar="N",
                         help="steps to forecast (default: half as many as the run has)")  # fmt: skip
    command.add_argument("--until", type=float, metavar="STEP",
                         help="hide what came after this step, and say how the forecast fared on it")  # fmt: skip
    command.add_argument("--coverage", type=float, default=0.9, metavar="X",
                         help="probability of the predictive interval (default: 0.9)")  # fmt: skip
    logs.add_flags(command, "run_path")
    command.add_argument("--figures", metavar="FOLDER", help="also write the charts as files into this folder")
    command.add_argument("--format", choices=("png", "svg"), default="png", help="kind of those files (default: png)")
    add_json(command)


def run(arguments: argparse.Namespace) -> int:
    """Fit, compare, forecast and print."""
    from grposcope.facts.forecast_summary import numbers

    run = logs.read(arguments.run_path, arguments)
    summary = _summary(run, arguments)
    say(arguments, _plot(summary))
    say(arguments, _text(summary))
    content = numbers(summary)
    if arguments.figures:
        from grposcope.commands.report import write_figures
        from grposcope.report.sections.dynamics import rendered

        written = write_figures(rendered({run.meta.name: summary}, {}, {}).figures, arguments)
        content["figures"] = [str(file) for file in written]
        say(arguments, f"{len(written)} figures in {arguments.figures}")
    finish(arguments, content)
    return 0


def _summary(run: Run, arguments: argparse.Namespace) -> ForecastSummary:
    """The facts of the reward of a run; UserError where none was recorded."""
    from grposcope.facts.forecast_summary import of_run, reward_column

    if reward_column(run) is None:
        some = ", ".join([visible(name, 60) for name in run.table if name != "step"][:12]) or "none"
        raise UserError(f"{run.meta.source} has no reward; its metrics are {some}; say which is the reward with --map")
    return of_run(run, arguments.horizon, arguments.coverage, arguments.until)


def _text(summary: ForecastSummary) -> str:
    compared, ahead = summary.compared, summary.ahead
    assert compared is not None
    lines = [
        summary.sentence,
        "",
        f"{len(summary.series.steps)} points; {1 - compared.ceiling:.0%} of the variance is noise",
        "",
        f"{'model':12} {'error on later steps ÷ last level':>34} {'explains of the rest':>21}",
    ]
    for c in compared.contenders:
        note = f"  {c.fit.flag}" if c.fit and c.fit.flag else ""
        explains = "" if math.isnan(c.explained) else f"{c.explained:.0%}"
        lines.append(f"{c.model:12} {c.held_out.value:>26.3g} ± {c.held_out.se:<5.2g} {explains:>20}{note}")
    lines += ["", f"comparison: {compared.flag or compared.best + ' predicts later steps best'}"]
    lines += [f"phase: {clause}" for clause in summary.phase_clauses]
    lines.append(summary.plateau_sentence)
    if ahead.flag:
        lines.append(f"note: {ahead.flag}")
    if summary.hindsight is not None:
        lines.append(summary.hindsight.sentence)
    return "\n".join(lines)


def _plot(summary: ForecastSummary) -> str:
    """Rewards, the forecast and its interval, and what came later, drawn with characters."""
    import plotext

    from grposcope.report.terminal import plot_text

    plotext.clear_figure()
    ahead = summary.ahead
    plotext.plot(summary.series.steps.tolist(), summary.series.reward.tolist(), marker="braille", label="reward")
    later, values = summary.truth
    if len(later):
        plotext.scatter(later.tolist(), values.tolist(), marker="braille", label="later")
    plotext.plot(ahead.steps.tolist(), ahead.mean.tolist(), marker="dot", label="forecast")
    for bound in (ahead.low, ahead.high):
        plotext.plot(ahead.steps.tolist(), bound.tolist(), marker="braille")
    return plot_text("reward, forecast and its interval", "step")
