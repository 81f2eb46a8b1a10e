"""From which group size on does leave-one-out have less error than no baseline?

Claim    Corollary 5 of arXiv:2603.01162: leave-one-out beats no baseline wherever V ≠ 0. Ours: at a finite G iff
         G − 1 > Δ/(E r²‖s‖² − ‖g‖² − Σ₁), about G > 1/V (`instruments.group_size.mse.pays_from`).
Command  python experiments/ustat_finite_baseline.py --out runs/ustat_finite_baseline     about four minutes on one core
Method   `tiny` at success rates of about 0.06, 0.25 and 0.55 (`arithmetic` with numbers up to 15, 9 and 3). Two
         independent halves of 24 prompts × 16 rollouts each. The first predicts the sign at G = 2, 4, 8, 16. On the
         second the difference of the two errors is measured without the formula: the rollouts of a prompt are cut into
         16/G groups, and the paired mean of ‖ĝ‖² with and without the baseline differs as the errors do, since both
         estimates have the same mean. Units are prompts. The roles are then exchanged, and so are seeds 0 to 3: eight
         units of a cell, whose mean and spread decide.
Verdict  written before the first run: the finite-G statement holds if the sign is as predicted in every cell with
         |z| > 3, and cells of both signs are among them; does not hold if one of these has the other sign; else cannot
         tell. Corollary 5 as printed is refuted at a G where no baseline has less error with z > 3.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from numpy.typing import NDArray
from ustat_gradients import draw, streamed

from grposcope.core.files import dumps, write_json
from grposcope.instruments.group_size import mse
from grposcope.lab import policies, tasks
from grposcope.maths import moments

TASKS = ("arithmetic:largest=15,limit=40", "arithmetic", "arithmetic:largest=3")
PROMPTS, ROLLOUTS, GROUPS = 24, 16, (2, 4, 8, 16)


def measured(gram: NDArray, rewards: NDArray, group: int) -> NDArray:
    """‖ĝ‖² with leave-one-out less ‖ĝ‖² without a baseline, mean over the groups of each prompt, (P,)."""
    differences = np.zeros(len(rewards))
    for prompt, of_prompt in enumerate(rewards):
        at = prompt * ROLLOUTS
        for start in range(0, ROLLOUTS, group):
            rows = slice(at + start, at + start + group)
            r, block = of_prompt[start : start + group], gram[rows, rows]
            own = (r - r.mean()) * group / (group - 1)
            differences[prompt] += (own @ block @ own - r @ block @ r) / group**2
    return differences * group / ROLLOUTS


def half(seed: int, policy: policies.Policy, name: str) -> tuple[NDArray, NDArray]:
    """Gram matrix and rewards of one half."""
    task = tasks.load(name)
    generator = torch.Generator().manual_seed(seed)
    rollouts = draw(policy, task, task.problems("train"), (PROMPTS, ROLLOUTS), generator)
    return streamed(policy, rollouts), rollouts.rewards.numpy()


def cells(name: str, seeds: int, policy: policies.Policy) -> list[dict]:
    """A row per group size: predictions and measurements of all units."""
    found: dict[int, list[tuple[float, float]]] = {group: [] for group in GROUPS}
    solved, borders, shrinks = [], [], []
    for seed in range(seeds):
        halves = [half(2 * seed + k, policy, name) for k in (0, 1)]
        known = [moments.from_gram(*one, replicates=0) for one in halves]
        for own, other in ((0, 1), (1, 0)):
            solved.append(float(halves[own][1].mean()))
            borders.append(mse.pays_from(known[own]).value)
            shrinks.append(mse.best_shrink(known[own], 4).value)
            for group in GROUPS:
                predicted = mse.leave_one_out(known[own], 1, group).value - mse.reinforce(known[own], 1, group).value
                found[group].append((predicted, float(measured(*halves[other], group).mean())))
    rows = []
    for group, pairs in found.items():
        predicted, seen = np.array(pairs).T
        error = seen.std(ddof=1) / np.sqrt(len(seen))
        rows.append({
            "task": name, "solved": float(np.mean(solved)), "group": group, "predicted": float(predicted.mean()),
            "measured": float(seen.mean()), "se": float(error), "z": float(seen.mean() / error),
            "pays_from": float(np.median(borders)), "best_shrink_at_4": float(np.mean(shrinks)),
        })  # fmt: skip
    return rows


def main() -> None:
    """Measure, print, decide."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=4)
    given = parser.parse_args()
    torch.set_num_threads(1)
    policy = policies.load("tiny")
    rows = [row for name in TASKS for row in cells(name, given.seeds, policy)]
    for row in rows:
        print(dumps(row), flush=True)
    sure = [row for row in rows if abs(row["z"]) > 3]
    right = all(np.sign(row["predicted"]) == np.sign(row["measured"]) for row in sure)
    signs = {float(np.sign(row["measured"])) for row in sure}
    verdict = "does not hold" if not right else "holds" if len(signs) == 2 else "cannot tell"
    refuted = [f"{row['task']} at G = {row['group']}" for row in sure if row["measured"] > 0]
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / "cells.json", {"cells": rows, "verdict": verdict, "no_baseline_better": refuted})
    print(dumps({"verdict": verdict, "cells with |z| > 3": len(sure), "no baseline better": refuted}))


if __name__ == "__main__":
    main()
