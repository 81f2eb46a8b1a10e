"""What does a learned multiplier cost in reward, beside the best fixed penalty?

The runs of `rewards_constraint.py` (length <= 13, plain and damped, seeds 0 to 7), and the same settings with a fixed
multiplier: rewards right and short, each standardized within groups, with weights 1 and β = 0.25, 0.5, 0.75, 1, 1.5. As
the cost of a constraint is standardized too, this is the same penalty with β in the place of the multiplier.

Rules, before the first run. The best β is chosen on seeds 100 to 103: of those whose upper 95 % bound of the held-out
length (64 problems, 4 samples, mean of the evaluations after steps 54 and 60) is at most 13.5 in at least 3 of 4 seeds,
the one of the largest mean accuracy; where there is none, the one of the least mean bound. Then seeds 0 to 7, paired:
accuracy of the last model on 200 held-out problems, 4 answers each, constrained less fixed, with a 95 % t interval. The
constrained runs reach what was asked (no more than 5 points below) if its lower end is at least -0.05, miss it if its
upper end is below -0.05; else it cannot be told. Shown beside it: in how many seeds each holds the bound.
Budget: 44 runs, 15 CPU-minutes, one process, one thread.

    python experiments/rewards_fixed.py OUT --minutes 8        trains what is missing, and starts no run after that
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rewards_constraint import ARMS, LIMIT, SLACK, STEPS
from rewards_pareto import LONGEST, interval, measured, problems

PENALTIES = (0.25, 0.5, 0.75, 1.0, 1.5)
CHOOSING, SEEDS = range(100, 104), range(8)
FUNCTIONS = Path(__file__).resolve().parent / "rewards_pareto.py"

Rows = dict[tuple[str, int], dict[str, Any]]


def run(out: Path, arm: str, seed: int) -> dict[str, Any]:
    """Train; returns the row of the run. arm: plain, damped, or a fixed penalty."""
    from grposcope.lab.train import loop
    from grposcope.lab.train.config import TrainConfig
    from grposcope.logs import read

    folder, began = out / f"{arm}-{seed}", time.process_time()
    shutil.rmtree(folder, ignore_errors=True)
    if arm in ARMS:
        own: dict[str, Any] = {
            "reward": f"{FUNCTIONS}:right", "constraint": f"length<={LIMIT:g}", "dual_rate": 0.2,
            "dual_damping": ARMS[arm],
        }  # fmt: skip
    else:
        own = {"reward": f"{FUNCTIONS}:right,short={arm}", "aggregation": "standardized_components"}
    loop.train(TrainConfig(
        task=f"jsonl:{problems(out)}", max_tokens=LONGEST, seed=seed, steps=STEPS, prompts=16, group=8, eval_every=54,
        eval_problems=64, checkpoint_every=0, rollouts_every=0, threads=1, out=str(folder), **own,
    ))  # fmt: skip
    held = read(folder).evaluations.of("length")
    late = held.step > 0.8 * STEPS
    values = measured(str(folder / "model"), out).mean((0, 1))
    row = {
        "arm": arm, "seed": seed, "bound": float(held.value[late].mean() + 1.96 * held.se[late].mean()),
        "accuracy": float(values[0]), "characters": float(values[3]), "seconds": time.process_time() - began,
    }  # fmt: skip
    shutil.rmtree(folder)
    return row


def rows(out: Path) -> Rows:
    """The rows that are there."""
    path = out / "rows.jsonl"
    known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(row["arm"], row["seed"]): row for row in known}


def of(have: Rows, arm: str, name: str, seeds: range) -> NDArray[np.float64]:
    """A number of each seed's run."""
    return np.array([have[arm, seed][name] for seed in seeds])


def chosen(have: Rows) -> str | None:
    """The best fixed penalty by the rule; None while runs are missing."""
    arms = [f"{penalty:g}" for penalty in PENALTIES]
    if any((arm, seed) not in have for arm, seed in product(arms, CHOOSING)):
        return None
    holding = [arm for arm in arms if (of(have, arm, "bound", CHOOSING) <= LIMIT + SLACK).sum() >= 3]
    if holding:
        return max(holding, key=lambda arm: of(have, arm, "accuracy", CHOOSING).mean())
    return min(arms, key=lambda arm: of(have, arm, "bound", CHOOSING).mean())


def wanted(out: Path) -> Iterator[tuple[str, int]]:
    """The runs, those that choose before those that are compared."""
    yield from product([f"{penalty:g}" for penalty in PENALTIES], CHOOSING)
    best = chosen(rows(out))
    if best is not None:
        for seed in SEEDS:
            yield from ((arm, seed) for arm in (best, *ARMS))


def report(have: Rows) -> None:
    """Print the tables and the verdicts."""
    best = chosen(have)
    assert best is not None
    print("| fixed penalty | upper bound of the length, seeds 100 to 103 | accuracy |\n|---|---|---|")
    for arm in (f"{penalty:g}" for penalty in PENALTIES):
        shown = [", ".join(f"{one:.2f}" for one in of(have, arm, name, CHOOSING)) for name in ("bound", "accuracy")]
        print(f"| {arm}{' (chosen)' if arm == best else ''} | {shown[0]} | {shown[1]} |")
    print(
        "\n| seed | upper bound of the length: fixed, plain, damped | accuracy: fixed, plain, damped |\n|---|---|---|"
    )
    arms = (best, *ARMS)
    for seed in SEEDS:
        shown = [", ".join(f"{have[arm, seed][name]:.2f}" for arm in arms) for name in ("bound", "accuracy")]
        print(f"| {seed} | {shown[0]} | {shown[1]} |")
    for arm in arms:
        held = int((of(have, arm, "bound", SEEDS) <= LIMIT + SLACK).sum())
        mean, half = interval(of(have, arm, "accuracy", SEEDS))
        print(f"{arm}: held in {held} of 8 seeds, accuracy {mean:.3f} ± {half:.3f}")
    for arm in ARMS:
        mean, half = interval(of(have, arm, "accuracy", SEEDS) - of(have, best, "accuracy", SEEDS))
        said = "reached" if mean - half >= -0.05 else "missed" if mean + half < -0.05 else "cannot be told"
        print(f"{arm} less fixed: {mean:.3f} ± {half:.3f}, {said}")


def main() -> None:
    """Train what is missing, and report once nothing is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=9.0)
    given = parser.parse_args()
    problems(given.out)
    began = time.monotonic()
    for arm, seed in wanted(given.out):
        if (arm, seed) in rows(given.out):
            continue
        if time.monotonic() - began > 60 * given.minutes:
            return
        row = run(given.out, arm, seed)
        with (given.out / "rows.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)
    report(rows(given.out))


if __name__ == "__main__":
    main()
