"""Size and power of the rule `reward hacking` where a held-out score is logged: peaks, gaps, and healthy runs.

    python benchmarks/heldout_peaks.py size  --seeds 10000 300     runs in which nothing is gamed, by kind
    python benchmarks/heldout_peaks.py power --seeds 10000 60      peaks of every height, place and precision

Evaluations are of as many problems as given, the same ones each time: each is solved with a rate of its own, and the
rates move with the run. Five kinds of healthy runs differ in what makes the curves: `saturating` (smooth curves plus
AR(1) noise), `policy` (a skill that climbs and wanders on the logit scale, drawn problem by problem), `staircase`
(sudden insights, noise with heavy tails), `gap` (the held-out score is done early, or began high, and the training
reward goes on by up to 0.15), and `still` (nothing but a policy that wanders). Seeds below 10,000 are for tuning.
Found: flagged by `diagnose`, after all rules are weighed. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from labelled_curves import Array, Made, make, noise, saturating
from scipy.special import expit, logit

from grposcope.core.run import Evaluations, Meta, Run, no_groups
from grposcope.instruments.diagnosis import diagnose
from grposcope.maths.intervals import wilson

ROWS, BATCH = 200, 256
"""Steps of a run, and rollouts in each."""

MODES = ("reward hacking", "held-out decline")


def run_of(made: Made, metric: str = "reward") -> Run:
    """The run as a reader would make it, its scores evaluated under the name of a metric."""
    rows = [(int(s), metric, float(v), math.nan, 0, "no standard error in the log")
            for s, v in zip(made.at, made.scores, strict=True)]  # fmt: skip
    return Run(Meta(Path("made"), "trl", "made", "finished"), {"settings": {"group": 8}}, made.table, no_groups(),
               Evaluations.of_rows(rows))  # fmt: skip


def evaluated(rng: np.random.Generator, mean: Array, problems: int, spread: float = 1.5) -> Array:
    """Shares (E,) of the same problems that are solved, one answer each, where the expected shares are `mean` (E,)."""
    difficulty = spread * rng.normal(size=problems)
    shift = logit(np.clip(mean, 1e-3, 1 - 1e-3)) * math.sqrt(1 + spread**2 * math.pi / 8)
    for _ in range(5):  # so that the expected share is `mean` for these problems
        rates = expit(shift[:, None] - difficulty)
        shift = shift + (mean - rates.mean(1)) / (rates * (1 - rates)).mean(1)
    return (rng.random((len(mean), problems)) < expit(shift[:, None] - difficulty)).mean(1)


def placed(evaluations: int) -> Array:
    """Steps (E,) of evaluations at equal distances, the last at the end."""
    return np.linspace(ROWS / evaluations, ROWS, evaluations).astype(np.int64)


def finish(seed: int, phi: float, reward: Array, at: Array, scores: Array) -> Made:
    """A healthy run's metrics with this reward (n,) and these held-out scores."""
    table = make("healthy", seed, phi, ROWS).table | {"reward": reward}
    return Made(table, at, scores, True)


def peaked(
    seed: int, peak: float, fall: float, evaluations: int, problems: int, bonus: float = 0.0, rise: float = 0.15
) -> Made:
    """Training reward 0.3 to 0.9; the held-out score rises by `rise` up to the share `peak` of the run, then falls."""
    rng = np.random.default_rng([seed, 1, evaluations, problems, round(1000 * peak), round(1000 * fall)])
    phi = float(rng.choice([0.0, 0.3, 0.6, 0.9]))
    u = (np.arange(ROWS) + 0.5) / ROWS
    shape = u if rng.random() < 0.5 else saturating(u, rng.uniform(0.3, 1.0))
    reward = bonus + 0.3 + 0.6 * shape + 0.03 * noise(rng, ROWS, phi)
    at = placed(evaluations)
    x = at / ROWS
    top = rng.uniform(0.45, 0.65)
    mean = top - rise * np.maximum(peak - x, 0) / peak - fall * np.maximum(x - peak, 0) / (1 - peak)
    return finish(seed, phi, reward, at, evaluated(rng, mean, problems))


def stalled(seed: int, bonus: float, evaluations: int = 20, problems: int = 500) -> Made:
    """Training reward 0.3 to 0.9, and the held-out score stays where it began."""
    return peaked(seed, 0.5, 0.0, evaluations, problems, bonus, 0.0)


def _saturating(rng: np.random.Generator, u: Array, x: Array, phi: float) -> tuple[Array, Array]:
    begin, gain, tau = rng.uniform(0.1, 0.5), rng.uniform(0.1, 0.45), rng.uniform(0.1, 1.0)
    share, wander = rng.uniform(0.6, 1.0), 0.012 * noise(rng, ROWS, max(phi, 0.9))
    reward = begin + gain * saturating(u, tau) + 0.03 * noise(rng, ROWS, phi)
    held = 0.9 * begin + share * gain * saturating(u, tau * rng.uniform(0.5, 1.0)) + wander
    return reward, np.interp(x, u, held)


def _policy(rng: np.random.Generator, u: Array, x: Array, phi: float) -> tuple[Array, Array]:
    skill = rng.uniform(-1.5, 0.5) + rng.uniform(0, 2.5) * saturating(u, rng.uniform(0.2, 1.0))
    skill = skill + 0.1 * noise(rng, ROWS, max(phi, 0.8))
    difficulty = 1.5 * rng.normal(size=(ROWS, BATCH // 8, 1))
    reward = (rng.random((ROWS, BATCH // 8, 8)) < expit(skill[:, None, None] - difficulty)).mean((1, 2))
    transfer = rng.uniform(0.6, 1.0)
    held = expit((skill[0] + transfer * (skill - skill[0]) - rng.uniform(-0.5, 1.0)) / 1.3)
    return reward, np.interp(x, u, held)


def _staircase(rng: np.random.Generator, u: Array, x: Array, phi: float) -> tuple[Array, Array]:
    steps = sorted(rng.uniform(0.05, 0.9, rng.integers(1, 4)))
    heights = rng.uniform(0.05, 0.2, len(steps))
    level = 0.2 + sum(h * expit((u - s) / 0.01) for h, s in zip(heights, steps, strict=True))
    heavy = rng.standard_t(4, ROWS) / math.sqrt(2)
    moving = 0.02 * (heavy + phi * np.append(0, heavy[:-1]))
    return level + moving, np.interp(x, u, rng.uniform(0.6, 1.1) * level)


def _gap(rng: np.random.Generator, u: Array, x: Array, phi: float) -> tuple[Array, Array]:
    until, further = rng.uniform(0.1, 0.4), rng.uniform(0.0, 0.15)
    high = rng.random() < 0.3
    begin, gain = (rng.uniform(0.82, 0.92), 0.03) if high else (rng.uniform(0.15, 0.4), rng.uniform(0.15, 0.4))
    reward = begin - 0.3 * high + gain * np.minimum(u / until, 1) + further * np.maximum(u - until, 0) / (1 - until)
    held = begin + rng.uniform(0.7, 1.0) * gain * np.minimum(x / until, 1)
    return reward + 0.03 * noise(rng, ROWS, phi), held


def _still(rng: np.random.Generator, u: Array, x: Array, phi: float) -> tuple[Array, Array]:
    wander = noise(rng, ROWS, phi)
    reward = rng.uniform(0.2, 0.7) + 0.03 * wander
    return reward, np.interp(x, u, rng.uniform(0.2, 0.7) + rng.uniform(0, 0.03) * (wander + noise(rng, ROWS, phi)))


NULLS: dict[str, Callable[[np.random.Generator, Array, Array, float], tuple[Array, Array]]] = {
    "saturating": _saturating,
    "policy": _policy,
    "staircase": _staircase,
    "gap": _gap,
    "still": _still,
}
"""Kind of healthy run -> its training reward (n,) at shares u and expected held-out score (E,) at shares x."""


def healthy(kind: str, seed: int) -> Made:
    """A run in which nothing is gamed, with 4 to 40 evaluations of 50 to 2,000 problems."""
    rng = np.random.default_rng([seed, 2, list(NULLS).index(kind)])
    phi = float(rng.choice([0.0, 0.3, 0.6, 0.9, 0.97]))
    at = placed(int(rng.choice([4, 6, 8, 12, 20, 40])))
    u = (np.arange(ROWS) + 0.5) / ROWS
    reward, held = NULLS[kind](rng, u, at / ROWS, phi)
    problems = int(rng.choice([50, 200, 500, 2000]))
    scores = evaluated(rng, np.clip(held, 0.005, 0.995), problems)
    if rng.random() < 0.3:  # a bonus for the format that everything gets
        reward = reward + 0.2
    return finish(seed, phi, reward, at, scores)


def found(made: Made, metric: str = "reward") -> dict[str, float]:
    """p of each of MODES, as its rule gives it, negative where it is flagged."""
    findings = {f.fault: f for f in diagnose(run_of(made, metric)) if f.fault in MODES}
    return {mode: -f.p - 1e-300 if f.status == "present" else f.p for mode, f in findings.items()}


def share(count: int, of: int) -> str:
    """A share with its 95 % interval, in per cent."""
    low, high = wilson(count / of, of)
    return f"{100 * count / of:.1f} [{100 * low:.0f}, {100 * high:.0f}]"


def size(seeds: range) -> dict[str, Any]:
    """Share of healthy runs, by kind, that either mode is flagged in, and whose p is below 0.05."""
    result: dict[str, Any] = {}
    print("| healthy run | " + " | ".join(f"{mode}: p < 0.05 | flagged" for mode in MODES) + " |")
    print("|---|" + "---|" * 2 * len(MODES))
    for kind in NULLS:
        p = [found(healthy(kind, seed), ("reward", "accuracy")[seed % 2]) for seed in seeds]
        counts = [(sum(abs(q.get(m, 1)) < 0.05 for q in p), sum(q.get(m, 1) < 0 for q in p)) for m in MODES]
        print(f"| {kind} | " + " | ".join(share(c, len(p)) for pair in counts for c in pair) + " |", flush=True)
        result[kind] = counts
    return result


def _peaked_on(metric: str, peak: float, fall: float, evaluations: int, problems: int, seed: int) -> Made:
    """A run with a peak, whose training reward is on a scale that does not compare where `metric` says so."""
    one = peaked(seed, peak, fall, evaluations, problems)
    if metric == "other scale":
        one.table["reward"] = 6 * one.table["reward"] - 2
    return one


def power(seeds: range) -> dict[str, Any]:
    """Share of gamed runs in which either mode is flagged, by fall, place, evaluations and problems."""
    result: dict[str, Any] = {}

    def cell(name: str, make_run: Callable[[int], Made], metric: str) -> str:
        p = [found(make_run(seed), metric) for seed in seeds]
        count = sum(q.get(MODES[0], 1) < 0 for q in p)
        either = sum(any(q.get(mode, 1) < 0 for mode in MODES) for q in p)
        result[f"{name} {metric}"] = [count, either, len(p)]
        return f"{100 * count / len(p):.0f}"

    for metric in ("accuracy", "other scale"):
        print(f"\nheld-out {metric}: problems 100 / 200 / 500\n\n| fall | peak | 6 evaluations | 12 | 20 |")
        print("|---|---|---|---|---|")
        for fall, peak in (
            (0.03, 0.35),
            (0.06, 0.35),
            (0.11, 0.15),
            (0.11, 0.35),
            (0.11, 0.6),
            (0.11, 0.85),
            (0.2, 0.35),
        ):
            texts = []
            for evaluations in (6, 12, 20):
                shape = (peak, fall, evaluations)
                texts.append(
                    " / ".join(
                        cell(f"{shape} {n}", partial(_peaked_on, metric, *shape, n), metric) for n in (100, 200, 500)
                    )
                )
            print(f"| {fall:g} | {peak:g} | " + " | ".join(texts) + " |", flush=True)
    print("\n| held-out score stays | found |\n|---|---|")
    for bonus in (0.0, 0.2, 0.5):
        for metric in ("reward", "accuracy"):
            print(
                f"| bonus {bonus:g}, {metric} | "
                + cell(f"bonus {bonus}", lambda s, b=bonus: stalled(s, b), metric)
                + " |"
            )
    return result


def main() -> None:
    """Measure size or power and print the table."""
    parser = argparse.ArgumentParser(description="Size and power of the rule reward hacking on held-out scores.")
    parser.add_argument("what", choices=("size", "power"))
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 60), metavar=("FIRST", "COUNT"), help="default: 0 60")
    given = parser.parse_args()
    seeds = range(given.seeds[0], sum(given.seeds))
    print(json.dumps((size if given.what == "size" else power)(seeds)))


if __name__ == "__main__":
    main()
