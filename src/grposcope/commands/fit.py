"""`grposcope fit`: curves through a run's reward, compared on steps they have not seen, and a forecast."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from grposcope.commands import HELP
from grposcope.errors import UserError

EXAMPLES = """\
examples:
  grposcope fit runs/20260101-120000-tiny-grpo               a run, or any log that docs/readers.md lists
  grposcope fit log.csv --reward-column rewards/mean         any CSV or JSON-lines file with a step and a reward
  grposcope fit log.csv --horizon 500                        how the next 500 steps are expected to go
  grposcope fit log.csv --until 200 --figures pictures       hide later rows, and draw them over the forecast
"""

PLAIN = (".csv", ".tsv", ".jsonl")
"""Files whose columns are read as they are named; `runs.read` reads all else."""


def add(commands: Any) -> None:
    """Add the command to the subparsers of `grposcope`."""
    command = commands.add_parser(
        "fit",
        help=HELP["fit"],
        description="Fit the reward curve of a run, rank the models on later steps, find phases, and forecast.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fit, compare, forecast, print; the last line is JSON."""
    from grposcope.facts.forecast_summary import numbers, outlook, truth
    from grposcope.files import dumps

    path = Path(arguments.run_path)
    steps, reward, interval = read_curve(path, arguments.step_column, arguments.reward_column)
    found = outlook(steps, reward, arguments.horizon, arguments.coverage, arguments.until, interval)
    print(_plot(found))
    print(_summary(found))
    said = numbers(found)
    if arguments.until is not None:
        fared = truth(found)
        print(f"hidden steps: {fared['points']} rewards, {fared['covered']:.0%} of them inside the "
              f"{arguments.coverage:.0%} interval; error ÷ that of the last level {fared['error']:.3f}")  # fmt: skip
    if arguments.figures:
        from grposcope.report.charts import base
        from grposcope.report.sections.dynamics import said as section

        drawn = base.export(section({path.stem: found}, {}, {}).figures, Path(arguments.figures), arguments.format)
        said["figures"] = [str(file) for file in drawn]
        print(f"{len(drawn)} figures in {arguments.figures}")
    print(dumps(said))
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
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; give a run folder, a .csv or a .jsonl file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path} as text: {error}") from None
    rows = _jsonl(path, text) if path.suffix.lower() == ".jsonl" else _csv(path, text)
    steps: list[float] = []
    rewards: list[float] = []
    seen: dict[str, None] = {}
    for line, row in rows:
        seen.update(dict.fromkeys(row))
        if row.get(reward) in (None, ""):
            continue
        steps.append(_number(path, line, step, row.get(step)))
        rewards.append(_number(path, line, reward, row[reward]))
    if not steps:
        raise UserError(f"{path} has no column {reward!r}; {_names(seen)}")
    return steps, rewards


def _names(columns: Iterable[object]) -> str:
    names = ", ".join(sorted(map(str, columns))[:12]) or "none"
    return f"its columns are: {names}; choose with --step-column and --reward-column"


def _csv(path: Path, text: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(text.splitlines(), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    return [(reader.line_num, row) for row in reader]


def _jsonl(path: Path, text: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
    rows = []
    for line, content in enumerate(text.splitlines(), 1):
        if not content.strip():
            continue
        try:
            row = json.loads(content)
        except json.JSONDecodeError:
            raise UserError(f"{path}, line {line}: not JSON; give one JSON object per line, or a .csv file") from None
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {line}: not a JSON object")
        rows.append((line, row))
    return rows


def _number(path: Path, line: int, name: str, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError):
        raise UserError(f"{path}, line {line}: column {name!r} holds {value!r}, not a number") from None


def _summary(found: Any) -> str:
    from grposcope.facts.forecast_summary import sentence

    compared, ahead = found.compared, found.ahead
    lines = [
        sentence(found),
        "",
        f"{len(found.series.steps)} points; a curve without noise could explain at most R² = {compared.ceiling:.3f}",
        "",
        f"{'model':12} {'error on later steps ÷ last level':>34} {'R² ÷ ceiling':>13}",
    ]
    for c in compared.contenders:
        note = f"  {c.fit.flag}" if c.fit and c.fit.flag else ""
        lines.append(f"{c.model:12} {c.held_out.value:>26.3f} ± {c.held_out.se:.2f} {c.explained:>13.3f}{note}")
    lines += ["", f"comparison: {compared.flag or compared.best + ' predicts later steps best'}"]
    lines += [f"phase: {p.name} from step {p.begin:g} ({p.begins_between[0]:g} to {p.begins_between[1]:g}) "
              f"to {p.end:g}, {p.slope.value:+.3g} ± {p.slope.se:.1g} per step" for p in found.phases]  # fmt: skip
    plateau = ahead.plateau
    end = plateau.flag or f"{plateau.value:.3g} ± {plateau.se:.2g}, 95 % of the way at step {ahead.plateau_step:.0f}"
    lines += [
        f"plateau: {end}",
        f"level now {ahead.level.value:.3g} ± {ahead.level.se:.2g}; at step {ahead.steps[-1]:g} the reward is expected "
        f"at {ahead.mean[-1]:.3g}, {ahead.coverage:.0%} interval {ahead.low[-1]:.3g} to {ahead.high[-1]:.3g}",
        f"value of continuing: {ahead.gain.value:+.3g} ({ahead.gain_between[0]:+.2g} to {ahead.gain_between[1]:+.2g}); "
        "probability that it learns at all "
        f"{ahead.learning:.2f}",
        f"verdict: {ahead.verdict}; {ahead.advice}",
    ]
    return "\n".join(lines + ([f"note: {ahead.flag}"] if ahead.flag else []))


def _plot(found: Any) -> str:
    """Rewards, the forecast and its interval, and what came later, drawn with characters."""
    import plotext

    from grposcope.report.terminal import plot_text

    plotext.clear_figure()
    ahead = found.ahead
    plotext.plot(found.series.steps.tolist(), found.series.reward.tolist(), marker="braille", label="reward")
    later, values = found.truth
    if len(later):
        plotext.scatter(later.tolist(), values.tolist(), marker="braille", label="later")
    plotext.plot(ahead.steps.tolist(), ahead.mean.tolist(), marker="dot", label="forecast")
    for bound in (ahead.low, ahead.high):
        plotext.plot(ahead.steps.tolist(), bound.tolist(), marker="braille")
    return plot_text("reward, forecast and its interval", "step")
