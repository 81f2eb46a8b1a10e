"""The first word of the whole diagnosis, all rules together, on every kind of made-up run whose outcome is known.

    python benchmarks/verdicts.py --seeds 300000 60

Null runs do not change: "failing" and "warning" are false alarms there, apart from "no learning". Where the reward is
a random walk it does change, and is counted by itself. Healthy runs learn and keep it. Failing ones must not be called
healthy. The last column counts the modes, or fates, that stood first where the word was wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import declines
import graded_runs
import heldout_peaks
import labelled_curves
import numpy as np
import other_runs

from grposcope.core.run import Run
from grposcope.instruments.diagnosis import diagnose
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.maths.intervals import wilson

WORDS = ("failing", "warning", "healthy", "cannot tell")
MAY: dict[str, tuple[str, ...]] = {
    "null": ("healthy", "cannot tell"),
    "walk": ("healthy", "cannot tell"),
    "healthy": ("healthy",),
    "failing": ("failing", "warning"),
}
"""What became of a run -> first words that are right."""
Maker = Callable[[int], Run]


def _labelled(name: str, phi: float, seed: int) -> Run:
    return heldout_peaks.run_of(labelled_curves.make(name, seed, phi), "accuracy")


def _wandering(name: str, rows: int, claim: float, seed: int) -> Run:
    rng = np.random.default_rng([seed, rows, list(declines.NULLS).index(name)])
    return declines.run(declines.MEAN + declines.NULLS[name](rng, rows), claim, declines.NOISE**2)


def _held_out(kind: str, seed: int) -> Run:
    return heldout_peaks.run_of(heldout_peaks.healthy(kind, seed), ("reward", "accuracy")[seed % 2])


def kinds() -> dict[str, dict[str, Maker]]:
    """What became of a run -> its generators by name."""
    made: dict[str, dict[str, Maker]] = {"null": {}, "walk": {}, "healthy": {}, "failing": {}}
    level, on_its_way = graded_runs.small_swing_level, graded_runs.rises_with_kl  # the latter deserves its warning
    healthy = {name: make for name, make in graded_runs.HEALTHY.items() if make not in (level, on_its_way)}
    null = {"flat": graded_runs.flat, level.__name__: level}
    sets = {"healthy": healthy, "failing": graded_runs.FAILING, "null": null}
    for fate, makers in sets.items():
        for name, make in makers.items():
            for rows in (106, 300):
                made[fate][f"{name}, {rows}"] = lambda s, m=make, n=rows: graded_runs.run(m, s, n)
    for fate, makers in {"healthy": other_runs.HEALTHY, "failing": other_runs.FAILING, "null": other_runs.NULL}.items():
        for name, make in makers.items():
            for rows in (60, 200):
                made[fate][f"{name}, {rows}"] = lambda s, m=make, n=rows: other_runs.run(m, s, n)
    for phi in labelled_curves.PHI:
        for name, (_, mode) in labelled_curves.SCENARIOS.items():
            fate = "null" if name == "flat null" else "failing" if mode else "healthy"
            if fate != "failing":
                made[fate][f"{name}, φ = {phi:g}"] = partial(_labelled, name, phi)
    for kind in heldout_peaks.NULLS:
        made["null" if kind == "still" else "healthy"][f"held-out {kind}"] = partial(_held_out, kind)
    for name in declines.NULLS:
        for rows in (40, 100):
            for what in ("unknown", "known"):
                made["walk" if "walk" in name else "null"][f"{name}, {rows}, {what}"] = partial(
                    _wandering, name, rows, declines.CLAIMS[what]
                )
    return made


def cause(run: Run) -> tuple[str, str]:
    """The first word, and what it rests on: the first mode, or the fate where no mode says it."""
    findings = diagnose(run)
    said = verdict(run, findings)
    return said.word, said.fault or said.line.partition(": ")[2][:40]


def main() -> None:
    """Diagnose all runs, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 20), metavar=("FIRST", "COUNT"))
    parser.add_argument(
        "--only", nargs="+", default=["null", "walk", "healthy", "failing"], help="fates (default: all)"
    )
    parser.add_argument("--names", default="", help="only generators whose name contains this")
    given = parser.parse_args()
    seeds = range(given.seeds[0], sum(given.seeds))
    for fate in given.only:
        wrong: Counter[str] = Counter()
        runs, still = 0, fate in ("null", "walk")
        print(f"\n| {fate} | {' | '.join(WORDS)} | wrong because |\n|---|{'---|' * (len(WORDS) + 1)}")
        for name, make in kinds()[fate].items():
            if given.names not in name:
                continue
            seen = Counter(cause(make(seed)) for seed in seeds)
            said = Counter({word: sum(c for (w, _), c in seen.items() if w == word) for word in WORDS})
            bad = Counter({f"{w}: {what}": c for (w, what), c in seen.items()
                           if w not in MAY[fate] and not (still and what == "no learning")})  # fmt: skip
            wrong, runs = wrong + bad, runs + len(seeds)
            because = ", ".join(f"{what} {c}" for what, c in bad.most_common())
            print(f"| {name} | {' | '.join(str(said[w]) for w in WORDS)} | {because} |", flush=True)
        low, high = wilson(wrong.total() / max(runs, 1), max(runs, 1))
        print(
            f"{fate}: wrong in {wrong.total()} of {runs} ({low:.1%} to {high:.1%}): {wrong.most_common()}", flush=True
        )


if __name__ == "__main__":
    main()
