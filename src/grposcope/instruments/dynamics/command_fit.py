"""`grposcope fit`: closed forms through a run's reward, and a forecast of its level."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from grposcope.commands import log_flags as logs
from grposcope.commands.log_flags import LogFlags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag, flags_of
from grposcope.core.text import visible

if TYPE_CHECKING:
    from grposcope.instruments.dynamics.forecast_summary import ForecastSummary

DESCRIPTION = "Fit closed-form curves to the reward of a run, and forecast its level with an interval."
EXAMPLES = """\
examples:
  grposcope fit runs/20260101-120000-tiny-grpo               a run, or any log that docs/readers.md lists
  grposcope fit log.csv --map reward=score                   any log with a step and a reward
  grposcope fit log.csv --horizon 500                        how the next 500 steps are expected to go
  grposcope fit log.csv --set reward_low=-1 --set reward_high=2    the range that rewards cannot leave
  grposcope fit log.csv --until 200 --figures pictures       hide later rows, and draw them over the forecast
"""


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope fit`."""

    run_path: str = flag(names=(), metavar="RUN", help="folder or log of a run, of any supported trainer")
    horizon: float | None = flag(metavar="N", help="steps to forecast (default: half as many as the run has)")
    until: float | None = flag(metavar="STEP", help="hide the steps after this one, and compare the forecast with them")
    coverage: float = flag(default=0.9, metavar="X", help="probability of the predictive interval (default: 0.9)")
    log: LogFlags = flags_of(LogFlags, log_paths="run_path")
    figures: str | None = flag(metavar="FOLDER", help="also write the charts as files into this folder")
    format: str = flag(default="png", choices=("png", "svg"), help="format of those files (default: png)")
    json: bool = json_flag()


def run(arguments: argparse.Namespace) -> int:
    """Fit, forecast and print."""
    from grposcope.core.run import labels
    from grposcope.instruments.dynamics.forecast_answer import answer
    from grposcope.instruments.dynamics.forecast_summary import of_run, reward_column
    from grposcope.render import document, terminal

    run = logs.read(arguments.run_path, arguments)
    if reward_column(run) is None:
        some = ", ".join([visible(name, 60) for name in run.table if name != "step"][:12]) or "none"
        raise UserError(f"{run.meta.source} has no reward; name one of its metrics with --map: {some}")
    summary = of_run(run, arguments.horizon, arguments.coverage, arguments.until)
    (label,) = labels([run])
    said = answer({label: summary}, {})
    say(arguments, terminal.text(said))
    say(arguments, _plot(summary))
    content = document.of_answer(replace(said, document=said.document[label]))
    if arguments.figures:
        from grposcope.commands.report import write_figures

        content["figures"] = [str(file) for file in write_figures(said.figures, arguments)]
        say(arguments, f"{len(said.figures)} figures in {arguments.figures}")
    finish(arguments, content)
    return 0


def _plot(summary: ForecastSummary) -> str:
    """Rewards, the forecast and its interval, and what came later, drawn with characters."""
    import plotext

    from grposcope.render.terminal import plot_text

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
