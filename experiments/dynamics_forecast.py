"""Experiment: what the fitted curves explain of real reward curves, and whether a forecast beats the last level.

Claims: (1) an inertial curve explains a GRPO reward (arXiv:2606.30789 reports R² ≥ 0.91); (2) a forecast from 30, 50
and 70 % of a run has a smaller error than "the mean of the last tenth goes on", and its 90 % interval covers.
The forecast's constants are judged by leaving each run out: of several settings the one that is best on the
other runs is used on it. Simulated curves whose truth is known are the control. Verdict: it holds if over the runs of
at least 90 points the geometric mean of the error ratio is at most 0.9, the worst 1.2, coverage within 0.85 to 0.95.

    python experiments/dynamics_forecast.py [../shared/data/runs]       about three minutes on one core
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from grposcope.dynamics import fit
from grposcope.errors import UserError
from grposcope.runs import read
from grposcope.timeseries.forecast import mean_path
from grposcope.timeseries.model_comparison import last_level
from grposcope.timeseries.reward_curve import clean
from grposcope.timeseries.state_space import Prior

ORIGINS = (0.3, 0.5, 0.7)
PLAIN = ("exponential", "inertial", "logistic", "power")
SHAPES = ((0.3, 0.6), (0.3, 0.5, 0.8), (0.15, 0.5))
SETTINGS = [
    replace(Prior(), powers=powers, gain=gain, width=width)
    for powers in SHAPES
    for gain in (2.0, 3.0, 4.0)
    for width in (3.0, 5.0)
]
LEAST = 20
KINDS = ("logistic", "late take-off", "plateau", "straight", "nothing but noise", "random walk")


def load(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Steps and rewards by run name, of every log in the folder that has at least LEAST rewards."""
    runs: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix in (
            ".md",
            ".wandb",
        ):  # a .wandb file holds the same run as the .log in its folder
            continue
        try:
            table = read(path).table
            series = clean(table["step"], table["reward"])
        except (UserError, KeyError) as error:
            print(f"left out: {path.name}: {error}")
            continue
        name = path.stem.replace("unslothai__notebooks__", "").split("__")[-1]
        if len(series.reward) >= LEAST and not series.constant:
            runs[name if name not in runs else str(path)] = series.steps, series.reward
    return runs


def simulated(seed: int = 0) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Curves of 30 to 300 steps by kind, which rise by 2 to 20 units of noise that is white or an AR(1)."""
    random = np.random.default_rng(seed)
    kinds: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {kind: {} for kind in KINDS}
    for n in (30, 60, 120, 300):
        u = np.arange(1.0, n + 1) / n
        for i in range(8):
            for kind in KINDS:
                rho, rise = random.choice([0.0, 0.3, 0.6]), math.exp(random.uniform(math.log(2), math.log(20)))
                noise = lfilter([math.sqrt(1 - rho**2)], [1, -rho], random.standard_normal(n + 50))[50:]
                middle = random.uniform(0.1, 0.5) if kind == "logistic" else random.uniform(0.5, 0.9)
                curve = {
                    "logistic": rise / (1 + np.exp(-(u - middle) * random.uniform(8, 25))),
                    "late take-off": rise / (1 + np.exp(-(u - middle) * random.uniform(10, 40))),
                    "plateau": rise * (1 - np.exp(-u / random.uniform(0.05, 0.3))),
                    "straight": rise * u,
                    "nothing but noise": 0 * u,
                    "random walk": np.cumsum(0.3 * random.standard_normal(n)),
                }[kind]
                kinds[kind][f"{kind} {n} {i}"] = np.arange(1.0, n + 1), curve + noise
    return kinds


def rmse(a: np.ndarray | float, b: np.ndarray) -> float:
    """Root mean square difference."""
    return float(np.sqrt(np.mean((a - b) ** 2)))


def table(header: list[str], rows: list[list[object]]) -> str:
    """The rows as a Markdown table."""
    cells = [[f"{v:.2f}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    return "\n".join("| " + " | ".join(r) + " |" for r in [header, ["---"] * len(header), *cells])


def explained(runs: dict) -> list[list[object]]:
    """R² of every model next to the noise ceiling, a row per run."""
    rows = []
    for name, (t, y) in runs.items():
        fits = [fit.fit(t, y, model) for model in PLAIN]
        ceiling = fit.noise_ceiling(t, y)
        rows.append([name, len(t), f"{ceiling.value:.2f} ± {ceiling.se:.2f}", *(f.r2 for f in fits),
                     fit.compare(t, y).best])  # fmt: skip
    return rows


def forecasts(runs: dict, models: bool = True) -> list[dict]:
    """Errors of the forecast and of the plain fits ÷ the error of the last level, and coverage, by run and origin."""
    rows = []
    for name, (t, y) in runs.items():
        for origin in ORIGINS:
            n = round(origin * len(t))
            if n < 10:
                continue
            predicted = fit.forecast(t[:n], y[:n], t[n:])
            base = rmse(last_level(y[:n]), y[n:])
            missed = np.maximum(predicted.low - y[n:], 0) + np.maximum(y[n:] - predicted.high, 0)
            plain = {m: rmse(fit.fit(t[:n], y[:n], m).predict(t[n:]), y[n:]) / base
                     for m in (PLAIN if models else ())}  # fmt: skip
            rows.append({"run": name, "origin": origin, "points": n, "forecast": rmse(predicted.mean, y[n:]) / base,
                         "future mean (oracle)": rmse(float(y[n:].mean()), y[n:]) / base, **plain,
                         "coverage": float(((predicted.low <= y[n:]) & (y[n:] <= predicted.high)).mean()),
                         "score": float(np.mean(predicted.high - predicted.low + 20 * missed)) / base,
                         "change": bool(y[n:][-max(3, len(y) // 10):].mean() > predicted.level.value),
                         "verdict": predicted.verdict})  # fmt: skip
    return rows


def left_out(runs: dict) -> tuple[float, float, list[float]]:
    """Geometric mean and worst error ratio with constants chosen on the other runs, and the mean of each setting."""
    logs = np.empty((len(SETTINGS), len(runs), len(ORIGINS)))
    for j, (t, y) in enumerate(runs.values()):
        for k, origin in enumerate(ORIGINS):
            n = round(origin * len(t))
            past = clean(t[:n], y[:n])
            base = rmse(last_level(y[:n]), y[n:])
            for i, prior in enumerate(SETTINGS):
                logs[i, j, k] = np.log(rmse(mean_path(past, t[n:], prior), y[n:]) / base)
    chosen = []
    for j in range(len(runs)):
        others = np.delete(logs, j, axis=1).mean((1, 2))
        chosen.append(logs[int(others.argmin()), j])
    return float(np.exp(np.mean(chosen))), float(np.exp(np.max(chosen))), np.exp(logs.mean((1, 2))).tolist()


def summary(rows: list[dict], column: str) -> str:
    """The geometric mean of a column with its standard error over runs, and the worst value, as text."""
    by_run: dict[str, list[float]] = {}
    for row in rows:
        by_run.setdefault(row["run"], []).append(np.log(row[column]))
    means = np.array([np.mean(v) for v in by_run.values()])
    every = np.array([row[column] for row in rows])
    centre = float(np.exp(np.log(every).mean()))
    error = centre * float(means.std(ddof=1)) / np.sqrt(len(means))
    return f"{column}: geometric mean {centre:.3f} ± {error:.3f}, worst {every.max():.2f}"


def main() -> None:
    """Run both parts, print tables and verdicts, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = Path(__file__).parents[1] / ".." / "shared" / "data" / "runs"
    parser.add_argument("folder", nargs="?", type=Path, default=default, help="folder of run logs")
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        print(f"skipped: no run logs in {arguments.folder}; give the folder that holds them")
        return
    every = load(arguments.folder)
    long = {name: run for name, run in every.items() if len(run[0]) >= 90}
    short = {name: run for name, run in every.items() if len(run[0]) < 90}
    header = ["run", "points", "noise ceiling", "exponential", "inertial", "logistic", "power", "best on later steps"]
    print(table(header, explained(long)), "\n")
    rows, brief = forecasts(long), forecasts(short)
    print(table(list(rows[0]), [list(row.values()) for row in rows]), "\n")
    for title, part in (("runs of at least 90 points", rows), ("shorter runs", brief)):
        print(title)
        for column in ("forecast", "future mean (oracle)", *PLAIN):
            print("  " + summary(part, column))
        for origin in ORIGINS:
            some = [row for row in part if row["origin"] == origin]
            ratio = np.exp(np.mean([np.log(row["forecast"]) for row in some]))
            print(f"  from {origin:.0%}: {ratio:.3f}, coverage {np.mean([row['coverage'] for row in some]):.3f}")
        covered = np.array([row["coverage"] for row in part])
        score = np.exp(np.mean([np.log(row["score"]) for row in part]))
        print(f"  coverage of the 90 % interval {covered.mean():.3f}, smallest {covered.min():.2f}; "
              f"its score, width + 20 × what it missed, ÷ the last level's error {score:.2f}")  # fmt: skip
        for verdict in ("rising", "falling", "level", "cannot tell"):
            later = [row["change"] for row in part if row["verdict"] == verdict]
            print(f"  {verdict}: {len(later)} times, later above the level in {sum(later)}")
    print("\nsimulated curves, 30 to 60 and 120 to 300 points")
    for kind, curves in simulated().items():
        parts = []
        for lengths in ((30, 60), (120, 300)):
            part = forecasts({k: v for k, v in curves.items() if len(v[0]) in lengths}, models=False)
            ratio = np.exp(np.mean([np.log(row["forecast"]) for row in part]))
            parts.append(f"{ratio:.3f}, coverage {np.mean([row['coverage'] for row in part]):.3f}")
        print(f"  {kind}: " + "; ".join(parts))
    honest, worst, each = left_out(long)
    print(f"constants chosen without the run: geometric mean {honest:.3f}, worst {worst:.2f}; "
          f"the {len(each)} settings give {min(each):.3f} to {max(each):.3f}")  # fmt: skip
    centre = float(np.exp(np.mean([np.log(row["forecast"]) for row in rows])))
    most = max(row["forecast"] for row in rows)
    covered = float(np.mean([row["coverage"] for row in rows]))
    good = centre <= 0.9 and most <= 1.2 and 0.85 <= covered <= 0.95
    print(f"verdict: the forecast {'reaches' if good else 'does not reach'} 0.9 / 1.2 / 0.85 to 0.95: "
          f"{centre:.3f} / {most:.2f} / {covered:.3f}")  # fmt: skip
    print(json.dumps({"long": rows, "short": brief, "left_out": {"geometric_mean": honest, "worst": worst}}))


if __name__ == "__main__":
    main()
