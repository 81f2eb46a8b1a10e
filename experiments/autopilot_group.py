"""Does a group size that sets itself save rollouts, and does it leave a good one alone? Trainings of `tiny`.

Claim    `--group auto` (moves of the group size by pooled probes and the planner, at equal rollouts a step) makes up
         for a group size that is bad from the start, and does no harm where the size is good.
Command  python experiments/autopilot_group.py --out runs/group.jsonl            round 2, some 9 minutes of one core
         python experiments/autopilot_group.py --out runs/group.jsonl --report   the tables and the verdict
Method   `tiny` on `arithmetic`, recipe grpo, 50 steps of 64 rollouts at 4e-4, seeds 0 … 7, the flag's own defaults (a
         move at most every 20 steps). Cells: G = 32 (2 prompts a batch) and the default G = 8 (8 prompts), each with
         auto and left alone, paired by seed. 128 rollouts with G = 64 would be twice as dear. G = 2 is not run: below
         four rollouts the planner tells nothing, so that nothing moves (a test holds it), and a run in which nothing
         moves is the run left alone, number by number (another does); such runs are made once. Figures: held-out
         accuracy (256 problems, every 10 steps), its mean over the steps, and over the generated tokens up to what both
         of a pair have; rollouts are equal, tokens differ by the lengths alone.
Verdict  written before the first run. 95 % intervals of paired differences over seeds by t.
         *Pays* where the interval of auto less left alone at G = 32 lies above 0, over steps and over tokens both; told
         beside it is the share of the distance to the default, left alone, that is made up (wanted: 75 %).
         *No harm* where at G = 8 the lower end is above -0.03, over both.
         The flag stays, off by default, if both hold. If there is harm at either it is taken out. If it pays in neither
         and harms in neither it is taken out too. Where it does nothing, that is counted and said.
         The seconds that probes took are reported, as shares of the run; they decide nothing, since `tiny` is dearer to
         probe than to train. Looked at before, on seed 900: that moves happen at all (G = 32, 24 steps), and Gram
         matrices of the untrained model, on which the planner says G* = 4.
Budget   45 minutes of CPU time; what is not done by then is not done, and is told.

Second round, written before its first run. The first was ended after four of its eight seeds, with its results looked
at: at 64 rollouts this rate teaches nothing (accuracy is 0.28 at first, 0.25 at last with G = 8 and 0.11 with G = 32),
and with standardized advantages two of four runs at G = 32 never told what would be saved, since without one prompt no
signal was found. Since then leave-one-out advantages are probed with 16 rollouts of each
prompt. Now (--round 2): recipe rloo, 128 rollouts a step, 48 steps, seeds 10 … 17; G = 64 (2 prompts) of all seeds
first, then the default G = 8 (16 prompts). Figures, tests and *pays* as above, with G = 64 in the place of G = 32.
*No harm* as above; with fewer than 8 seeds of G = 8 it cannot be told. The flag stays, off by default, if G = 64 pays
and no harm is seen at either; with *no harm* untold the docs say so. Budget: 15 minutes of CPU time.

Third round, written before its first run: the first move of a run may come from 8 probed prompts on, where the pool
names the same size with its last probe and without it (`lab.train.group_moves`); in the second round it waited for step
20. Cells, settings, figures and tests of the second round, seeds 20 … 27 (--round 3). *Pays* and *no harm* as there.
The early move stays if both hold and more of the distance is made up than the 30 % of the second round; else it is
taken out. Wanted: 75 % of it. Budget: 25 minutes of CPU time.

After the first round standardized advantages were refused, since nothing was shown for them, so that it runs no more.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from scipy import stats

from grposcope.instruments.autopilot import events
from grposcope.lab.train import loop
from grposcope.lab.train.config import PAUSE, TrainConfig

FIRST = {"G = 32": {"prompts": 2, "group": 32}, "G = 8": {"prompts": 8, "group": 8}}
SECOND = {
    "G = 64": {"prompts": 2, "group": 64, "recipe": "rloo", "steps": 48, "eval_every": 12},
    "G = 8": {"prompts": 16, "group": 8, "recipe": "rloo", "steps": 48, "eval_every": 12},
}
ROUNDS = {1: (FIRST, tuple(range(8))), 2: (SECOND, tuple(range(10, 18))), 3: (SECOND, tuple(range(20, 28)))}
"""Cells and seeds; the large group first, the default second."""

BASE: dict[str, Any] = {
    "steps": 50, "warmup": 5, "schedule": "constant", "lr": 4e-4, "eval_every": 10, "eval_problems": 256,
    "eval_samples": 1, "checkpoint_every": 0, "rollouts_every": 0, "threads": 1,
}  # fmt: skip
ARMS = ("auto", "off")


def run(cell: str, shape: Mapping[str, Any], seed: int, arm: str) -> dict[str, Any]:
    """A row: what came of one training."""
    folder = Path(tempfile.mkdtemp(prefix="group-")) / "run"
    auto = PAUSE if arm == "auto" else 0
    given = {**BASE, **shape, "seed": seed, "auto_group": auto, "out": str(folder)}
    began = time.process_time()
    try:
        loop.train(TrainConfig(**given))
        story = events.read(folder) or events.Story()
        lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
        accuracy = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
    finally:
        shutil.rmtree(folder.parent, ignore_errors=True)
    seconds = [
        sum(float(line.get(name) or 0) for line in lines)
        for name in ("seconds_probe", "seconds_sample", "seconds_update")
    ]
    return {
        "cell": cell, "seed": seed, "arm": arm, "cpu": time.process_time() - began, "seconds": seconds,
        "accuracy": {str(row["step"]): float(row["pass@1"]["value"]) for row in accuracy},
        "tokens": np.cumsum([line["tokens_generated"] for line in lines]).tolist(),
        "moves": [{"step": one.step, "group": one.group, "because": one.why.because}  # type: ignore[union-attr]
                  for one in story.decisions if one.setting == "group"],
    }  # fmt: skip


def kept(path: Path) -> list[dict[str, Any]]:
    """The rows that are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add(path: Path, which: int) -> None:
    """Run what is not there yet; a run in which nothing moved stands for the one left alone."""
    cells, seeds = ROUNDS[which]
    pairs = [(cell, seed) for seed in seeds for cell in cells]
    if which > 1:
        pairs = [(cell, seed) for cell in cells for seed in seeds]
    for cell, seed in pairs:
        for arm in ARMS:
            rows = {row["arm"]: row for row in kept(path) if (row["cell"], row["seed"]) == (cell, seed)}
            if arm in rows:
                continue
            same = arm == "off" and "auto" in rows and not rows["auto"]["moves"]
            row = {**rows["auto"], "arm": "off", "cpu": 0.0} if same else run(cell, cells[cell], seed, arm)
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def over_steps(row: Mapping[str, Any]) -> float:
    """Mean held-out accuracy over the steps, with straight lines between evaluations."""
    steps = [int(step) for step in row["accuracy"]]
    return float(np.interp(np.arange(max(steps) + 1), steps, list(row["accuracy"].values())).mean())


def over_tokens(row: Mapping[str, Any], until: int) -> float:
    """The same over generated tokens, up to `until` of them."""
    spent = [0, *row["tokens"]]
    at = [spent[int(step)] for step in row["accuracy"]]
    return float(np.interp(np.linspace(0, until, 200), at, list(row["accuracy"].values())).mean())


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the ends of its 95 % interval by t."""
    reach = float(stats.t.ppf(0.975, len(values) - 1)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(np.mean(values)), float(np.mean(values)) - reach, float(np.mean(values)) + reach


def report(rows: Sequence[Mapping[str, Any]], which: int) -> None:
    """Print the tables and the verdict."""
    cells, every = ROUNDS[which]
    large, default = cells
    by = {(row["cell"], row["seed"], row["arm"]): row for row in rows}
    ends: dict[str, list[float]] = {}
    for cell in cells:
        seeds = [seed for seed in every if all((cell, seed, arm) in by for arm in ARMS)]
        if len(seeds) < 2:
            continue
        auto, off = ([by[cell, seed, arm] for seed in seeds] for arm in ARMS)
        until = [min(one["tokens"][-1], other["tokens"][-1]) for one, other in zip(auto, off, strict=True)]
        figures = {
            "steps": [(over_steps(a), over_steps(b)) for a, b in zip(auto, off, strict=True)],
            "tokens": [(over_tokens(a, n), over_tokens(b, n)) for a, b, n in zip(auto, off, until, strict=True)],
            "last": [(list(a["accuracy"].values())[-1], list(b["accuracy"].values())[-1])
                     for a, b in zip(auto, off, strict=True)],
        }  # fmt: skip
        for name, pairs in figures.items():
            mean, low, high = interval([a - b for a, b in pairs])
            ends.setdefault(cell, []).append(low)
            levels = [np.mean([pair[k] for pair in pairs]) for k in (0, 1)]
            print(f"{cell}, {len(seeds)} seeds, {name}: auto {levels[0]:.3f}, left alone {levels[1]:.3f}, "
                  f"difference {mean:+.3f} ({low:+.3f} to {high:+.3f})")  # fmt: skip
        moved = [row for row in auto if row["moves"]]
        spent = [row["seconds"][0] / sum(row["seconds"]) for row in auto]
        paths = [[f"{one['step']}:{one['group']}" for one in row["moves"]] for row in auto]
        print(f"{cell}: moved in {len(moved)} of {len(auto)}; {paths}; probes {np.mean(spent):.0%} of a run's seconds; "
              f"tokens {np.mean([row['tokens'][-1] for row in auto]):.0f} and "
              f"{np.mean([row['tokens'][-1] for row in off]):.0f}")  # fmt: skip
    seeds = [seed for seed in every if all((cell, seed, "off") in by for cell in cells)]
    if seeds:
        gained = np.mean([over_steps(by[large, s, "auto"]) - over_steps(by[large, s, "off"]) for s in seeds])
        distance = np.mean([over_steps(by[default, s, "off"]) - over_steps(by[large, s, "off"]) for s in seeds])
        print(f"{len(seeds)} seeds: of the distance {distance:.3f} to the default, left alone, {gained / distance:.0%}")
    lowest = {cell: min(found[:2]) for cell, found in ends.items()}
    print(f"lower ends {lowest}; CPU {sum(row['cpu'] for row in rows) / 60:.1f} minutes")


def main() -> None:
    """Run, or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--round", type=int, choices=tuple(ROUNDS), default=1)
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    if not given.report:
        add(given.out, given.round)
    report(kept(given.out), given.round)


if __name__ == "__main__":
    main()
