"""A gate from good runs: how often `diagnose --reference` fires, from metrics alone, on trainings of our own.

Claim    Held against four runs of the same settings and other seeds, a run of equal settings is called diverged at
         most once in 20, and one with a single setting changed at least nine times in ten.
Command  python experiments/reference_gate.py                  trains what is missing, then the tables
         … --report                                            the tables of the runs that are there
         … --half tune                                         the seeds on which the rule was chosen
Method   `tiny` on sums of three terms, 16 prompts x 8 rollouts, two minibatches and two steps a batch, KL weight 0.001,
         learning rate 4e-4 after 5 steps of warm-up, 60 steps, no evaluation. Changed, one at a time: learning rate
         x 2; G halved; sampling temperature 0.7. The gate sees metrics only: settings are hidden, and what restates
         one (learning rate, counts of tokens and rollouts, times) is no metric of it (`reference.metrics`).
         The first rule was chosen on the tuning seeds: 10 good ones (0 to 9) and 4 of each change. It failed on fresh
         ones (`first`: 12 good, 8 of each change): 7.0 % of equal settings diverged, standard error 4.9 %, 100 % of
         learning rate x 2, 49 % of G halved (17 %), 99 % of temperature 0.7. The cause: seeds drift apart as a run
         goes on, which drowned early differences, and seeds move dead groups and the spread of rewards together. The
         second rule was chosen on both sets (a profile of variances over blocks, dead groups at equal spread of
         rewards, tails heavier than normal), and is reported on seeds 2000 and on, which no rule had seen.
         Every set of four of the 12 good seeds (495) is the reference once; the 8 other good runs and the 24 changed
         ones are judged by it: 3,960 and 11,880 judgements of 36 runs, which are not independent. The standard error
         is a delete-one jackknife over good seeds and over changed runs, and the worst run of each kind is shown.
         With one, two and three references, the gate must say that it cannot tell. The same without the KL, ratio and
         clip metrics, as where a trainer takes one step a batch without a reference model.
Budget   94 trainings of about 13 CPU-seconds, one process, one thread: 20 minutes; the tables take 4 more.
Verdict  Holds if on fresh seeds at most 5 % of the judgements of equal settings are "diverged", and at least 90 % of
         those of each change. Written before a fresh seed was judged by
         either rule, and not moved.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

from grposcope.core.files import dumps
from grposcope.core.run import Run
from grposcope.instruments.runs.reference.gate import judge
from grposcope.logs import read

BASE: dict[str, Any] = {
    "task": "arithmetic:steps=3", "steps": 60, "prompts": 16, "group": 8, "interval": 2, "minibatches": 2, "kl": 1e-3,
    "lr": 4e-4, "schedule": "constant", "warmup": 5, "eval_problems": 0, "eval_every": 0, "checkpoint_every": 0,
    "rollouts_every": 0, "threads": 1,
}  # fmt: skip
CHANGES: dict[str, dict[str, Any]] = {
    "good": {}, "lr2": {"lr": 8e-4}, "g4": {"group": 4}, "t07": {"temperature": 0.7},
}  # fmt: skip
TITLES = {"good": "none", "lr2": "learning rate x 2", "g4": "G halved", "t07": "temperature 0.7"}
SEEDS = {
    "tune": {"good": range(10), "lr2": range(100, 104), "g4": range(200, 204), "t07": range(300, 304)},
    "first": {"good": range(1000, 1012), "lr2": range(1100, 1108), "g4": range(1200, 1208), "t07": range(1300, 1308)},
    "fresh": {"good": range(2000, 2012), "lr2": range(2100, 2108), "g4": range(2200, 2208), "t07": range(2300, 2308)},
    "third": {"good": range(3000, 3012), "g4": range(3200, 3208), "t07": range(3300, 3308), "lr2": range(3100, 3108)},
}
"""Half -> change -> seeds."""


def make(change: str, seed: int, out: Path) -> Path:
    """Train the run unless its record is there; returns its folder, which holds the record alone."""
    from grposcope.lab.train.config import TrainConfig
    from grposcope.lab.train.loop import train

    folder = out / change / f"seed-{seed}"
    if not (folder / "summary.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        train(TrainConfig(**{**BASE, **CHANGES[change], "seed": seed, "out": str(folder)}))
        shutil.rmtree(folder / "model", ignore_errors=True)
    return folder


KINDS = {"every metric": (), "without KL, ratio and clip": ("kl", "kl_old", "clip_low", "clip_high")}
"""What the gate is given -> the metrics that are taken away."""


def runs(out: Path, half: str, without: Sequence[str]) -> dict[str, list[Run]]:
    """Change -> the runs of it that are there, with metrics alone."""
    found: dict[str, list[Run]] = {}
    for change, seeds in SEEDS[half].items():
        folders = [out / half / change / f"seed-{seed}" for seed in seeds]
        found[change] = [hidden(read(one), without) for one in folders if (one / "summary.json").is_file()]
    return found


def hidden(run: Run, without: Sequence[str]) -> Run:
    """The run without settings, and without some of its metrics."""
    table = {name: column for name, column in run.table.items() if name not in without}
    return Run(run.meta, {}, table, run.groups, run.evaluations)


def judged(given: dict[str, list[Run]], size: int) -> dict[str, np.ndarray]:
    """Change -> whether each run (columns) is called diverged from each set of references (rows); NaN for its own."""
    good = given["good"]
    sets = list(itertools.combinations(range(len(good)), size))
    found = {change: np.full((len(sets), len(those)), math.nan) for change, those in given.items()}
    for row, members in enumerate(sets):
        references = [good[i] for i in members]
        for change, those in given.items():
            for place, run in enumerate(those):
                if change != "good" or place not in members:
                    said = judge(run, references, explain=False).diverged
                    found[change][row, place] = math.nan if said is None else said
    return found


def share(rows: np.ndarray, sets: Sequence[tuple[int, ...]], count: int, own: bool) -> tuple[float, float]:
    """Share of judgements that are "diverged", and its jackknife standard error over runs.

    count: good runs. own: whether the judged runs are good ones themselves, so that one that is left out leaves both.
    """
    left_out = []
    for one in range(count):
        keep = rows[[one not in members for members in sets]]
        left_out.append(float(np.nanmean(np.delete(keep, one, axis=1) if own else keep)))
    variance = (count - 1) / count * float(((np.array(left_out) - np.mean(left_out)) ** 2).sum())
    if not own:
        k = rows.shape[1]
        each = np.array([np.nanmean(np.delete(rows, one, axis=1)) for one in range(k)])
        variance += (k - 1) / k * float(((each - each.mean()) ** 2).sum())
    return float(np.nanmean(rows)), math.sqrt(variance)


def report(out: Path, half: str) -> dict[str, Any]:
    """Print the tables of the runs on disk, and return their numbers."""
    document: dict[str, Any] = {"half": half}
    for kind, without in KINDS.items():
        given = runs(out, half, without)
        count = len(given["good"])
        sets = list(itertools.combinations(range(count), 4))
        found = judged(given, 4)
        print(f"\n{kind}: {len(sets)} sets of 4 of {count} good runs\n")
        print("| changed | runs | judgements | diverged | standard error | least and most of one run |")
        print("|---|---:|---:|---:|---:|---:|")
        for change, rows in found.items():
            value, error = share(rows, sets, count, change == "good")
            each = np.nanmean(rows, axis=0)
            judgements = int(np.isfinite(rows).sum())
            print(f"| {TITLES[change]} | {rows.shape[1]} | {judgements:,} | {value:.1%} | {error:.1%} "
                  f"| {each.min():.0%} to {each.max():.0%} |")  # fmt: skip
            document[f"{kind}, {change}"] = {"share": value, "se": error, "each": each.tolist()}
        references = given["good"][:4]
        firsts = [judge(run, references) for those in list(given.values())[1:] for run in those]
        left = [one.left[0] for one in firsts if one.left]
        names = sorted({one.metric for one in left}, key=lambda name: -sum(one.metric == name for one in left))
        print("\nleft first, of changed runs against the first four: "
              + ", ".join(f"{name} {sum(one.metric == name for one in left)}" for name in names))  # fmt: skip
        if not without:
            fewer = [judge(run, given["good"][:k]).diverged for k in (1, 2, 3) for run in given["good"][4:]]
            print(f"with one to three references: {sum(one is None for one in fewer)} of {len(fewer)} cannot be told")
    return document


def main() -> None:
    """Train what is missing, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/reference_gate"))
    parser.add_argument("--half", choices=tuple(SEEDS), default="fresh")
    parser.add_argument("--report", action="store_true", help="no training")
    given = parser.parse_args()
    if not given.report:
        for change, seeds in SEEDS[given.half].items():
            for seed in seeds:
                make(change, seed, given.out / given.half)
    print(dumps(report(given.out, given.half)))


if __name__ == "__main__":
    main()
