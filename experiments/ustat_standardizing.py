"""Does dividing by the group's deviation change nothing but the scale at G = 3, and favour hard prompts at G = 32?

Claim    Ours, of Proposition 13 of arXiv:2603.01162 at a fixed G: standardized advantages climb E ψ_G(V), ψ_G′ = w_G,
         where w_G is constant for G = 2 and 3; w_32(0.1)/w_32(½) = 1.60.
Command  python experiments/ustat_standardizing.py --out runs/ustat_standardizing      some 12 minutes; resumable
Method   `tiny` on `arithmetic`, seeds 0 … 7, the same prompts and random numbers in both arms of a seed: recipe `rloo`
         with leave-one-out advantages, and the same with `--advantage standardized`. At G = 3 64 prompts a step, SGD
         with momentum 0 and no clipping, 30 steps at a rate of 0.1 for leave-one-out and 0.1/w for standardized, w
         the factor between the two gradients, exact for this G. At G = 32 8 prompts a step, AdamW at 4e-4 with its
         usual clipping, which take the scale out, 50 steps. Then success rates on 200 problems × 16, the same for all
         models; hard are problems that the untrained model solves in at most 2 of 16.
Verdict  written before the first run. G = 3 holds if every seed's success rates differ by at most 2 points; does not
         hold if the mean of the difference is beyond 2 points; else cannot tell. G = 32 holds if (standardized less
         leave-one-out on hard problems) less the same on the others has a 95 % t interval over seeds above 0; does not
         hold if below 0; else cannot tell, with the interval as what is excluded.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from ustat_gradients import draw

from grposcope.core.files import dumps, write_json
from grposcope.lab import policies, tasks
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train

ARMS, SEEDS, HARD = ("leave_one_out", "standardized"), range(8), 2
DDOF_1 = math.sqrt(2 / 3)
SCALE = DDOF_1 / (math.sqrt(2) / 3) * 2 / 3
"""Standardized (ddof 1, ε aside) over leave-one-out advantages of every live group of three: √(2/3)/(√2/3) · 2/3."""


def settings(group: int, arm: str) -> dict:
    """What differs between the cells."""
    if group == 3:
        return {"prompts": 64, "optimizer": "sgd", "lr": 0.1 / (SCALE if arm == "standardized" else 1.0),
                "momentum": 0.0, "clip_grad": 0.0, "steps": 30}  # fmt: skip
    return {"prompts": 8, "lr": 4e-4, "steps": 50}


def trained(group: int, arm: str, seed: int, out: Path) -> Path:
    """The folder of a run, trained unless it is there."""
    folder = out / f"G{group}" / arm / str(seed)
    if not (folder / "model" / "model.safetensors").exists():
        shutil.rmtree(folder, ignore_errors=True)
        train(TrainConfig(
            model="tiny", task="arithmetic:size=20000", recipe="rloo", advantage=arm, group=group, seed=seed,
            schedule="constant", warmup=0, out=str(folder), eval_every=0, threads=1, keep_checkpoints=0,
            checkpoint_every=0, rollouts_every=0, **settings(group, arm),
        ))  # fmt: skip
    return folder


def success(model: str) -> NDArray:
    """Success rates on the same 200 problems, (200,)."""
    task = tasks.load("arithmetic")
    generator = torch.Generator().manual_seed(77)
    rollouts = draw(policies.load(model), task, task.problems("test"), (200, 16), generator)
    return np.asarray(rollouts.rewards.numpy().mean(1))


def main() -> None:
    """Train what is missing, measure, decide."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    start = success("tiny")
    hard, found = start <= HARD / 16, {}
    for group in (32, 3):
        rates = np.array([[success(str(trained(group, arm, seed, given.out) / "model")) for arm in ARMS]
                          for seed in SEEDS])  # fmt: skip
        change = rates[:, 1] - rates[:, 0]
        whole, more = change.mean(1), change[:, hard].mean(1) - change[:, ~hard].mean(1)
        low, high = stats.t.interval(0.95, len(more) - 1, more.mean(), stats.sem(more))
        found[group] = {
            "success": rates.mean((0, 2)).tolist(), "hard": rates[:, :, hard].mean((0, 2)).tolist(),
            "largest difference": float(np.abs(whole).max()), "mean difference": float(whole.mean()),
            "hard more": float(more.mean()), "interval": (float(low), float(high)),
        }  # fmt: skip
        print(dumps({"G": group, **found[group]}), flush=True)
    scale, favour = found[3], found[32]["interval"]
    verdicts = {
        3: "holds" if scale["largest difference"] <= 0.02 else "does not hold" if abs(scale["mean difference"]) > 0.02
        else "cannot tell",
        32: "holds" if favour[0] > 0 else "does not hold" if favour[1] < 0 else "cannot tell",
    }  # fmt: skip
    start_of = {"start": float(start.mean()), "hard": float(start[hard].mean()), "hard problems": int(hard.sum())}
    write_json(given.out / "report.json", {"verdicts": verdicts, "groups": found, **start_of})
    print(dumps({"verdicts": verdicts, **start_of}))


if __name__ == "__main__":
    main()
