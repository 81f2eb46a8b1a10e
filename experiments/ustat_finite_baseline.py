"""From which group size on does leave-one-out have less error than no baseline?

Claim    Corollary 5 of arXiv:2603.01162: leave-one-out beats no baseline wherever V ≠ 0. Ours: at a finite G iff
         G − 1 > Δ/(E r²‖s‖² − ‖g‖² − Σ₁), about G > 1/V (`instruments.group_size.mse.pays_from`).
Command  python experiments/ustat_finite_baseline.py --out runs/ustat_finite_baseline     about four minutes on one core
         … --model smollm2 --out runs/ustat_finite_baseline_smollm2                        about ten
Method   `tiny` at success rates of about 0.06, 0.25 and 0.55 (`arithmetic` with numbers up to 15, 9 and 3). Two
         independent halves of 24 prompts × 16 rollouts each. The first predicts the sign at G = 2, 4, 8, 16. On the
         second the difference of the two errors is measured without the formula: the rollouts of a prompt are cut into
         16/G groups, and the paired mean of ‖ĝ‖² with and without the baseline differs as the errors do, since both
         estimates have the same mean. Units are prompts. The roles are then exchanged, and so are seeds 0 to 3: eight
         units of a cell, whose mean and spread decide. SmolLM2-135M: sums of 1 … 20 asked in words, halves of 16
         prompts × 8, G = 2, 4, 8; groups without a success are not passed, since both estimates are 0 there.
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
from geometry_smollm2 import Sums
from numpy.typing import NDArray
from ustat_gradients import draw, streamed

from grposcope.core.files import dumps, write_json
from grposcope.instruments.group_size import mse
from grposcope.lab import policies, tasks
from grposcope.lab.tasks import Task
from grposcope.maths import moments

TASKS = ("arithmetic:largest=15,limit=40", "arithmetic", "arithmetic:largest=3")
SHAPES = {"tiny": (24, 16), "smollm2": (16, 8)}
GROUPS = (2, 4, 8, 16)


def measured(blocks: NDArray, rewards: NDArray, group: int) -> NDArray:
    """‖ĝ‖² with leave-one-out less ‖ĝ‖² without a baseline, mean over the groups of each prompt, (P,).

    blocks: Gram matrices within prompts, (P, G, G).
    """
    prompts, rollouts = rewards.shape
    differences = np.zeros(prompts)
    for prompt, of_prompt in enumerate(rewards):
        for start in range(0, rollouts, group):
            rows = slice(start, start + group)
            r, block = of_prompt[rows], blocks[prompt, rows, rows]
            own = (r - r.mean()) * group / (group - 1)
            differences[prompt] += (own @ block @ own - r @ block @ r) / group**2
    return differences * group / rollouts


def foretold(blocks: NDArray, rewards: NDArray, group: int) -> float:
    """The same by the formula, from the moments."""
    pooled = moments.from_gram(blocks, rewards, replicates=0).pooled
    bare = pooled.none + (pooled.raw - pooled.none) / group
    return float((mse.second_moment(pooled, group) - bare)[0])


def half(seed: int, policy: policies.Policy, task: Task, shape: tuple[int, int]) -> tuple[NDArray, NDArray]:
    """Gram matrices within prompts (P, G, G), and rewards (P, G), of one half; 0 for groups without a success."""
    generator = torch.Generator().manual_seed(seed)
    rollouts = draw(policy, task, task.problems("train"), shape, generator)
    rewards, group = rollouts.rewards.numpy(), shape[1]
    blocks = np.zeros((shape[0], group, group))
    for prompt in np.flatnonzero(rewards.any(1)):
        blocks[prompt] = streamed(policy, rollouts.take(torch.tensor([int(prompt)])))
    return blocks, rewards


def cells(task: Task, seeds: int, policy: policies.Policy, shape: tuple[int, int]) -> list[dict]:
    """A row per group size: predictions and measurements of all units."""
    found: dict[int, list[tuple[float, float]]] = {group: [] for group in GROUPS if group <= shape[1]}
    solved, borders, shrinks = [], [], []
    for seed in range(seeds):
        halves = [half(2 * seed + k, policy, task, shape) for k in (0, 1)]
        for own, other in ((0, 1), (1, 0)):
            known = moments.from_gram(*halves[own], replicates=0)
            solved.append(float(halves[own][1].mean()))
            borders.append(mse.pays_from(known).value)
            shrinks.append(mse.best_shrink(known, 4).value)
            for group in found:
                seen = float(measured(*halves[other], group).mean())
                found[group].append((foretold(*halves[own], group), seen))
        print(dumps({"seed": seed, "solved": solved[-2:]}), flush=True)
    rows = []
    for group, pairs in found.items():
        predicted, seen = np.array(pairs).T
        error = seen.std(ddof=1) / np.sqrt(len(seen))
        rows.append({
            "task": task.name, "solved": float(np.mean(solved)), "group": group, "predicted": float(predicted.mean()),
            "measured": float(seen.mean()), "se": float(error), "z": float(seen.mean() / error),
            "pays_from": float(np.median(borders)), "best_shrink_at_4": float(np.mean(shrinks)),
        })  # fmt: skip
    return rows


def main() -> None:
    """Measure, print, decide."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--model", choices=SHAPES, default="tiny")
    given = parser.parse_args()
    torch.set_num_threads(1)
    policy = policies.load(given.model)
    chosen = [tasks.load(name) for name in TASKS] if given.model == "tiny" else [Sums()]
    rows = [row for task in chosen for row in cells(task, given.seeds, policy, SHAPES[given.model])]
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
