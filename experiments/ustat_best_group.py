"""Is one group size best at every checkpoint of a training?

Claim    §5.2 of arXiv:2603.01162: one group size is best throughout a training (its tables have one run a cell).
Command  python experiments/ustat_best_group.py --out runs/ustat_best_group      some 45 minutes of one core; resumable
         --report tells what is there and trains nothing
Method   `tiny` on `arithmetic`, leave-one-out advantages, AdamW at a constant 4e-4, 256 rollouts a step, 120 steps,
         G = 2, 4, 8, 16, 32, the same seeds in all arms (100 to 115, used nowhere else); held-out pass@1 on 200
         problems × 4 at steps 20, 40, …, 120. Seed by seed, all group sizes of one before the next.
Verdict  The rule of `ustat_best_group_power.py`, where its power stands: one G "is best" if at every checkpoint its
         mean lies within one standard error, of the paired difference, of the largest; "none is" if every G is behind
         another by more than Bonferroni allows at one checkpoint or more; else cannot tell. Where more than one G "is
         best", all of them are said.
Budget   45 minutes of CPU time. Whatever seeds are whole when it is spent are judged, with at least eight; with fewer
         it cannot tell. No look before the end decides anything.

It was ended at the budget, in its fifteenth seed. A run that is ended writes a shorter curve, which does not count.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import ustat_training
from numpy.typing import NDArray
from ustat_best_group_power import CHECKPOINTS, GROUPS, verdict

from grposcope.core.files import write_json

SEEDS, LEAST, STEPS, BATCH = range(100, 116), 8, 120, 256


def trained(seed: int, out: Path) -> list[dict]:
    """The results of one seed with every group size."""
    settings = argparse.Namespace(
        recipe="rloo", model="tiny", task="arithmetic", out=out, steps=STEPS, batch=BATCH, lr=4e-4,
        every=STEPS // CHECKPOINTS, problems=200, level=1.0,
    )  # fmt: skip
    return [ustat_training.one(group, seed, settings) for group in GROUPS]


def whole(out: Path, seed: int) -> bool:
    """Whether this seed was trained to the end with every group size."""
    paths = [out / f"rloo-group{group}-seed{seed}.json" for group in GROUPS]
    return all(path.exists() and len(json.loads(path.read_text())["curve"]) == CHECKPOINTS + 1 for path in paths)


def behind(values: NDArray) -> tuple[NDArray, NDArray]:
    """How far each G is behind the best one of a checkpoint, and the error of that; of (seeds, checkpoints, groups)."""
    means = values.mean(0)
    best = values[:, np.arange(values.shape[1]), means.argmax(1)][..., None]
    return (best - values).mean(0), (best - values).std(0, ddof=1) / np.sqrt(len(values))


def main() -> None:
    """Train what is missing, then print the table and the verdict of what is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if not arguments.report:
        for seed in SEEDS:
            trained(seed, arguments.out)
    seeds = [seed for seed in SEEDS if whole(arguments.out, seed)]
    results = [trained(seed, arguments.out) for seed in seeds]
    values = np.array([[[point[1] for point in run["curve"][1:]] for run in runs] for runs in results])
    values = values.transpose(0, 2, 1)  # seeds, checkpoints, groups
    lag, error = behind(values)
    print(
        f"{len(seeds)} seeds\n| step | {' | '.join(f'G = {group}' for group in GROUPS)} |\n|---|{'---|' * len(GROUPS)}"
    )
    for k in range(CHECKPOINTS):
        cells = [f"{values[:, k, g].mean():.3f} (−{lag[k, g]:.3f} ± {error[k, g]:.3f})" for g in range(len(GROUPS))]
        print(f"| {(k + 1) * STEPS // CHECKPOINTS} | {' | '.join(cells)} |")
    within = [group for g, group in enumerate(GROUPS) if (lag[:, g] <= error[:, g]).all()]
    print(f"within one standard error of the best at all checkpoints: {within or 'none'}")
    print(f"verdict: {verdict(values) if len(seeds) >= LEAST else 'cannot tell: too few seeds'}")
    write_json(arguments.out / "report.json", {"seeds": seeds, "pass@1": values.tolist()})


if __name__ == "__main__":
    main()
