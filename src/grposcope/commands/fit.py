"""`grposcope fit`: curves through a run's reward, compared on steps they have not seen, and a forecast."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands.output import add_json, finish, say
from grposcope.errors import UserError

if TYPE_CHECKING:
    from grposcope.facts.forecast_summary import ForecastSummary

DESCRIPTION = "Fit the reward curve of a run, rank the models on later steps, find phases, and forecast."
EXAMPLES = """\
examples:
  grposcope fit runs/20260101-120000-tiny-grpo               a run, or any log that docs/readers.md lists
  grposcope fit log.csv --reward-column rewards/mean         any CSV or JSON-lines file with a step and a reward
  grposcope fit log.csv --horizon 500                        how the next 500 steps are expected to go
  grposcope fit log.csv --until 200 --figures pictures       hide later rows, and draw them over the forecast
"""

PLAIN = (".csv", ".tsv", ".jsonl")
"""Files whose columns are read as they are named; `runs.read` reads all else."""


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    command.add_argument("run_path", metavar="RUN", help="run folder, log of a trainer, or CSV or JSON-lines file")
    command.add_argument("--step-column", default="step", metavar="TEXT", help="name of the steps (default: step)")
    command.add_argument("--reward-column", default="reward", metavar="TEXT",
                         help="name of the rewards (default: reward)")  # fmt: skip
    command.add_argument("--horizon", type=float, metavar="N",
                         help="steps to forecast (default: half as many as the run has)")  # fmt: skip
    command.add_argument("--until", type=float, metavar="STEP",
                         help="hide what came after this step, and say how the forecast fared on it")  # fmt: skip
    command.add_argument("--coverage", type=float, default=0.9, metavar="X",
                         help="probability of the predictive interval (default: 0.9)")  # fmt: skip
    command.add_argument("--figures", metavar="FOLDER", help="also write the charts as files into this folder")
    command.add_argument("--format", choices=("png", "svg"), default="png", help="kind of those files (default: png)")
    add_json(command)


def run(arguments: argparse.Namespace) -> int:
    """Fit, compare, forecast and print."""
    from grposcope.facts.forecast_summary import numbers, summarize

    path = Path(arguments.run_path)
    steps, reward, interval = read_curve(path, arguments.step_column, arguments.reward_column)
    summary = summarize(steps, reward, arguments.horizon, arguments.coverage, arguments.until, interval)
    say(arguments, _plot(summary))
    say(arguments, _text(summary))
    content = numbers(summary)
    if arguments.figures:
        from grposcope.commands.report import write_figures
        from grposcope.report.sections.dynamics import rendered

        written = write_figures(rendered({path.stem: summary}, {}, {}).figures, arguments)
        content["figures"] = [str(file) for file in written]
        say(arguments, f"{len(written)} figures in {arguments.figures}")
    finish(arguments, content)
    return 0


def read_curve(path: Path, step: str = "step", reward: str = "reward") -> tuple[list[float], list[float], int]:
    """Steps, rewards and the refresh interval (1 if unknown) of a run or a table; UserError where they are not there.

    Rows without a reward are skipped, as logs write other things on lines of their own; a value that is there
    and is no number is an error that names its line.
    """
    if path.suffix.lower() in PLAIN and not path.is_dir():
        return (*_columns(path, step, reward), 1)
    from grposcope.dynamics.stability import refresh_interval
    from grposcope.runs import read

    run = read(path)
    for name in (step, reward):
        if name not in run.table:
            raise UserError(f"{path} has no column {name!r}; {_names(run.table)}")
    return run.table[step].tolist(), run.table[reward].tolist(), refresh_interval(run)


def _columns(path: Path, step: str, reward: str) -> tuple[list[float], list[float]]:
    steps: list[float] = []
    rewards: list[float] = []
    names: dict[str, None] = {}
    try:
        for line, row in _rows(path):
            names.update(dict.fromkeys(row))
            if row.get(reward) in (None, ""):
                continue
            steps.append(_number(path, line, step, row.get(step)))
            rewards.append(_number(path, line, reward, row[reward]))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; give a run folder, a .csv or a .jsonl file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path} as text: {error}") from None
    if not steps:
        raise UserError(f"{path} has no column {reward!r}; {_names(names)}")
    return steps, rewards


def _names(columns: Iterable[object]) -> str:
    names = ", ".join(sorted(map(str, columns))[:12]) or "none"
    return f"its columns are: {names}; choose with --step-column and --reward-column"


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(Line number, columns) of every row."""
    if path.suffix.lower() == ".jsonl":
        from grposcope.files import json_lines

        yield from json_lines(path, remedy="give one JSON object per line, or a .csv file")
        return
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        for row in reader:
            yield reader.line_num, row


def _number(path: Path, line: int, name: str, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError):
        raise UserError(f"{path}, line {line}: column {name!r} holds {value!r}, not a number") from None


def _text(summary: ForecastSummary) -> str:
    compared, ahead = summary.compared, summary.ahead
    assert compared is not None
    lines = [
        summary.sentence,
        "",
        f"{len(summary.series.steps)} points; a curve without noise could explain at most R² = {compared.ceiling:.3f}",
        "",
        f"{'model':12} {'error on later steps ÷ last level':>34} {'R² ÷ ceiling':>13}",
    ]
    for c in compared.contenders:
        note = f"  {c.fit.flag}" if c.fit and c.fit.flag else ""
        lines.append(f"{c.model:12} {c.held_out.value:>26.3f} ± {c.held_out.se:.2f} {c.explained:>13.3f}{note}")
    lines += ["", f"comparison: {compared.flag or compared.best + ' predicts later steps best'}"]
    lines += [f"phase: {clause}" for clause in summary.phase_clauses]
    lines += [
        summary.plateau,
        f"level now {ahead.level.value:.3g} ± {ahead.level.se:.2g}; at step {ahead.steps[-1]:g} the reward is expected "
        f"at {ahead.mean[-1]:.3g}, {ahead.coverage:.0%} interval {ahead.low[-1]:.3g} to {ahead.high[-1]:.3g}",
        f"value of continuing: {ahead.gain.value:+.3g} ({ahead.gain_between[0]:+.2g} to {ahead.gain_between[1]:+.2g}); "
        f"probability that it learns at all {ahead.learning:.2f}",
        f"verdict: {ahead.verdict}; {ahead.advice}",
    ]
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
