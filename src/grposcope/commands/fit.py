"""`grposcope fit`: curves through a run's reward, compared on steps they have not seen, and a forecast."""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from grposcope.commands import HELP
from grposcope.errors import UserError

EXAMPLES = """\
examples:
  grposcope fit runs/20260101-120000-tiny-grpo               a run folder of grposcope train
  grposcope fit log.csv --reward-column rewards/mean         any CSV or JSON-lines file with a step and a reward
  grposcope fit log.csv --horizon 500                        how the next 500 steps are expected to go
"""


def add(commands: Any) -> None:
    """Add the command to the subparsers of `grposcope`."""
    command = commands.add_parser(
        "fit",
        help=HELP["fit"],
        description="Fit the reward curve of a run, rank the models on later steps, find phases, and forecast.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("run_path", metavar="RUN", help="run folder, or CSV or JSON-lines file")
    command.add_argument("--step-column", default="step", metavar="TEXT", help="name of the steps (default: step)")
    command.add_argument("--reward-column", default="reward", metavar="TEXT",
                         help="name of the rewards (default: reward)")  # fmt: skip
    command.add_argument("--horizon", type=float, metavar="N",
                         help="steps to forecast (default: half as many as the run has)")  # fmt: skip
    command.add_argument("--coverage", type=float, default=0.9, metavar="X",
                         help="probability of the predictive interval (default: 0.9)")  # fmt: skip
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fit, compare, forecast, print; the last line is JSON."""
    from grposcope.dynamics import fit
    from grposcope.runs.store import dumps

    steps, reward = read_curve(Path(arguments.run_path), arguments.step_column, arguments.reward_column)
    compared = fit.compare(steps, reward)
    pieces = fit.phases(steps, reward)
    horizon = arguments.horizon or max(1.0, (max(steps) - min(steps)) / 2)
    ahead = fit.forecast(steps, reward, horizon, coverage=arguments.coverage)
    print(_plot(steps, reward, ahead))
    print(_summary(compared, pieces, ahead, len(steps)))
    print(
        dumps(
            {
                "n": len(steps),
                "ceiling": compared.ceiling,
                "best": compared.best,
                "comparison": compared.flag,
                "models": {
                    c.model: {
                        "held_out": c.held_out,
                        "explained": c.explained,
                        "r2": c.fit.r2 if c.fit else math.nan,
                        "parameters": dict(c.fit.parameters) if c.fit else {},
                        "flag": c.fit.flag if c.fit else "",
                    }
                    for c in compared.contenders
                },
                "phases": pieces,
                "forecast": {
                    "step": float(ahead.steps[-1]),
                    "mean": float(ahead.mean[-1]),
                    "low": float(ahead.low[-1]),
                    "high": float(ahead.high[-1]),
                    "coverage": ahead.coverage,
                    "level": ahead.level,
                    "gain": ahead.gain,
                    "learning": ahead.learning,
                    "plateau": ahead.plateau,
                    "plateau_step": ahead.plateau_step,
                    "verdict": ahead.verdict,
                    "advice": ahead.advice,
                    "flag": ahead.flag,
                },
            }
        )
    )
    return 0


def read_curve(path: Path, step: str = "step", reward: str = "reward") -> tuple[list[float], list[float]]:
    """Steps and rewards of a run folder (its steps.jsonl), a .jsonl or a .csv file; UserError where they are not there.

    Rows without a reward are skipped, as logs write other things on lines of their own; a value that is there
    and is no number is an error that names its line. Steps that repeat, as with several updates per batch, are
    the reader's to pass on.
    """
    if path.is_dir():
        path = path / "steps.jsonl"
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; give a run folder, a .csv or a .jsonl file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path} as text: {error}") from None
    rows = _csv(path, text) if path.suffix.lower() in (".csv", ".tsv") else _jsonl(path, text)
    steps: list[float] = []
    rewards: list[float] = []
    seen: set[str] = set()
    for line, row in rows:
        seen.update(row)
        if row.get(reward) in (None, ""):
            continue
        steps.append(_number(path, line, step, row.get(step)))
        rewards.append(_number(path, line, reward, row[reward]))
    if not steps:
        names = ", ".join(sorted(map(str, seen))[:12]) or "none"
        raise UserError(f"{path} has no column {reward!r}; its columns are: {names}; choose with --reward-column")
    return steps, rewards


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


def _summary(compared: Any, pieces: Any, ahead: Any, n: int) -> str:
    lines = [
        f"{n} points; a curve without noise could explain at most R² = {compared.ceiling:.3f}",
        "",
        f"{'model':12} {'error on later steps ÷ last level':>34} {'R² ÷ ceiling':>13}",
    ]
    for c in compared.contenders:
        note = f"  {c.fit.flag}" if c.fit and c.fit.flag else ""
        lines.append(f"{c.model:12} {c.held_out.value:>26.3f} ± {c.held_out.se:.2f} {c.explained:>13.3f}{note}")
    lines += ["", f"comparison: {compared.flag or compared.best + ' predicts later steps best'}"]
    lines += [f"phase: {p.name} from step {p.begin:g} ({p.begins_between[0]:g} to {p.begins_between[1]:g}) "
              f"to {p.end:g}, {p.slope.value:+.3g} ± {p.slope.se:.1g} per step" for p in pieces]  # fmt: skip
    plateau = ahead.plateau
    end = plateau.flag or f"{plateau.value:.3g} ± {plateau.se:.2g}, 95 % of the way at step {ahead.plateau_step:.0f}"
    lines += [
        f"plateau: {end}",
        f"level now {ahead.level.value:.3g} ± {ahead.level.se:.2g}; at step {ahead.steps[-1]:g} the reward is expected "
        f"at {ahead.mean[-1]:.3g}, {ahead.coverage:.0%} interval {ahead.low[-1]:.3g} to {ahead.high[-1]:.3g}",
        f"value of continuing: {ahead.gain.value:+.3g} ± {ahead.gain.se:.2g}; probability that it learns at all "
        f"{ahead.learning:.2f}",
        f"verdict: {ahead.verdict}; {ahead.advice}",
    ]
    return "\n".join(lines + ([f"note: {ahead.flag}"] if ahead.flag else []))


def _plot(steps: list[float], reward: list[float], ahead: Any) -> str:
    """Rewards, the forecast and its interval, drawn with characters."""
    import plotext

    from grposcope.commands.plots import framed

    plotext.clear_figure()
    finite = [(s, r) for s, r in zip(steps, reward, strict=True) if math.isfinite(s) and math.isfinite(r)]
    plotext.plot(*zip(*finite, strict=True), marker="braille", label="reward")
    plotext.plot(ahead.steps.tolist(), ahead.mean.tolist(), marker="dot", label="forecast")
    for bound in (ahead.low, ahead.high):
        plotext.plot(ahead.steps.tolist(), bound.tolist(), marker="braille")
    return framed("reward, forecast and its interval", "step")
